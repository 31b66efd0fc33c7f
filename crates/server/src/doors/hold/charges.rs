//! Charges: which requests of a queue may change places.

use ratekeeper::Answer;
use ratekeeper_core::Mode;

/// Returns the limits, keys and costs of a request: equal for two that may change places.
pub(super) fn charges_of(answer: &Answer) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(64);
    for outcome in answer.outcomes() {
        let key = outcome.key.as_bytes();
        let numbers = [
            outcome.limit.id.index() as u64,
            u64::from(outcome.limit.version),
            outcome.cost.get(),
            u64::from(outcome.mode() == Some(Mode::Shadow)),
            u64::from(outcome.decision.verdict.allows()),
            key.len() as u64,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(key);
    }
    bytes.into()
}
