//! Reporting: requests that are charged when they are judged, and corrected when their result is
//! known.
//!
//! ```text
//!   check_for_report --> limits charged: all or none --> a record made --> answer with an id
//!                                     |
//!   report(id) --> its record: open? -+-> yes: closed, then all charges corrected in one act
//!                                     |-> closed before:  nothing changes
//!                                     '-> none (expired, forged): nothing changes
//! ```
//!
//! * The record is a key of a hidden limit, which keeps its charges for as long as a report may
//!   come. The decision charges one permit and the report two, so the answer to the second charge
//!   shows which of the three cases it is.
//! * A crash before the record is made, or between closing and correcting, leaves the charges as
//!   they are: less is admitted.

use ratekeeper_core::{Charge, Key, LeaseId, Limit, Mode, Outage, Permits, Receipt, Time, Verdict};
use ratekeeper_policy::{Corrected, Correction, Facts, Policy, Report};
#[cfg(feature = "tower")]
use ratekeeper_policy::{CostSource, Rule};
use ratekeeper_store::{ActualCost, ChargeOrigin, Settled, Store, StoreError};
use smallvec::SmallVec;

use super::decision_id::{MadeCharge, corrected_entries, refilled_in};
use crate::{Answer, Clock, DecisionId, Keeper, Outcome, Reservations, Scope};

/// The effect of a report.
///
/// ```
/// use ratekeeper::core::LeaseId;
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Keeper, Report, Reported, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "logins"
///     key   = ["all"]
///     limit = "2/1h"
///     count = { status = [401] }
///     "#,
/// )?;
/// let nonce = LeaseId::from_bytes([7; 16]); // to be random
/// let facts = Facts::default();
/// let asking = keeper.check_for_report(&facts, Scope::All, || Some(nonce));
/// let answer = at_once(asking).unwrap();
/// let id = answer.decision().expect("the limit is corrected by reports");
/// let served = Report::default().status(200);
/// assert_eq!(at_once(keeper.report(id, &served)), Ok(Reported::Corrected));
/// assert_eq!(at_once(keeper.report(id, &served)), Ok(Reported::Repeated));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reported {
    /// The charges are corrected.
    Corrected,
    /// Nothing: an earlier report has corrected them.
    Repeated,
    /// Nothing: the time for a report is over, or the id is not that of a decision.
    NotOpen,
}

impl Answer {
    /// Returns the id by which a report corrects the charges, for
    /// [`Keeper::report`]; `None` if the request was not checked for a report, if it
    /// was refused, if no report corrects its limits, or if the store could not keep a record.
    pub fn decision(&self) -> Option<&DecisionId> {
        self.open.as_deref()
    }

    /// Returns the end of the time in which a report corrects its charges; `None` if no report does,
    /// or if the request is refused.
    pub(crate) fn reported_until(&self) -> Option<Time> {
        if !self.allowed() || !self.policy.rules.are_corrected() {
            return None;
        }
        let entries = corrected_entries(&self.policy, &self.charges);
        let times = entries.filter_map(|(_, _, rule)| Some(rule.correction.as_deref()?.within));
        Some(self.decided_at() + times.min()?)
    }

    /// Returns where and when the charges were made; `None` if there are none.
    pub(crate) fn origin(&self) -> Option<ChargeOrigin> {
        self.decisions.origin(0)
    }

    /// Returns where and when the charge of an outcome was made, so that it can be settled.
    pub fn origin_of(&self, outcome: &Outcome<'_>) -> Option<ChargeOrigin> {
        let reset_after = outcome.decision.reset_after + self.held;
        Some(self.origin()?.paid_after(reset_after))
    }

    /// Returns the charges that a report may correct; an empty list if the request is refused.
    pub(crate) fn corrected_charges(&self) -> Vec<MadeCharge> {
        self.corrected().map(|(charge, _)| charge).collect()
    }

    fn corrected(&self) -> impl Iterator<Item = (MadeCharge, &Correction)> {
        let is_corrected = self.allowed() && self.policy.rules.are_corrected();
        let entries = is_corrected.then(|| corrected_entries(&self.policy, &self.charges));
        let entries = entries.into_iter().flatten();
        entries.filter_map(|(index, entry, rule)| {
            let limit = self.charges.limit(entry, rule);
            let paid_after = self.decisions.each.get(index)?.reset_after;
            let charge = MadeCharge {
                limit: (&*limit.name).into(),
                key: self.charges.key(entry).as_bytes().into(),
                cost: entry.cost,
                is_made: self.makes(index),
                paid_after,
                owed: refilled_in(paid_after, limit),
            };
            Some((charge, rule.correction.as_deref()?))
        })
    }
}

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Like [`check`](Self::check); if reports correct a limit of the request, the answer has a
    /// [decision id](Answer::decision). `nonce` returns a random number, so that no other client
    /// knows the id. It is called once if reports correct a charge of the request, and not
    /// otherwise; without a number, the charges are made, and no report corrects them. The answer
    /// is boxed, because it is large and a service passes it on.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn check_for_report(
        &self,
        facts: &Facts<'_>,
        scope: Scope<'_>,
        nonce: impl FnOnce() -> Option<LeaseId>,
    ) -> Result<Box<Answer>, StoreError> {
        let mut answer = Box::write(Box::new_uninit(), self.unasked()); // not moved there
        self.check_into(&mut answer, facts, scope).await?;
        self.await_report(&mut answer, nonce).await;
        Ok(answer)
    }

    /// Makes a record of the charges that a report may correct, and gives the answer its id. The
    /// record is made after the charges, so that its key covers all that their decisions have told.
    /// Without a record the charges stay.
    pub(crate) async fn await_report(
        &self,
        answer: &mut Answer,
        nonce: impl FnOnce() -> Option<LeaseId>,
    ) {
        let Some(ChargeOrigin::Store(receipt)) = answer.origin() else {
            return;
        };
        let opened = DecisionId::new(answer.corrected(), receipt.made, nonce);
        let Some((id, correction)) = opened else {
            return;
        };
        let mut key = Vec::new();
        id.put_record_key(&mut key);
        let record = [record(&correction.record, &key)];
        let kept = self.store().decide(&record, answer.decided_at()).await;
        if kept.is_ok_and(|kept| kept.each.iter().all(|record| record.verdict.allows())) {
            answer.open = Some(Box::new(id));
            self.reservations().begin(answer);
        }
    }

    /// Returns the charges that wait for a report.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Notes that all charges of an answer were given back, because its request is not served after
    /// all: they are no [reservations](Self::reservations) any more.
    pub fn withdraw(&self, answer: &Answer) {
        self.reservations().withdraw(answer);
    }

    /// Corrects the charges of a decision, once, as the limits of the current policy say. Costs for
    /// other limits are ignored. Limits that the policy has no more keep their charges.
    ///
    /// # Errors
    /// When the store cannot answer. The charges stay then, and a further report may be
    /// [`Repeated`](Reported::Repeated).
    pub async fn report(&self, id: &DecisionId, report: &Report) -> Result<Reported, StoreError> {
        let (policy, now) = (self.policy(), self.clock().now());
        let mut corrections = policy.rules.iter().filter_map(|it| it.correction.as_ref());
        let Some(correction) = corrections.find(|it| it.within == id.within()) else {
            return Ok(Reported::NotOpen); // a reload has changed the time, or the id is made up
        };
        // A record cannot be closed without the store that holds it.
        let limit = Limit {
            outage: Outage::Error,
            ..correction.record.clone()
        };
        let mut key = Vec::new();
        id.put_record_key(&mut key);
        let closing = Charge::enforced(&limit, Key::from_bytes(&key), Correction::REPORTED);
        let decisions = self.store().decide(&[closing], now).await?;
        let Some(closed) = decisions.each.first() else {
            return Ok(Reported::NotOpen);
        };
        if closed.verdict != Verdict::Allow {
            return Ok(Reported::Repeated);
        }
        let unused = Correction::RECORD - Correction::REPORTED;
        if closed.remaining == unused - Correction::RECORDED {
            let origin = ChargeOrigin::Store(Receipt::of(closed, id.made));
            // The record ends with the time of the reservation, also by the clock of a store.
            let end = now + closed.reset_after;
            self.correct(&id.charges, origin, report, Some(end)).await?;
            return Ok(Reported::Corrected);
        }
        // Leaves the record as it was, and no trace of an id without one.
        self.store().refund(&[closing], now).await?;
        if closed.remaining != unused {
            return Ok(Reported::Repeated);
        }
        // Without a record before its end, an id is made up.
        if decisions.made >= id.made + id.within() {
            self.reservations().late(&policy, &id.charges);
        }
        Ok(Reported::NotOpen)
    }

    /// Corrects the charges of an answer, for callers that hold it until the result is known: this
    /// needs no record. To be called once.
    ///
    /// # Errors
    /// When the store cannot answer. The charges stay then.
    pub async fn settle(&self, answer: &Answer, report: &Report) -> Result<(), StoreError> {
        let made = answer.corrected_charges();
        let Some(origin) = answer.origin() else {
            return Ok(()); // nothing was charged
        };
        let end = answer.reported_until().filter(|_| answer.is_reserved);
        self.correct(&made, origin, report, end).await
    }

    /// Corrects charges of one request in one act, as the limits of the current policy say. `end`
    /// is the end of their reservation, if they are reserved.
    pub(crate) async fn correct(
        &self,
        made: &[MadeCharge],
        origin: ChargeOrigin,
        report: &Report,
        end: Option<Time>,
    ) -> Result<(), StoreError> {
        let (policy, now) = (self.policy(), self.clock().now());
        let unix_nanos = self.wall_origin().unix_nanos(now);
        let settled = made.iter().filter(|charge| charge.is_made);
        let settled = settled.filter_map(|charge| {
            let limit = policy.limit_of(&charge.limit, charge.key(), unix_nanos)?;
            settled_by(&policy, limit, charge, made, origin, report)
        });
        let settled: SmallVec<[Settled<'_>; 4]> = settled.collect();
        if !settled.is_empty() {
            self.store().correct(&settled, now).await?;
        }
        if let Some(end) = end {
            self.reservations().settle(&policy, made, report, end, now);
        }
        Ok(())
    }
}

/// Returns the rule of a charge, and the place of its actual cost in the response; `None` if it was
/// not made, or if no response settles it.
#[cfg(feature = "tower")]
pub(crate) fn settled_by_response<'p>(
    policy: &'p Policy,
    charge: &MadeCharge,
) -> Option<(&'p Rule, &'p CostSource)> {
    let rule = policy.rule(charge.rule()).filter(|_| charge.is_made)?;
    let place = rule.correction.as_deref()?.settle.as_ref()?;
    Some((rule, place))
}

/// Like [`settled_by_response`]; `None` also if the result gives the charge back, or if the report
/// has the cost.
#[cfg(feature = "tower")]
pub(crate) fn stated_cost<'p>(
    policy: &'p Policy,
    charge: &MadeCharge,
    report: &Report,
) -> Option<(&'p Rule, &'p CostSource)> {
    let (rule, place) = settled_by_response(policy, charge)?;
    let correction = rule.correction.as_deref()?;
    let corrected = correction.correct(charge.rule(), charge.cost, report);
    let stays = corrected == Corrected::Cost(charge.cost);
    (stays && report.cost_under(charge.rule()).is_none()).then_some((rule, place))
}

/// The charge of a record. It refuses no request.
pub(crate) fn record<'a>(limit: &'a Limit, key: &'a [u8]) -> Charge<'a> {
    Charge {
        limit,
        key: Key::from_bytes(key),
        cost: Correction::RECORDED,
        mode: Mode::Shadow,
    }
}

/// Returns a charge under `limit` with the actual cost; `None` if it stays. `all` are the charges of
/// its request.
fn settled_by<'a>(
    policy: &Policy,
    limit: &'a Limit,
    made: &'a MadeCharge,
    all: &[MadeCharge],
    origin: ChargeOrigin,
    report: &Report,
) -> Option<Settled<'a>> {
    let corrected = policy.rule(made.rule())?.correction.as_deref()?;
    let used = match corrected.correct(made.rule(), made.cost, report) {
        Corrected::Cost(used) if used == made.cost => return None,
        Corrected::Cost(used) => ActualCost::Permits(used),
        // Which of several keys had the success is unknown, so none of them begins anew.
        Corrected::Reset if all.iter().any(|it| is_other_key(it, made)) => {
            ActualCost::Permits(Permits::ZERO)
        }
        Corrected::Reset => ActualCost::Reset,
    };
    Some(Settled {
        charge: Charge::enforced(limit, made.key(), made.cost),
        used,
        origin: origin.paid_after(made.paid_under(limit)),
    })
}

/// Returns true if a charge is another key's, under the same limit.
fn is_other_key(charge: &MadeCharge, made: &MadeCharge) -> bool {
    charge.rule() == made.rule() && charge.key != made.key
}
