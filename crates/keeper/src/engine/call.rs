//! Call: several items, such as the descriptors of one call by Envoy, decided together.
//!
//! ```text
//!   user=ada, cost 1   -->  charges 0..2  \
//!   plan=pro, cost 0   -->  charge  2      >  one decision of the store: all or none
//!   flow=up,  back 1   -->  charge  3     /   (refunds are made first)
//! ```

use std::ops::Range;

use ratekeeper_core::{LeaseId, Lend, Mode, Permits, Verdict};
use ratekeeper_policy::Facts;
use ratekeeper_store::{Store, StoreError};
use smallvec::SmallVec;

use super::answer::{Answer, ChargeSpan};
use super::keeper::{ChargeList, Keeper};
use crate::{Clock, Outcome};

/// One item of a call.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Act, Asked, Keeper, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// let once = Asked { facts: Facts::default(), act: Act::Charge };
/// let back = Asked { act: Act::GiveBack, ..once };
/// assert!(at_once(keeper.call(&[once, once])).unwrap().allowed());
/// assert!(!at_once(keeper.call(&[once])).unwrap().allowed());
/// assert!(at_once(keeper.call(&[once, back])).unwrap().allowed(), "refunds are made first");
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The facts, usually a descriptor. A cost of 0 looks and charges nothing.
    pub facts: Facts<'a>,
    /// The action on its limits.
    pub act: Act,
}

/// The action of one item of a call.
///
/// ```
/// use ratekeeper::Act;
/// assert_eq!(Act::default(), Act::Charge);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Act {
    /// Decides, and charges if the whole call may pass.
    #[default]
    Charge,
    /// Gives the cost back, whether or not the call may pass.
    GiveBack,
}

impl Asked<'_> {
    /// Returns true if the item is neither a look nor a refund.
    fn charges(&self) -> bool {
        self.act == Act::Charge && self.facts.cost != Some(Permits::ZERO)
    }
}

/// The decisions of the limits about a call.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Act, Asked, Keeper, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// let once = Asked { facts: Facts::default(), act: Act::Charge };
/// let answers = at_once(keeper.call(&[once, once, once])).unwrap();
/// assert!(!answers.allowed(), "none is charged");
/// assert!(!answers.refuses(1) && answers.refuses(2));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Answers {
    /// The answer about all items.
    answer: Answer,
    /// The end of each item in the charges.
    ends: SmallVec<[ChargeSpan; 4]>,
}

impl Answers {
    /// Returns true if the call may pass.
    pub fn allowed(&self) -> bool {
        self.answer.allowed()
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the call has no items.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the outcomes of item `index`, from 0, like [`Answer::outcomes`]; empty if no limit
    /// applies, or if there is no such item.
    pub fn outcomes(&self, index: usize) -> impl Iterator<Item = Outcome<'_>> {
        let end = self.ends.get(index).copied();
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let start = start.copied().unwrap_or_default();
        self.answer.outcomes_between(start, end.unwrap_or(start))
    }

    /// Returns true if a limit refuses item `index`.
    pub fn refuses(&self, index: usize) -> bool {
        self.outcomes(index).any(|outcome| outcome.refuses())
    }

    /// Returns the answer about all items, as if they were one request.
    pub fn whole(&self) -> &Answer {
        &self.answer
    }
}

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Decides all items of a call together: everything is charged, or nothing is.
    ///
    /// Refunds are made first, and refuse nothing; items that only look (a cost of 0) may refuse.
    /// If two items share a limit and key, the later is judged as if the earlier were charged.
    ///
    /// # Errors
    /// When the store cannot answer, and [`StoreError::Unsupported`] if an item gives back to a
    /// limit that cannot take permits back: then nothing is given back, and nothing charged.
    pub async fn call(&self, asked: &[Asked<'_>]) -> Result<Answers, StoreError> {
        self.call_for_report(asked, || None).await
    }

    /// Like [`call`](Self::call); if reports correct a limit of the call, the
    /// [whole](Answers::whole) answer has a [decision id](Answer::decision). A call with an item
    /// that looks or gives back has none. `nonce` is as for
    /// [`check_for_report`](Self::check_for_report).
    ///
    /// # Errors
    /// Like [`call`](Self::call).
    pub async fn call_for_report(
        &self,
        asked: &[Asked<'_>],
        nonce: impl FnOnce() -> Option<LeaseId>,
    ) -> Result<Answers, StoreError> {
        let mut answer = self.unasked();
        let now = answer.decided_at();
        let (charges, wall) = (&mut answer.charges, self.wall(now));
        let mut ends: SmallVec<[ChargeSpan; 4]> = SmallVec::with_capacity(asked.len());
        for one in asked {
            let before = ChargeSpan::of(charges);
            answer.policy.add_charges(&one.facts, wall, charges);
            if one.act == Act::GiveBack {
                before.drop_refusals_since(charges);
            }
            ends.push(ChargeSpan::of(charges));
        }
        self.number_replaced(charges);
        let mut decisions = {
            let mut all = answer.list();
            let back = take_back(asked, &ends, &mut all);
            if !back.is_empty() {
                self.store().refund(&back, now).await?;
            }
            self.decide(&all, &answer, Lend::Unnamed).await?
        };
        for given in given_back(asked, &ends) {
            let entries = answer.charges.entries.get_mut(given.clone()).into_iter();
            entries.flatten().for_each(|it| it.cost = Permits::ZERO);
            for decision in decisions.each.get_mut(given).into_iter().flatten() {
                decision.verdict = Verdict::Allow;
            }
        }
        answer.set(decisions);
        if asked.iter().all(Asked::charges) {
            self.await_report(&mut answer, nonce).await;
        }
        Ok(Answers { answer, ends })
    }
}

/// Returns the ranges of the charges that are given back.
fn given_back<'a>(
    asked: &'a [Asked<'_>],
    ends: &'a [ChargeSpan],
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut start = 0;
    let ranges = asked.iter().zip(ends).map(move |(one, end)| {
        let range = start..end.entries;
        start = end.entries;
        (one.act, range)
    });
    ranges.filter_map(|(act, range)| (act == Act::GiveBack).then_some(range))
}

/// Returns the charges that are given back. In `all` they stay at no cost and in shadow mode, so
/// that the answer shows their limits, and these refuse nothing.
fn take_back<'a>(
    asked: &[Asked<'_>],
    ends: &[ChargeSpan],
    all: &mut ChargeList<'a>,
) -> ChargeList<'a> {
    let mut back = ChargeList::new();
    for given in given_back(asked, ends) {
        let mut before = None;
        for charge in all.get_mut(given).into_iter().flatten() {
            // Only the limit receives the refund, not its alternatives.
            if is_refunded(charge.mode, before.replace(charge.mode)) {
                back.push(*charge);
            }
            charge.cost = Permits::ZERO;
            charge.mode = Mode::Shadow;
        }
    }
    back
}

/// Returns true if a refund gives back a charge in this mode, which follows a charge in the mode
/// `before`. Alternatives and counted values are not given back.
pub(crate) fn is_refunded(mode: Mode, before: Option<Mode>) -> bool {
    matches!(mode, Mode::Enforce | Mode::Shadow) && before != Some(Mode::Once)
}
