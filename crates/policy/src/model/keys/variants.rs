//! Variants: the numbers of a rule for some of its keys, in place of its own.
//!
//! ```text
//!   key --> override in force? --> plan with numbers of its own? --> the rule's own
//!            exact key, then the
//!            longest pattern
//! ```
//!
//! All numbers are compiled when the policy is read, and keys with equal numbers share one limit,
//! so a decision costs a hash look-up and no allocation.
//!
//! Each variant is a limit with a name of its own (`api-minute=pro`). A key that changes its plan
//! starts there unused: one that is moved back and forth may use the quotas of both. Stores keep
//! the usage of a key whose override is set, changed or removed, or ends: see [`LimitKeys`].
//!
//! A limit of months with a day for each key is 31 limits, one for each day on which a month may
//! begin, and so is each of its variants. They stand one after the other:
//!
//! ```text
//!   day        1       2  3 ..  31     1   2  3  ..  31      1 ..
//!              rule    0  1 ..  29     30  31 32 ..  60      61 ..
//!              |---- the rule's own ---|----- plan pro ------|
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use ratekeeper_core::{Key, Limit, LimitKeys, Nanos, Permits, Quota};

use crate::model::keys::key_part::Around;
use crate::model::keys::overrides::{Override, Overrides};
use crate::model::rules::calendar::MonthDay;
use crate::{KeyPart, Plans, RequestFacts};

/// Other numbers of a rule.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The rule's limit with these numbers. Its name is the rule's, then `=`, then the plan or the
    /// numbers.
    pub limit: Limit,
    /// Like [`Rule::quota`](crate::Rule::quota).
    pub quota: Permits,
    /// Like [`Rule::window`](crate::Rule::window).
    pub window: Option<Nanos>,
    /// Like [`Rule::keeps_to`](crate::Rule::keeps_to).
    pub keeps_to: Option<Quota>,
    /// Like [`Rule::text`](crate::Rule::text).
    pub text: String,
}

/// The amount that a key is allowed under a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Allowance {
    /// The rule's own numbers.
    #[default]
    Own,
    /// The numbers of the variant with this index.
    Variant(u32),
    /// No limit.
    Unlimited,
    /// Nothing: every request is refused.
    Blocked,
}

/// The allowance of a key, and its reason.
#[derive(Clone, Copy, Debug)]
pub struct Held<'p> {
    /// The amount.
    pub allowance: Allowance,
    /// The reason.
    pub by: HeldBy<'p>,
}

/// The reason for an allowance.
#[derive(Clone, Copy, Debug)]
pub enum HeldBy<'p> {
    /// The rule itself.
    Rule,
    /// The plan of the request.
    Plan(&'p str),
    /// An act of an operator, for the time that is left.
    Hand(Nanos),
    /// An override of the key.
    Override(&'p Override),
}

/// All variants of a rule, and the keys that they are for.
#[derive(Clone, Debug, Default)]
pub struct Variants {
    pub(crate) numbers: Vec<Variant>,
    /// By the index of the plan; empty if the rule has no `plans`.
    pub(crate) plans: Vec<Allowance>,
    pub(crate) overrides: Arc<Overrides>,
    /// Attribute of a request with the day of the month on which the months of its key begin;
    /// `None` if they begin on the same day for all keys.
    pub(crate) day_attribute: Option<Box<str>>,
}

/// A key of a request, for which an allowance is wanted.
#[derive(Clone, Copy)]
pub(crate) struct KeyAsk<'k, 'r> {
    pub(crate) key: Key<'k>,
    pub(crate) parts: &'k [KeyPart],
    pub(crate) request: &'r RequestFacts<'r>,
    pub(crate) around: Around<'k>,
    pub(crate) unix_nanos: u64,
}

impl Held<'_> {
    /// The rule's own numbers.
    pub(crate) const BY_RULE: Self = Self {
        allowance: Allowance::Own,
        by: HeldBy::Rule,
    };
}

impl Variants {
    /// Returns true if the rule's own numbers hold for all keys.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.overrides.all.is_empty() && self.day_attribute.is_none()
    }

    /// Returns the attribute with the day of the month on which the months of a key begin.
    pub fn day_attribute(&self) -> Option<&str> {
        self.day_attribute.as_deref()
    }

    /// Returns the variants; equal numbers come once.
    pub fn numbers(&self) -> &[Variant] {
        &self.numbers
    }

    /// Returns the variants, to give them other algorithms.
    pub fn numbers_mut(&mut self) -> &mut [Variant] {
        &mut self.numbers
    }

    /// Returns the variants of one set of numbers, of which the first has that index: one, or one
    /// for each day of the month.
    pub fn of_allowance(&self, first: u32) -> impl Iterator<Item = &Variant> {
        let count = match self.day_attribute {
            Some(_) => MonthDay::all().count(),
            None => 1,
        };
        self.numbers.iter().skip(first as usize).take(count)
    }

    /// Returns the overrides, in the order of the file.
    pub fn overrides(&self) -> &[Override] {
        &self.overrides.all
    }

    /// Returns the variants that a key may be charged to, whatever its plan and its day, each once.
    pub fn of_key<'p>(&'p self, key: Key<'_>) -> impl Iterator<Item = &'p Variant> {
        let overrides = self.overrides.of_key(key).map(|found| found.allowance);
        let allowances = overrides.chain(self.plans.iter().copied());
        let days = self.day_attribute.iter().flat_map(|_| MonthDay::all());
        let days: Vec<_> = days.collect();
        let variants = allowances.chain([Allowance::Own]).flat_map(|allowance| {
            let on_days = days.iter().map(move |day| allowance.on_day(*day));
            on_days.chain([allowance])
        });
        let each: BTreeSet<u32> = variants.filter_map(Allowance::variant).collect();
        each.into_iter()
            .filter_map(|index| self.numbers.get(index as usize))
    }

    /// Tells each variant of a rule which keys it is for: those of a plan, or single ones.
    pub(crate) fn relate(&mut self, own: &Limit, overrides: &Overrides) {
        let overrides = overrides.all.iter();
        let single = overrides.filter_map(|found| found.allowance.variant());
        let single = single.flat_map(|first| self.of_allowance(first));
        let single: BTreeSet<_> = single.map(|variant| variant.limit.id).collect();
        let limits = self.numbers.iter_mut().map(|variant| &mut variant.limit);
        let (single, mut plans): (Vec<_>, Vec<_>) =
            limits.partition(|limit| single.contains(&limit.id));
        for limit in &mut plans {
            limit.keys = LimitKeys::Plan(own.id);
        }
        let plans = plans.iter().map(|limit| Limit::clone(limit));
        let base: Arc<[_]> = std::iter::once(own.clone()).chain(plans).collect();
        for limit in single {
            limit.keys = LimitKeys::Single(Arc::clone(&base));
        }
    }

    pub(crate) fn held<'p>(&'p self, ask: &KeyAsk<'_, '_>, plans: Option<&'p Plans>) -> Held<'p> {
        let held = self.held_on_the_first(ask, plans);
        let Some(attribute) = &self.day_attribute else {
            return held;
        };
        let day = ask.request.attribute(attribute).and_then(month_day);
        Held {
            allowance: held.allowance.on_day(day.unwrap_or(MonthDay::FIRST)),
            ..held
        }
    }

    fn held_on_the_first<'p>(&'p self, ask: &KeyAsk<'_, '_>, plans: Option<&'p Plans>) -> Held<'p> {
        if let Some((allowance, found)) = self.overrides.find(ask) {
            return Held {
                allowance,
                by: HeldBy::Override(found),
            };
        }
        let Some(plans) = plans.filter(|_| !self.plans.is_empty()) else {
            return Held::BY_RULE;
        };
        let index = plans.of(ask);
        match self.plans.get(index) {
            Some(allowance) if *allowance != Allowance::Own => Held {
                allowance: *allowance,
                by: HeldBy::Plan(plans.name(index)),
            },
            _ => Held::BY_RULE,
        }
    }
}

impl Allowance {
    fn variant(self) -> Option<u32> {
        match self {
            Self::Variant(index) => Some(index),
            Self::Own | Self::Unlimited | Self::Blocked => None,
        }
    }

    /// Returns the same numbers in months that begin on `day`.
    fn on_day(self, day: MonthDay) -> Self {
        let later = u32::from(day.number() - 1);
        match self {
            Self::Own if later > 0 => Self::Variant(later - 1),
            Self::Variant(first) => Self::Variant(first + later),
            _ => self,
        }
    }
}

/// Reads a day of the month: digits, without signs or spaces.
fn month_day(text: &str) -> Option<MonthDay> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    MonthDay::new(text.parse().ok().filter(|_| is_number)?)
}
