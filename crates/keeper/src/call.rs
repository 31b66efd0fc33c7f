//! Call: several descriptors asked about at once, and decided together.
//!
//! ```text
//!   user=ada, cost 1   -->  charges 0..2  \
//!   plan=pro, cost 0   -->  charge  2      >  one decision of the store: all or none
//!   flow=up,  back 1   -->  charge  3     /   (what is given back is given back first)
//! ```

use std::ops::Range;

use ratekeeper_core::{Lend, Mode, Permits, Verdict};
use ratekeeper_policy::{Charges, Facts};
use ratekeeper_store::{MemoryStore, Store, StoreError};
use smallvec::SmallVec;

use crate::Clock;
use crate::answer::{Answer, ChargeSpan, Outcome};
use crate::keeper::{ChargeList, Keeper, list, ready, refused_at_once};

/// One of the things that a call asks.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// About what: a descriptor, mostly. A cost of 0 looks and charges nothing.
    pub facts: Facts<'a>,
    /// What is done about it.
    pub act: Act,
}

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Act {
    /// Decides, and charges if the whole call may pass.
    #[default]
    Charge,
    /// Gives the cost back, whatever becomes of the rest of the call.
    GiveBack,
}

/// What the limits said about a call.
#[derive(Clone, Debug)]
pub struct Answers {
    /// About all of it.
    answer: Answer,
    /// Where what belongs to each of the things asked ends.
    ends: SmallVec<[ChargeSpan; 4]>,
}

impl Answers {
    /// Whether the call may pass.
    pub fn allowed(&self) -> bool {
        self.answer.allowed()
    }

    /// How many things were asked.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing was asked.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What each limit said about the thing asked as number `index`, from 0, as
    /// [`Answer::outcomes`]; nothing if no limit applies, or if nothing was asked by that
    /// number.
    pub fn outcomes(&self, index: usize) -> impl Iterator<Item = Outcome<'_>> {
        let end = self.ends.get(index).copied();
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let start = start.copied().unwrap_or_default();
        self.answer.outcomes_between(start, end.unwrap_or(start))
    }

    /// Whether a limit refuses the thing asked as number `index`.
    pub fn refuses(&self, index: usize) -> bool {
        self.outcomes(index).any(|outcome| outcome.refuses())
    }

    /// The answer about all of it, as if it were one request.
    pub fn whole(&self) -> &Answer {
        &self.answer
    }
}

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Decides all that a call asks together: everything is charged, or nothing is.
    ///
    /// What is given back is given back first, and refuses nothing; what only looks (a cost
    /// of 0) may refuse. Two of them may name one limit and key: the later is judged as if
    /// the earlier were charged.
    ///
    /// # Errors
    /// When the store cannot answer, and [`StoreError::Unsupported`] if a limit is to give back
    /// that takes nothing back: then nothing is given back, and nothing charged.
    pub async fn call(&self, asked: &[Asked<'_>]) -> Result<Answers, StoreError> {
        let now = self.clock().now();
        let policy = self.policy();
        let mut charges = Charges::default();
        let mut ends: SmallVec<[ChargeSpan; 4]> = SmallVec::with_capacity(asked.len());
        for one in asked {
            let before = ChargeSpan::of(&charges);
            policy.add_charges(&one.facts, &mut charges);
            if one.act == Act::GiveBack {
                before.forget_refusals_since(&mut charges);
            }
            ends.push(ChargeSpan::of(&charges));
        }
        self.number_replaced(&mut charges);
        let mut decisions = {
            let mut all = list(&charges, &policy);
            let back = take_back(asked, &ends, &mut all);
            if !back.is_empty() {
                self.store().refund(&back, now).await?;
            }
            if refused_at_once(&charges, &policy) {
                self.refused_unasked(&all, Lend::Unnamed, now).await?
            } else {
                self.store().decide(&all, now).await?
            }
        };
        for given in given_back(asked, &ends) {
            for decision in decisions.each.get_mut(given).into_iter().flatten() {
                decision.verdict = Verdict::Allow;
            }
        }
        Ok(Answers {
            answer: Answer::new(policy, charges, decisions, now),
            ends,
        })
    }
}

/// The memory store needs no waiting, so neither does its keeper.
impl<C: Clock> Keeper<MemoryStore, C> {
    /// [`call`](Self::call), at once.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`], as [`call`](Self::call).
    pub fn call_now(&self, asked: &[Asked<'_>]) -> Result<Answers, StoreError> {
        ready(self.call(asked))
    }
}

/// Where the charges lie that are given back.
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

/// The charges that are given back; they stay in the list to show how their limits stand,
/// at no cost and without a veto.
fn take_back<'a>(
    asked: &[Asked<'_>],
    ends: &[ChargeSpan],
    all: &mut ChargeList<'a>,
) -> ChargeList<'a> {
    let mut back = ChargeList::new();
    for given in given_back(asked, ends) {
        for charge in all.get_mut(given).into_iter().flatten() {
            back.push(*charge);
            charge.cost = Permits::ZERO;
            charge.mode = Mode::Shadow;
        }
    }
    back
}
