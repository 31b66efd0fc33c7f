//! Conversions of the states of a limit in Redis.

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, AnyState, Gcra, Listed as _, Paid, Time, UnixMicros,
};

/// Returns the microseconds from `now` until a state may be forgotten, rounded up; `u64::MAX` for a
/// state that never may.
pub(super) fn micros_left(limit: &AnyAlgorithm, state: &AnyState, now: UnixMicros) -> u64 {
    let now = now.time();
    let expires = limit.expires_at(state, now);
    if expires == Time::MAX {
        return u64::MAX;
    }
    let span = expires.since(now);
    span.as_nanos().div_ceil(1_000)
}

/// Returns when the debt of a state is paid; `None` if nothing is owed.
pub(super) fn paid(gcra: &Gcra, state: &AnyState, now: UnixMicros) -> Option<Paid> {
    Gcra::with_state(state, |tat| gcra.paid(tat, now))
}

/// Replaces a state of a token bucket by its remembered debt, if that is larger and the value
/// found is not marked as lowered.
pub(super) fn learn(
    limit: &AnyAlgorithm,
    state: &mut AnyState,
    value: &[u8],
    hint: Paid,
    now: UnixMicros,
) {
    if let Some(gcra) = Gcra::of(limit)
        && !Gcra::is_lowered(value)
        && paid(gcra, state, now) < Some(hint)
        && let Some(tat) = gcra.owing(hint, now)
    {
        *state = AnyState::Gcra(tat);
    }
}
