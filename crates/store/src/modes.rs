//! Modes: which charges of a request are asked and made, and which requests pass.
//!
//! * A charge and the alternatives after it ([`Mode::Otherwise`]) are a chain. Its charges are asked
//!   in order until one allows, and only that one is made. The chain denies if all of them deny.
//!
//! ```text
//!   chain     enforce   otherwise   otherwise
//!   verdicts  deny      allow       (allow)      the last is not asked, and not charged
//! ```
//!
//! * [`Mode::Once`] is a condition of the charge after it. If the condition denies, that charge is
//!   not asked, and refuses nothing. If it allows, both are charged, or neither.
//! * [`Mode::Headroom`] is never charged. The charge after it is judged as if the headroom had been
//!   charged before.
//!
//! These are functions of the decisions about the charges; `mode` returns the mode of a charge.

use ratekeeper_core::{Decision, Mode};

use crate::Decisions;

impl Decisions {
    /// Returns true if the charge at this index is asked: it is the first of its chain and not
    /// excused, or all before it in the chain deny. Headroom is never asked. `mode` returns the
    /// mode of the charge at an index.
    #[inline]
    pub fn asks(&self, at: usize, mode: impl Fn(usize) -> Mode) -> bool {
        asks(&self.each, at, mode)
    }

    /// Returns true if the charge at this index was made, provided that the request was admitted.
    #[inline]
    pub fn makes(&self, at: usize, mode: impl Fn(usize) -> Mode) -> bool {
        makes(&self.each, at, mode)
    }

    /// Returns the index of the charge that allows in place of the one at this index; `None` if
    /// that one allows itself, or if no alternative allows.
    pub fn covered_by(&self, at: usize, mode: impl Fn(usize) -> Mode) -> Option<usize> {
        let denies = |at: usize| self.each.get(at).is_some_and(|one| !one.verdict.allows());
        if !denies(at) {
            return None;
        }
        alternatives(&self.each, at, mode).find(|&next| !denies(next))
    }
}

/// See [`Decisions::makes`].
pub(crate) fn makes(each: &[Decision], at: usize, mode: impl Fn(usize) -> Mode) -> bool {
    let allows = |at: usize| each.get(at).is_some_and(|one| one.verdict.allows());
    allows(at) && (mode(at) != Mode::Once || allows(at + 1)) && asks(each, at, mode)
}

/// See [`Decisions::asks`].
pub(crate) fn asks(each: &[Decision], at: usize, mode: impl Fn(usize) -> Mode) -> bool {
    let mut before = (0..at).rev();
    let mut own = mode(at);
    if own == Mode::Headroom {
        return false;
    }
    if own != Mode::Otherwise {
        let excuses = |at: usize| mode(at) == Mode::Once && !each[at].verdict.allows();
        return !before.next().is_some_and(excuses);
    }
    while own == Mode::Otherwise {
        let Some(at) = before.next() else {
            return true; // the first charge of a request
        };
        if each[at].verdict.allows() {
            return false;
        }
        own = mode(at);
    }
    true
}

/// Returns true if no enforcing chain denies, with all of its charges.
pub(crate) fn admits(each: &[Decision], mode: impl Fn(usize) -> Mode) -> bool {
    let (mut passes, mut others_pass) = (true, true);
    for (at, decision) in each.iter().enumerate() {
        let denies = !decision.verdict.allows();
        match mode(at) {
            Mode::Enforce => {
                others_pass = passes;
                passes &= !denies;
            }
            Mode::Shadow => others_pass = passes,
            Mode::Otherwise if at == 0 => passes = !denies,
            // After the first charge that allows, the others of a chain change nothing.
            Mode::Otherwise if !denies => passes = others_pass,
            Mode::Otherwise | Mode::Once | Mode::Headroom => {}
        }
    }
    passes
}

/// Denies a charge that was judged to be allowed, and with it the rest of its chain, which was not
/// judged, or the charge of which it is the condition.
pub(crate) fn deny_rest(
    each: &mut [Decision],
    at: usize,
    decision: Decision,
    mode: impl Fn(usize) -> Mode,
) {
    let condition_of = (mode(at) == Mode::Once && at + 1 < each.len()).then_some(at + 1);
    let rest = alternatives(each, at, mode);
    let end = rest.last().or(condition_of).unwrap_or(at);
    each[at..=end].fill(decision);
}

/// Returns the alternatives that follow the charge at an index.
fn alternatives(
    each: &[Decision],
    at: usize,
    mode: impl Fn(usize) -> Mode,
) -> impl Iterator<Item = usize> {
    (at + 1..each.len()).take_while(move |&next| mode(next) == Mode::Otherwise)
}
