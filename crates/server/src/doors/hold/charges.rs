//! Charges: which requests of a queue may change places, and what goes back when one leaves.

use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{AnyAlgorithm, Charge, Mode, Permits, Time};
use ratekeeper_policy::Rule;
use ratekeeper_store::{ActualCost, AnyStore, ChargeOrigin, Reserved, Settled};

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

/// Gives back the promises of the answer's limits with a queue, unless the limit has promised
/// something after them; returns true if any was given back.
pub(super) fn take_back(store: &AnyStore, answer: &Answer, now: Time) -> bool {
    let AnyStore::Memory(memory) = store else {
        return false;
    };
    let promises = answer.outcomes().filter(promises);
    promises.fold(false, |any, outcome| {
        let mark = match answer.origin_of(&outcome) {
            Some(ChargeOrigin::Store(receipt)) => receipt.mark,
            _ => None,
        };
        let reserved = Reserved {
            decision: outcome.decision,
            made: answer.decided_at(),
            mark,
        };
        let charge = charge(&outcome);
        let taken = charge.is_some_and(|charge| memory.cancel(&charge, reserved, now) == Ok(true));
        any | taken
    })
}

/// Returns the charges of limits without a queue as unused: they go back regardless of later
/// charges. Values that were counted stay counted, because a later request may have passed by them.
pub(super) fn unpromised(answer: &Answer) -> Vec<Settled<'_>> {
    let plain = answer.outcomes().filter(|outcome| !promises(outcome));
    let plain = plain.filter(|it| it.is_asked && it.rule.distinct.is_none());
    let charged = plain.filter(|it| it.decision.verdict.allows());
    let unused = charged.filter_map(|outcome| {
        Some(Settled {
            charge: charge(&outcome)?,
            used: ActualCost::Permits(Permits::ZERO),
            origin: answer.origin_of(&outcome)?,
        })
    });
    unused.collect()
}

/// Returns true if other callers may have been promised moments that depend on this charge.
fn promises(outcome: &Outcome<'_>) -> bool {
    may_promise(&outcome.limit.algorithm)
}

/// Returns true if a limit may let a request wait.
pub(crate) fn lets_wait(rule: &Rule) -> bool {
    rule.limits().any(|limit| may_promise(&limit.algorithm))
}

fn may_promise(algorithm: &AnyAlgorithm) -> bool {
    algorithm.queue().is_some() || matches!(algorithm, AnyAlgorithm::WarmUp(_))
}

fn charge<'a>(outcome: &Outcome<'a>) -> Option<Charge<'a>> {
    let lends = outcome.limit.algorithm.concurrency().is_some();
    let mode = outcome.mode().filter(|_| !lends)?;
    Some(Charge {
        limit: outcome.limit,
        key: outcome.key,
        cost: outcome.cost,
        mode,
    })
}
