//! Charges: the charges of a request under the limits that apply to it.

use std::ops::Range;

use ratekeeper_core::{Charge, Key, Limit, Mode, Nanos, Permits};
use smallvec::SmallVec;

use super::Policy;
use crate::{Country, KeyBytes, Numbers, Rule, Variant};

/// The charges of one request: one for each rule that matches, in the policy's order.
///
/// Holds indexes and key bytes, not references, so that it can be stored with the answer.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    /// One for each rule that applies, and each of at most four keys of the request under it. The
    /// alternatives of an entry come behind it, its condition or headroom before it.
    pub entries: SmallVec<[Entry; 4]>,
    /// Rules that match and are not charged, because they deny without being asked, or because
    /// the request is exempt from them.
    pub uncharged: SmallVec<[Uncharged; 4]>,
    /// Limits with the numbers of the caller in place of their own. They have the ids of their
    /// rules until the keeper assigns them their own.
    pub replaced: Vec<(Limit, Numbers)>,
    /// The keys' bytes, one after the other.
    pub bytes: KeyBytes,
    /// Country of the request, if a limit asked for it.
    pub country: Option<Country>,
    /// Rules that others replace for the request whose charges are being added.
    pub(super) set_aside: SmallVec<[u32; 4]>,
    /// Numbers of entries and of uncharged rules where those of that request begin.
    first_entry: usize,
    first_uncharged: usize,
}

/// One charge.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Index of the rule in the policy.
    pub rule: u32,
    /// Range of the key in `bytes`.
    pub key: Range<u32>,
    /// Cost of the request under this rule.
    pub cost: Permits,
    /// True if a key part was missing and another value stood in.
    pub fallback: bool,
    /// Index of the limit with replaced numbers; `None` for the policy's.
    pub replaced: Option<u32>,
    /// Index of the rule's variant; `None` for the rule's own numbers.
    pub variant: Option<u32>,
    /// Time until the end of the ban by an operator that refuses it; `None` without one.
    pub banned: Option<Nanos>,
    /// The effect of a denial: that of the rule, or [`Mode::Shadow`] for a key outside of the
    /// rule's share; [`Mode::Otherwise`] for an alternative to the entry before it, [`Mode::Once`]
    /// for a condition of the next entry, [`Mode::Headroom`] for room that the next one leaves.
    pub mode: Mode,
}

/// A rule that matches a request and is not charged.
#[derive(Clone, Copy, Debug)]
pub struct Uncharged {
    /// Index of the rule in the policy.
    pub rule: u32,
    /// Why it is not charged.
    pub reason: NoCharge,
}

/// Why a rule that matches a request is not charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoCharge {
    /// The request is exempt from it.
    Exempt,
    /// A key part is missing (`missing_key = "deny"`), the body states two values, or the request has
    /// more than four keys. The mode is the effect of the denial.
    MissingKey(Mode),
    /// It allows the key nothing: the caller, a plan or an override puts zero permits in place of
    /// its numbers.
    Barred {
        /// Period of the zero permits.
        per: Nanos,
        /// The effect of the denial.
        mode: Mode,
    },
}

impl NoCharge {
    /// Returns the effect of the denial; `None` for an exemption.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::Exempt => None,
            Self::MissingKey(mode) | Self::Barred { mode, .. } => Some(mode),
        }
    }

    /// Returns the zero permits of a rule that allows nothing.
    pub fn numbers(self) -> Option<Numbers> {
        match self {
            Self::Barred { per, .. } => Some(Numbers::none(per)),
            Self::Exempt | Self::MissingKey(_) => None,
        }
    }
}

impl Entry {
    /// Returns true for an alternative to the entry before it.
    pub fn is_alternative(&self) -> bool {
        self.mode == Mode::Otherwise
    }

    /// Returns true if clients see its decision: it is neither a condition nor headroom.
    pub fn is_shown(&self) -> bool {
        !matches!(self.mode, Mode::Once | Mode::Headroom)
    }

    /// Returns the variant of its rule that it is charged to; `None` for the rule's own numbers.
    pub fn variant_of<'p>(&self, rule: &'p Rule) -> Option<&'p Variant> {
        rule.variants.numbers.get(self.variant? as usize)
    }
}

impl Charges {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.uncharged.clear();
        self.replaced.clear();
        self.country = None;
        self.bytes.truncate(0);
        self.begin();
    }

    /// Begins the charges of a request, behind those of the requests before it.
    pub(super) fn begin(&mut self) {
        self.set_aside.clear();
        self.first_entry = self.entries.len();
        self.first_uncharged = self.uncharged.len();
    }

    /// Returns the charges, for the store. Rules that are off never appear.
    pub fn iter<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = Charge<'a>> {
        self.entries.iter().filter_map(|entry| {
            let rule = policy.rules.get(entry.rule as usize)?;
            Some(Charge {
                limit: self.limit(entry, rule),
                key: self.key(entry),
                cost: entry.cost,
                mode: entry.mode,
            })
        })
    }

    /// Returns the limit of an entry: the rule's own, a variant, or one with the numbers of the
    /// caller.
    pub fn limit<'a>(&'a self, entry: &Entry, rule: &'a Rule) -> &'a Limit {
        if let Some((limit, _)) = self.replaced_of(entry) {
            return limit;
        }
        entry
            .variant_of(rule)
            .map_or(&rule.limit, |variant| &variant.limit)
    }

    /// Adds a rule that matches and is not charged.
    pub(super) fn add_uncharged(&mut self, rule: u32, reason: NoCharge) {
        self.uncharged.push(Uncharged { rule, reason });
    }

    /// Adds a rule that denies because a key part is missing.
    pub(super) fn add_missing(&mut self, index: u32, rule: &Rule) {
        let mode = rule.mode_of(None).unwrap_or(Mode::Shadow);
        self.add_uncharged(index, NoCharge::MissingKey(mode));
    }

    /// Adds a limit with the numbers of the caller, and returns its index.
    pub(super) fn add_replaced(&mut self, limit: Limit, numbers: Numbers) -> u32 {
        self.replaced.push((limit, numbers));
        u32::try_from(self.replaced.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds a rule that allows the key of a request nothing. It comes once for two such keys of
    /// one request, and enforced if it is for one of them.
    pub(super) fn bar(&mut self, index: u32, rule: &Rule, mode: Mode) {
        let of_this_request = self.uncharged.get_mut(self.first_uncharged..);
        let last = of_this_request.and_then(|uncharged| uncharged.last_mut());
        if let Some(last) = last.filter(|last| last.rule == index)
            && let NoCharge::Barred { mode: before, .. } = &mut last.reason
        {
            if mode == Mode::Enforce {
                *before = mode;
            }
            return;
        }
        let per = rule.window.unwrap_or(Nanos::SECOND);
        self.add_uncharged(index, NoCharge::Barred { per, mode });
    }

    /// Removes the charges of this request by rules that others replace, with their alternatives.
    pub(super) fn remove_set_aside(&mut self) {
        let set_aside = &self.set_aside;
        let keeper = |first: usize| {
            let mut at = 0;
            move |rule: u32| {
                at += 1;
                at <= first || !set_aside.contains(&rule)
            }
        };
        let (mut keeps, mut kept) = (keeper(self.first_entry), false);
        self.entries.retain(|entry| {
            let keeps = keeps(entry.rule);
            kept = if entry.is_alternative() { kept } else { keeps };
            kept
        });
        let mut keeps = keeper(self.first_uncharged);
        self.uncharged.retain(|uncharged| keeps(uncharged.rule));
    }

    /// Returns the rules that deny because a key part is missing, including those in shadow mode.
    pub fn missing(&self) -> impl Iterator<Item = u32> {
        let missing = |it: &&Uncharged| matches!(it.reason, NoCharge::MissingKey(_));
        self.uncharged.iter().filter(missing).map(|it| it.rule)
    }

    /// Returns true if another rule replaces this one for the request added last.
    pub fn is_replaced(&self, rule: u32) -> bool {
        self.set_aside.contains(&rule)
    }

    /// Returns the limit of an entry with the caller's numbers, if they are not the rule's own.
    pub fn replaced_of(&self, entry: &Entry) -> Option<&(Limit, Numbers)> {
        self.replaced.get(entry.replaced? as usize)
    }

    /// Returns the key of an entry.
    pub fn key(&self, entry: &Entry) -> Key<'_> {
        let range = entry.key.start as usize..entry.key.end as usize;
        Key::from_bytes(self.bytes.get(range).unwrap_or_default())
    }
}
