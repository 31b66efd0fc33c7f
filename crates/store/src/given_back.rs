//! Given back: what came back to a state, for the receipts of charges that were made before.
//!
//! ```text
//!   charge a .. charge b .. give back a --> note    b is paid sooner than its receipt says
//!   charge a .. charge b .. give back b --> note    a is not: it was paid before b
//! ```
//!
//! A receipt states when time will have paid for its charge and for all charges before it. It is
//! paid sooner by what came back since of those before it.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Nanos, Permits, Receipt, Time};

/// Maximum number of notes. Beyond, two of the oldest become one: then a charge that was open while
/// more came back may get less back.
const MAX_NOTES: usize = 256;
/// Number of the oldest, of which two become one.
const OLDEST: usize = 32;

/// Notes of what came back to one state, for as long as receipts may need them.
#[derive(Clone, Debug, Default)]
pub struct GivenBack {
    /// Oldest first.
    notes: VecDeque<GiveBackNote>,
    /// When the state was last forgotten.
    forgotten: Option<StateChange>,
}

/// A change of a state that makes it owe less.
#[derive(Clone, Copy, Debug)]
pub struct StateChange {
    /// Number of the [`Marks`] after it.
    pub number: u64,
    /// The moment.
    pub at: Time,
    /// The moment at which time would have paid for the state: no receipt needs to know of the change
    /// afterwards.
    pub until: Time,
}

/// Permits that came back at once.
#[derive(Clone, Copy, Debug)]
pub struct GiveBackNote {
    /// When.
    pub change: StateChange,
    /// The receipt of their charge; `None` if they were of no single charge.
    pub of: Option<Receipt>,
    /// Their number.
    pub permits: Permits,
    /// How much sooner time pays for the state.
    pub sooner: Nanos,
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
    /// Returns the number: the mark of a charge under whose lock it is read.
    #[inline]
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the mark of a charge without a lock, which was made since `before` was the number.
    #[inline]
    pub fn mark(&self, before: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(before | u64::from(self.last() != before))
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

impl StateChange {
    /// Returns true if it came after the charge.
    fn is_since(&self, charge: &Receipt) -> bool {
        match charge.mark {
            Some(mark) => self.number > mark.get() & !1,
            None => self.at >= charge.made,
        }
    }
}

impl GiveBackNote {
    /// Returns the note of both, as of the earlier charge.
    fn join(self, later: Self) -> Self {
        let first = |a: Receipt, b: Receipt| if is_after(&a, &b) { b } else { a };
        Self {
            change: StateChange {
                until: self.change.until.max(later.change.until),
                ..later.change
            },
            of: self.of.zip(later.of).map(|(a, b)| first(a, b)),
            permits: self.permits + later.permits,
            sooner: self.sooner + later.sooner,
        }
    }
}

/// Returns true if the charge was made after the `other`.
fn is_after(charge: &Receipt, other: &Receipt) -> bool {
    let is_exact = |mark: NonZeroU64| mark.get() & 1 == 0;
    match (charge.mark, other.mark) {
        // Between two times that permits come back, each charge is paid later than those before.
        (Some(mark), Some(than)) if is_exact(mark) && is_exact(than) => {
            (mark, charge.paid) > (than, other.paid)
        }
        (Some(_), Some(_)) => charge.made >= other.made && charge.paid > other.paid,
        _ => (charge.made, charge.paid) > (other.made, other.paid),
    }
}

impl GivenBack {
    /// Adds to a receipt what came back since; returns false if the state was forgotten since.
    pub fn complete(&self, receipt: &mut Receipt) -> bool {
        let charged = *receipt;
        for note in self.since(&charged) {
            if note.of.is_none_or(|of| !is_after(&of, &charged)) {
                receipt.returned = receipt.returned + note.permits;
                receipt.sooner = receipt.sooner + note.sooner;
            }
        }
        !self.was_forgotten_since(&charged)
    }

    /// Returns true if permits came back since the charge of the receipt, or it was forgotten.
    pub fn any_since(&self, receipt: &Receipt) -> bool {
        self.since(receipt).next().is_some() || self.was_forgotten_since(receipt)
    }

    fn since(&self, receipt: &Receipt) -> impl Iterator<Item = &GiveBackNote> {
        let newest_first = self.notes.iter().rev();
        newest_first.take_while(|note| note.change.is_since(receipt))
    }

    fn was_forgotten_since(&self, receipt: &Receipt) -> bool {
        self.forgotten
            .is_some_and(|change| change.is_since(receipt))
    }

    /// Adds a note.
    pub fn note(&mut self, note: GiveBackNote) {
        self.forget(note.change.at);
        if self.notes.len() >= MAX_NOTES {
            self.join_two(note.change.at);
        }
        self.notes.push_back(note);
    }

    /// Notes that the state was forgotten.
    pub fn note_forgotten(&mut self, change: StateChange) {
        self.notes.clear();
        self.forgotten = Some(change);
    }

    /// Drops what no receipt needs any more.
    pub(crate) fn forget(&mut self, now: Time) {
        while self
            .notes
            .front()
            .is_some_and(|note| note.change.until <= now)
        {
            self.notes.pop_front();
        }
        self.forgotten = self.forgotten.filter(|change| change.until > now);
    }

    /// Makes one of two of the oldest notes: those that are closest for their age, because most
    /// charges come back soon. Returns false if there are too few.
    pub(crate) fn join_two(&mut self, now: Time) -> bool {
        let gap = |at: &usize| {
            let [before, later] = [at - 1, at + 1].map(|at| self.notes[at].change.at);
            let age = now.since(later).as_nanos();
            later.since(before).as_nanos() / (age / 1_024 + 1)
        };
        let oldest = self.notes.len().min(OLDEST);
        let closest = (1..oldest.saturating_sub(1)).min_by_key(gap);
        let Some(at) = closest else { return false };
        if let Some(earlier) = self.notes.remove(at) {
            self.notes[at] = earlier.join(self.notes[at]);
        }
        true
    }

    /// Returns the number of changes that it knows.
    pub(crate) fn len(&self) -> usize {
        self.notes.len() + usize::from(self.forgotten.is_some())
    }
}
