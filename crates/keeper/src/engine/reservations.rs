//! Reservations: charges that wait for a report, by limit.
//!
//! ```text
//!   decision |<------------ report_within ------------>| end
//!            |                                         |
//!            '--> + units in the slot of the end       '--> the slot is over: its rest
//!                          report --> - units in it         has expired
//! ```
//!
//! A limit has a ring of slots, each a 64th of its `report_within` long, in place of a list of its
//! reservations: 2 KiB, however many there are. A slot is over when its whole time is, so an expired
//! reservation is counted up to a 64th of `report_within` late.
//!
//! A report may reach another process than the decision did. Its units are subtracted in the slot
//! where the other process has added them, because the store knows when the record of the decision
//! ends. So the levels of one process mean nothing then, and may be negative; their sum over all
//! processes is exact, and so is the number of expired ones less those settled elsewhere. A report
//! within milliseconds of the border of two slots may be subtracted in the wrong one, which changes
//! neither sum.

use std::collections::HashMap;

use ratekeeper_core::{LimitId, Nanos, Permits, Time};
use ratekeeper_policy::{Corrected, Policy, Report};
use ratekeeper_store::Lock;

use super::decision_id::{MadeCharge, corrected_entries};
use crate::Answer;

/// Number of slots in the time of a report.
const PARTS: u64 = 64;
/// These, the one that is not over yet, and one for a moment that a store rounds up.
const SLOTS: usize = 66;

/// The charges of a keeper that wait for a report.
///
/// ```
/// use ratekeeper::core::LeaseId;
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Clock as _, Keeper, Report, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name   = "tokens"
///     key    = ["all"]
///     bucket = { size = 1000, refill = "10/1s" }
///     cost   = { reserve = "attr:max_tokens" }
///     "#,
/// )?;
/// let facts = Facts { attributes: &[("max_tokens", "400")], ..Facts::default() };
/// let nonce = LeaseId::from_bytes([7; 16]); // to be random
/// let answer = at_once(keeper.check_for_report(&facts, Scope::All, || Some(nonce))).unwrap();
/// let limit = keeper.policy().rules[0].limit.id;
/// let counts = || keeper.reservations().counts(limit, keeper.clock().now()).unwrap();
/// assert_eq!(counts().units, 400);
/// let report = Report::default().cost(663);
/// at_once(keeper.report(answer.decision().unwrap(), &report)).unwrap();
/// assert_eq!((counts().units, counts().over_reserve), (0, 1));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Debug, Default)]
pub struct Reservations(Lock<HashMap<LimitId, SlotRing>>);

/// The reservations of a limit: those that wait, and how others ended.
///
/// ```
/// use ratekeeper::ReservationCounts;
/// assert_eq!(ReservationCounts::default().units, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ReservationCounts {
    /// Units that wait for a report; below zero where others reserved more of those reported here.
    pub units: i64,
    /// Number of charges that were reported in time.
    pub ok: u64,
    /// Those among the reported ones whose actual cost is higher than the reserved one.
    pub over_reserve: u64,
    /// Number of charges that were reported after their time.
    pub late: u64,
    /// Number of charges whose time ended without a report to this keeper.
    pub expired: u64,
    /// Number of charges reported to this keeper that are expired to another one.
    pub elsewhere: u64,
}

impl ReservationCounts {
    /// Adds the reservations of another limit.
    pub fn add(&mut self, other: &Self) {
        self.units = self.units.saturating_add(other.units);
        self.ok += other.ok;
        self.over_reserve += other.over_reserve;
        self.late += other.late;
        self.expired += other.expired;
        self.elsewhere += other.elsewhere;
    }
}

/// Reservations of a limit that have expired.
///
/// ```
/// use ratekeeper::{ExpiredReservations, Reservations};
/// use ratekeeper::core::Time;
/// let none: Vec<ExpiredReservations> = Reservations::default().take_expired(Time::ZERO);
/// assert!(none.is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ExpiredReservations {
    /// The limit.
    pub limit: LimitId,
    /// Number of charges.
    pub count: u64,
    /// Their units.
    pub units: u64,
}

#[derive(Debug)]
struct SlotRing {
    width: Nanos,
    /// Slot `n` is at `n % SLOTS`.
    slots: [Slot; SLOTS],
    /// Without the units.
    ended: ReservationCounts,
    /// Charges that have expired since they were last taken, and their units.
    fresh: Slot,
}

/// Sums of charges, which are signed because other keepers may have the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    units: i64,
    count: i64,
}

impl Reservations {
    /// Makes room for the limits of `policy` that reports correct, and closes the reservations of
    /// those with another time for a report: their records have other names now.
    pub(crate) fn install(&self, policy: &Policy) {
        let mut rings = self.0.lock();
        let mut old = std::mem::take(&mut *rings);
        for rule in &policy.rules {
            let Some(correction) = rule.correction.as_deref() else {
                continue;
            };
            let width = Nanos::from_nanos(correction.within.as_nanos().div_ceil(PARTS).max(1));
            let ring = match old.remove(&rule.limit.id) {
                Some(mut ring) if ring.width != width => {
                    ring.close_all();
                    SlotRing { width, ..ring }
                }
                Some(ring) => ring,
                None => SlotRing::new(width),
            };
            rings.insert(rule.limit.id, ring);
        }
    }

    /// Returns the reservations of a limit; `None` if no report corrects it.
    pub fn counts(&self, limit: LimitId, now: Time) -> Option<ReservationCounts> {
        let mut rings = self.0.lock();
        let ring = rings.get_mut(&limit)?;
        ring.close_over(now);
        let units = ring.slots.iter().map(|slot| slot.units);
        let units = units.fold(0, i64::saturating_add);
        Some(ReservationCounts {
            units,
            ..ring.ended
        })
    }

    /// Returns the reservations that have expired since the last call, one entry for each limit.
    pub fn take_expired(&self, now: Time) -> Vec<ExpiredReservations> {
        let mut rings = self.0.lock();
        let each = rings.iter_mut().filter_map(|(limit, ring)| {
            ring.close_over(now);
            let fresh = std::mem::take(&mut ring.fresh);
            (fresh.count > 0).then_some(ExpiredReservations {
                limit: *limit,
                count: fresh.count.unsigned_abs(),
                units: u64::try_from(fresh.units).unwrap_or(0),
            })
        });
        each.collect()
    }

    /// Notes the charges of an answer, which wait for a report from now on.
    pub(crate) fn begin(&self, answer: &mut Answer) {
        answer.is_reserved = self.add(answer, 1);
    }

    /// Forgets the charges of an answer, which were given back.
    pub(crate) fn withdraw(&self, answer: &Answer) {
        if answer.is_reserved {
            self.add(answer, -1);
        }
    }

    /// Adds each charge of an answer `count` times. Returns true if the answer has charges that a
    /// report corrects.
    fn add(&self, answer: &Answer, count: i64) -> bool {
        let Some(end) = answer.reported_until() else {
            return false;
        };
        let now = answer.decided_at();
        let mut rings = self.0.lock();
        for (at, entry, rule) in corrected_entries(&answer.policy, &answer.charges) {
            let units = entry.cost;
            if let Some(ring) = rings.get_mut(&rule.limit.id).filter(|_| answer.makes(at)) {
                ring.add(Reserved { units, end }, now, count);
            }
        }
        true
    }

    /// Notes a report about charges that end at `end`.
    pub(crate) fn settle(
        &self,
        policy: &Policy,
        made: &[MadeCharge],
        report: &Report,
        end: Time,
        now: Time,
    ) {
        let mut rings = self.0.lock();
        for charge in made.iter().filter(|charge| charge.is_made) {
            let (name, units) = (charge.rule(), charge.cost);
            let rule = policy.rule(name);
            let Some((rule, correction)) =
                rule.and_then(|it| Some((it, it.correction.as_deref()?)))
            else {
                continue;
            };
            let used = match correction.correct(name, units, report) {
                Corrected::Cost(used) => used,
                Corrected::Reset => units,
            };
            if let Some(ring) = rings.get_mut(&rule.limit.id) {
                ring.settle(Reserved { units, end }, used, now);
            }
        }
    }

    /// Notes a report that corrects nothing, because the time of the charges is over.
    pub(crate) fn late(&self, policy: &Policy, made: &[MadeCharge]) {
        let mut rings = self.0.lock();
        for charge in made.iter().filter(|charge| charge.is_made) {
            let rule = policy.rule(charge.rule());
            if let Some(ring) = rule.and_then(|rule| rings.get_mut(&rule.limit.id)) {
                ring.ended.late += 1;
            }
        }
    }
}

/// A charge and the end of its time.
#[derive(Clone, Copy)]
struct Reserved {
    units: Permits,
    end: Time,
}

impl SlotRing {
    fn new(width: Nanos) -> Self {
        Self {
            width,
            slots: [Slot::default(); SLOTS],
            ended: ReservationCounts::default(),
            fresh: Slot::default(),
        }
    }

    /// Adds a charge `count` times, unless its time is over.
    fn add(&mut self, reserved: Reserved, now: Time, count: i64) {
        if let Some(slot) = self.slot(reserved.end, now) {
            slot.add(reserved.units.get(), count);
        }
    }

    fn settle(&mut self, reserved: Reserved, used: Permits, now: Time) {
        let Some(slot) = self.slot(reserved.end, now) else {
            self.ended.late += 1;
            return;
        };
        slot.add(reserved.units.get(), -1);
        if used > reserved.units {
            self.ended.over_reserve += 1;
        } else {
            self.ended.ok += 1;
        }
    }

    /// Returns the slot in which a moment lies; `None` if it is over.
    fn slot(&mut self, end: Time, now: Time) -> Option<&mut Slot> {
        // A clock that was set back may show more than the whole time.
        let last = now.as_nanos() / self.width.as_nanos() + PARTS + 1;
        let number = (end.as_nanos() / self.width.as_nanos()).min(last);
        if self.is_over(number, now) {
            return None;
        }
        let place = usize::try_from(number).unwrap_or(usize::MAX) % SLOTS;
        if self.slots[place].number != number {
            self.close(place); // an earlier one, which is over
            self.slots[place].number = number;
        }
        self.slots.get_mut(place)
    }

    fn is_over(&self, number: u64, now: Time) -> bool {
        now.as_nanos() / self.width.as_nanos() > number
    }

    fn close_over(&mut self, now: Time) {
        for place in 0..SLOTS {
            if self.is_over(self.slots[place].number, now) {
                self.close(place);
            }
        }
    }

    fn close_all(&mut self) {
        (0..SLOTS).for_each(|place| self.close(place));
    }

    fn close(&mut self, place: usize) {
        let Slot { units, count, .. } = std::mem::take(&mut self.slots[place]);
        if count > 0 {
            self.ended.expired += count.unsigned_abs();
            self.fresh.count += count;
            self.fresh.units = self.fresh.units.saturating_add(units);
        } else {
            self.ended.elsewhere += count.unsigned_abs();
        }
    }
}

impl Slot {
    /// Adds charges; `count` may be negative, and so are their units then.
    fn add(&mut self, units: u64, count: i64) {
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        self.units = self.units.saturating_add(units.saturating_mul(count));
        self.count += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: u64 = 128;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Nanos::from_secs(seconds)
    }

    fn ring() -> SlotRing {
        SlotRing::new(Nanos::from_secs(WITHIN / PARTS))
    }

    /// A charge that was made at that second.
    fn made(units: u64, second: u64) -> Reserved {
        let (units, end) = (Permits::new(units), at(second + WITHIN));
        Reserved { units, end }
    }

    fn open(ring: &SlotRing) -> i64 {
        ring.slots.iter().map(|slot| slot.units).sum()
    }

    #[test]
    fn a_reservation_is_settled_in_its_slot_or_expires_in_it() {
        let mut ring = ring();
        for second in 0..1_000 {
            ring.add(made(10, second), at(second), 1);
            if second % 4 > 0 {
                let wait = second % 128;
                let used = Permits::new(if second % 4 > 2 { 11 } else { 10 });
                ring.settle(made(10, second), used, at(second + wait));
            }
        }
        ring.close_over(at(999));
        let waiting = (0..1_000).filter(|second| second % 4 == 0 && (second + WITHIN) / 2 >= 499);
        assert_eq!(open(&ring), 10 * i64::try_from(waiting.count()).unwrap());
        ring.close_over(at(2_000));
        let ended = ring.ended;
        assert_eq!((ended.ok, ended.over_reserve), (500, 250));
        assert_eq!((ended.expired, ended.late, ended.elsewhere), (250, 0, 0));
        assert_eq!(
            (ring.fresh.count, ring.fresh.units, open(&ring)),
            (250, 2_500, 0)
        );
    }

    #[test]
    fn what_is_reported_elsewhere_is_right_in_the_sum() {
        let (mut here, mut there) = (ring(), ring());
        for second in 0..300 {
            here.add(made(7, second), at(second), 1);
            if second % 3 > 0 {
                // The store may be off by a moment, and the clock of the process too.
                let made = made(7, second + second % 2);
                there.settle(made, made.units, at(second + 60));
            }
        }
        let open_both = open(&here) + open(&there);
        assert!(open(&there) < 0 && open_both > 0, "{open_both}");
        for ring in [&mut here, &mut there] {
            ring.close_over(at(1_000));
        }
        assert_eq!(there.ended.ok, 200);
        let expired = here.ended.expired + there.ended.expired;
        assert_eq!(expired - here.ended.elsewhere - there.ended.elsewhere, 100);
    }

    #[test]
    fn reports_after_the_slot_are_late_and_strange_moments_are_bounded() {
        let mut ring = ring();
        ring.add(made(1, 0), at(0), 1);
        ring.settle(made(1, 0), Permits::ONE, at(200));
        ring.close_over(at(200));
        assert_eq!((ring.ended.late, ring.ended.expired), (1, 1));
        ring.add(made(1, 1_000_000), at(200), 1); // the clock was set back
        ring.add(made(1, 1_000_000), at(200), -1);
        assert_eq!(open(&ring), 0);
        ring.add(made(u64::MAX, 200), at(200), 1);
        ring.add(made(u64::MAX, 200), at(200), 1);
        ring.close_all();
        assert_eq!((ring.ended.expired, ring.ended.elsewhere), (3, 0));
    }
}
