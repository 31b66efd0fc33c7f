//! Given back: what came back to a state, for the receipts of charges that were made before.
//!
//! ```text
//!   charge a .. charge b .. give back a --> note    b is paid sooner than its receipt says
//!   charge a .. charge b .. give back b --> note    a is not: it was paid before b
//! ```
//!
//! A receipt states when time will have paid for its charge and for all charges before it. It is
//! paid sooner by what came back since of those before it.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Nanos, Permits, Receipt, Time};

/// Maximum number of notes. Beyond, two become one: then a charge between them gets less back.
pub(crate) const MAX_NOTES: usize = 32;

/// Notes of what came back to one state, for as long as receipts may need them.
#[derive(Clone, Debug, Default)]
pub struct GivenBack(Vec<GiveBackNote>);

/// Permits that came back at once.
#[derive(Clone, Copy, Debug)]
pub struct GiveBackNote {
    /// Number of the [`Marks`] after it.
    pub number: u64,
    /// The moment.
    pub at: Time,
    /// The receipt of their charge; `None` if they were of no single charge.
    pub of: Option<Receipt>,
    /// Their number; [`Permits::MAX`] if the state was forgotten.
    pub permits: Permits,
    /// How much sooner time pays for the state.
    pub sooner: Nanos,
    /// The moment at which time would have paid for the state: no receipt needs the note afterwards.
    pub until: Time,
}

/// Numbers the times that permits come back, to tell which were after a charge.
///
/// The number is even, and odd while permits come back without a lock. A charge that was made
/// while it changed has an odd mark: whether it was before or after is not known.
#[derive(Debug)]
pub struct Marks(AtomicU64);

impl Default for Marks {
    fn default() -> Self {
        Self(AtomicU64::new(2)) // no mark is zero
    }
}

impl Marks {
    /// Returns the number; it is read before a charge.
    #[inline]
    pub fn before(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the mark of a charge that was made since `before` was read.
    #[inline]
    pub fn mark(&self, before: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(before | u64::from(self.before() != before))
    }

    /// Notes that permits begin to come back.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that they have come back; returns the number.
    pub fn end(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Notes that permits came back under the lock of their charge; returns the number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(2, Ordering::AcqRel) + 2
    }
}

impl GiveBackNote {
    /// Returns the note that a state which `owed` time was forgotten.
    pub fn forgotten(number: u64, at: Time, owed: Nanos) -> Self {
        Self {
            number,
            at,
            of: None,
            permits: Permits::MAX,
            sooner: Nanos::MAX,
            until: at + owed,
        }
    }

    /// Returns true if the permits came back after the charge of the receipt.
    fn is_since(&self, receipt: &Receipt) -> bool {
        match receipt.mark {
            Some(mark) => self.number > mark.get() & !1,
            None => self.at >= receipt.made,
        }
    }

    /// Returns the note of both.
    fn join(self, later: Self) -> Self {
        let first = |a: Receipt, b: Receipt| if is_after(&a, &b) { b } else { a };
        Self {
            of: self.of.zip(later.of).map(|(a, b)| first(a, b)),
            permits: self.permits + later.permits,
            sooner: self.sooner + later.sooner,
            until: self.until.max(later.until),
            ..later
        }
    }
}

/// Returns true if the charge was certainly made after the `other`.
fn is_after(charge: &Receipt, other: &Receipt) -> bool {
    let is_exact = |mark: u64| mark & 1 == 0;
    match (charge.mark, other.mark) {
        // Between two times that permits come back, each charge is paid later than those before.
        (Some(mark), Some(than)) => {
            is_exact(mark.get()) && is_exact(than.get()) && (mark, charge.paid) > (than, other.paid)
        }
        _ => (charge.made, charge.paid) > (other.made, other.paid),
    }
}

impl GivenBack {
    /// Adds to a receipt what came back since; returns false if the state was forgotten since.
    pub fn complete(&self, receipt: &mut Receipt) -> bool {
        let charged = *receipt;
        for note in self.0.iter().filter(|note| note.is_since(&charged)) {
            if note.of.is_none_or(|of| !is_after(&of, &charged)) {
                receipt.returned = receipt.returned + note.permits;
                receipt.sooner = receipt.sooner + note.sooner;
            }
        }
        receipt.returned < Permits::MAX
    }

    /// Returns true if permits came back since the charge of the receipt, or it was forgotten.
    pub fn any_since(&self, receipt: &Receipt) -> bool {
        self.0.iter().any(|note| note.is_since(receipt))
    }

    /// Adds a note.
    pub fn note(&mut self, note: GiveBackNote) {
        let is_forgotten = note.permits == Permits::MAX;
        self.0
            .retain(|earlier| !is_forgotten && earlier.until > note.at);
        if self.0.len() >= MAX_NOTES {
            // Those that are closest for their age, because most charges come back soon. Not the
            // first: before it, the state may have been forgotten.
            let gap = |at: &usize| {
                let [before, later] = [at - 1, at + 1].map(|at| self.0[at].at);
                let age = note.at.since(later).as_nanos();
                later.since(before).as_nanos() / (age / 1_024 + 1)
            };
            let closest = (1..self.0.len() - 1).min_by_key(gap).unwrap_or(1);
            let earlier = self.0.remove(closest);
            self.0[closest] = earlier.join(self.0[closest]);
        }
        self.0.push(note);
    }

    /// Returns true while a receipt may need a note.
    pub(crate) fn is_needed(&self, now: Time) -> bool {
        self.0.iter().any(|note| note.until > now)
    }
}
