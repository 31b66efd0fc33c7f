//! Given back: what came back to a state, for the receipts of charges that were made before.
//!
//! ```text
//!   charge a .. charge b .. give back a     b is paid sooner than its receipt says
//!   charge a .. charge b .. give back b     a is not: it was paid before b
//! ```
//!
//! A receipt states when time will have paid for its charge and for all charges before it. It is
//! paid sooner by what came back since of those before it: of charges `e` given back at `E`, those
//! with `e <= charge < E`. That is a sum of intervals, kept as steps over the order of charges:
//!
//! ```text
//!   sooner      +---+
//!           +---+   +---+
//!        ---+           +------> charges, in their order
//!           e1  e2  E1  E2
//! ```

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Nanos, Permits, Receipt, Time};

/// Maximum number of steps. Beyond, two become one, as high as the higher: charges in the lower may
/// get less back.
const MAX_STEPS: usize = 256;

/// What came back to one state, for as long as receipts may need it.
#[derive(Clone, Debug, Default)]
pub struct GivenBack {
    /// In the order of charges; the last begins with the last change. Before the first, nothing.
    steps: Vec<Step>,
    settled: Option<SettledCharges>,
}

/// The charges of which nothing can come back any more: time has paid for them, they came back, or
/// the state was forgotten.
#[derive(Clone, Copy, Debug)]
struct SettledCharges {
    before: ChargePlace,
    /// No receipt needs to know it afterwards.
    until: Time,
}

/// What came back since to charges from one place on, until the next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    from: ChargePlace,
    /// The highest of the steps that it was made of.
    permits: Permits,
    sooner: Nanos,
    /// The permits of the lowest.
    least: Permits,
    /// No receipt needs it afterwards.
    until: Time,
}

/// The place of a charge among those of a state.
///
/// Between two times that permits come back, each charge is paid later than those before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChargePlace {
    /// An even number for charges, an odd one between those for changes.
    mark: Option<NonZeroU64>,
    made: Time,
    paid: Time,
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
    /// How much sooner time pays for the state; `None` where it does not pay for charges in their order,
    /// as it does in a bucket.
    pub sooner: Option<Nanos>,
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

impl ChargePlace {
    /// Before all charges.
    const FIRST: Self = Self {
        mark: NonZeroU64::new(1),
        made: Time::ZERO,
        paid: Time::ZERO,
    };

    /// Returns the place of a charge; the first that it can have if it was made while permits came
    /// back.
    fn of(charge: &Receipt) -> Self {
        let is_exact = is_exact(charge);
        Self {
            mark: charge
                .mark
                .and_then(|mark| NonZeroU64::new(mark.get() & !1)),
            made: charge.made,
            paid: if is_exact { charge.paid } else { Time::ZERO },
        }
    }

    /// Returns the place behind all charges that were made before the change.
    fn behind(change: &StateChange) -> Self {
        Self {
            mark: NonZeroU64::new(change.number - 1),
            made: change.at,
            paid: Time::MAX,
        }
    }

    /// Returns true if it is the same as the `other`, or before it.
    fn is_until(&self, other: &Self) -> bool {
        match (self.mark, other.mark) {
            (Some(mark), Some(than)) => (mark, self.paid) <= (than, other.paid),
            _ => (self.made, self.paid) <= (other.made, other.paid),
        }
    }
}

/// Returns false if the charge was made while permits came back.
fn is_exact(charge: &Receipt) -> bool {
    charge.mark.is_none_or(|mark| mark.get() & 1 == 0)
}

impl Step {
    /// A step of nothing.
    const fn at(from: ChargePlace) -> Self {
        Self {
            from,
            permits: Permits::ZERO,
            sooner: Nanos::ZERO,
            least: Permits::ZERO,
            until: Time::ZERO,
        }
    }

    /// Raises it to the `other`.
    fn raise(&mut self, other: &Self) {
        self.permits = self.permits.max(other.permits);
        self.sooner = self.sooner.max(other.sooner);
        self.until = self.until.max(other.until);
    }
}

impl GivenBack {
    /// Adds to a receipt what came back since; returns false if the state was forgotten since.
    pub fn complete(&self, receipt: &mut Receipt) -> bool {
        let place = ChargePlace::of(receipt);
        let count = self.count_until(&place);
        let end = if is_exact(receipt) {
            count
        } else {
            self.steps.len()
        };
        let mut found = Step::at(place);
        let steps = self.steps.get(count.saturating_sub(1)..end);
        steps
            .into_iter()
            .flatten()
            .for_each(|step| found.raise(step));
        receipt.returned = receipt.returned + found.permits;
        receipt.sooner = receipt.sooner + found.sooner;
        !self.is_settled(&place)
    }

    /// Returns true if permits came back since the charge of the receipt, or it was forgotten.
    pub fn any_since(&self, receipt: &Receipt) -> bool {
        let place = ChargePlace::of(receipt);
        let last = self.steps.last();
        last.is_some_and(|last| !last.from.is_until(&place)) || self.is_settled(&place)
    }

    fn is_settled(&self, place: &ChargePlace) -> bool {
        self.settled
            .is_some_and(|settled| !settled.before.is_until(place))
    }

    /// Returns the number of steps that begin there or before.
    fn count_until(&self, place: &ChargePlace) -> usize {
        self.steps.partition_point(|step| step.from.is_until(place))
    }

    /// Adds a note.
    pub fn note(&mut self, note: GiveBackNote) {
        let change = note.change;
        self.forget(change.at);
        if note.sooner.is_some() {
            self.settle_paid(change.at);
        }
        let place = note.of.as_ref().map_or(ChargePlace::FIRST, ChargePlace::of);
        let first = self.begin_step(place);
        for step in self.steps.iter_mut().skip(first) {
            step.permits = step.permits + note.permits;
            step.least = step.least + note.permits;
            step.sooner = step.sooner + note.sooner.unwrap_or_default();
            step.until = step.until.max(change.until);
        }
        self.steps.push(Step::at(ChargePlace::behind(&change)));
        while self.steps.len() > MAX_STEPS {
            self.join_two();
        }
    }

    /// Lets a step begin there; returns its index.
    fn begin_step(&mut self, place: ChargePlace) -> usize {
        let count = self.count_until(&place);
        let before = count.checked_sub(1);
        if let Some(before) = before
            && self.steps[before].from == place
        {
            return before;
        }
        let nothing = Step::at(place);
        let before = before.map_or(nothing, |before| self.steps[before]);
        let step = Step {
            from: place,
            ..before
        };
        self.steps.insert(count, step);
        count
    }

    /// Notes that the state was forgotten.
    pub fn note_forgotten(&mut self, change: StateChange) {
        self.settle(self.steps.len(), ChargePlace::behind(&change), change.until);
    }

    /// Drops the first steps; the charges before that place are settled.
    fn settle(&mut self, steps: usize, before: ChargePlace, until: Time) {
        let noted = self.steps.iter().take(steps).map(|step| step.until);
        let noted = noted.chain(self.settled.map(|settled| settled.until));
        let until = noted.fold(until, Time::max);
        self.settled = Some(SettledCharges { before, until });
        self.drop_first(steps);
    }

    /// Settles the charges up to the last one that came back of which time has paid for all before.
    fn settle_paid(&mut self, now: Time) {
        // Of a charge that was made while permits came back, the place says too little.
        let is_paid = |step: &Step| {
            let paid = step.from.paid;
            paid > Time::ZERO && paid - step.sooner <= now
        };
        if let Some(at @ 1..) = self.steps.iter().rposition(is_paid) {
            self.settle(at, self.steps[at].from, now);
        }
    }

    /// Drops what no receipt needs any more.
    pub(crate) fn forget(&mut self, now: Time) {
        let past = self.steps.iter().take_while(|step| step.until <= now);
        self.drop_first(past.count());
        self.settled = self.settled.filter(|settled| settled.until > now);
    }

    /// Drops the first steps, and gives back the memory that is not half used.
    fn drop_first(&mut self, steps: usize) {
        self.steps.drain(..steps);
        let used = self.steps.len();
        if self.steps.capacity() > 2 * used.max(4) {
            self.steps.shrink_to(used);
        }
    }

    /// Makes one of two steps: those that make the flattest one. The last stays, which no change has
    /// raised yet. Returns false if there are too few.
    pub(crate) fn join_two(&mut self) -> bool {
        let joinable = self
            .steps
            .split_last()
            .map_or(&[][..], |(_, before)| before);
        let range = |pair: &[Step]| match pair {
            [a, b] => a.permits.max(b.permits) - a.least.min(b.least),
            _ => Permits::MAX,
        };
        let ranges = joinable.windows(2).map(range).enumerate();
        let Some((at, _)) = ranges.min_by_key(|(_, range)| *range) else {
            return false;
        };
        let after = self.steps.remove(at + 1);
        let step = &mut self.steps[at];
        step.raise(&after);
        step.least = step.least.min(after.least);
        true
    }

    /// Returns true if it knows of no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of steps and changes that it knows.
    pub(crate) fn len(&self) -> usize {
        self.steps.len() + usize::from(self.settled.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Nanos::from_secs(seconds)
    }

    /// A charge of ten seconds.
    fn charge(made: u64, paid: u64, mark: u64) -> Receipt {
        Receipt {
            made: at(made),
            paid: at(paid),
            returned: Permits::ZERO,
            sooner: Nanos::ZERO,
            mark: NonZeroU64::new(mark),
        }
    }

    /// It came back whole.
    fn note(of: Receipt, number: u64, now: u64) -> GiveBackNote {
        GiveBackNote {
            change: StateChange {
                number,
                at: at(now),
                until: at(1_000),
            },
            of: Some(of),
            permits: Permits::ONE,
            sooner: Some(Nanos::from_secs(10)),
        }
    }

    /// Its place is the first that it can have, before which nothing is known to be paid.
    #[test]
    fn a_charge_made_while_permits_came_back_settles_no_other() {
        let mut given_back = GivenBack::default();
        let mut open = charge(0, 10, 2);
        given_back.note(note(charge(0, 20, 2), 4, 0));
        given_back.note(note(charge(0, 20, 5), 6, 0));
        given_back.note(note(charge(0, 20, 6), 8, 1));
        assert!(given_back.complete(&mut open));
        assert_eq!(open.sooner, Nanos::ZERO, "the others were made after it");
    }

    #[test]
    fn memory_is_given_back_with_the_steps() {
        let mut given_back = GivenBack::default();
        let charges = (0..500).map(|number| charge(0, 10 * (number + 1), 2));
        for (number, of) in (0..).zip(charges.rev()) {
            given_back.note(note(of, 4 + 2 * number, 0));
        }
        let room = |given_back: &GivenBack| given_back.steps.capacity();
        assert!(given_back.len() <= MAX_STEPS && room(&given_back) <= 2 * MAX_STEPS);
        let mut late = note(charge(999, 1_010, 1_010), 1_012, 999);
        late.change.until = at(1_010);
        given_back.note(late);
        given_back.forget(at(1_000));
        assert_eq!(given_back.len(), 2, "of the late one");
        assert!(room(&given_back) <= 8, "{}", room(&given_back));
        given_back.forget(at(1_010));
        assert!(given_back.is_empty());
    }
}
