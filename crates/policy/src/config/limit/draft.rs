//! Draft: a limit on its way from the file to a rule, with the places that findings name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ratekeeper_core::Denials;

use crate::config::quantity::QuantityKind;
use crate::config::{At, Spot, Table, Text, ValueError, codes, error, refuse};
use crate::model::rules::chain::percent_of;
use crate::{Role, Rule, RuleMode};

/// A rule, and where its parts stand in the file.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) rule: Rule,
    /// Its table.
    pub(crate) table: Table<'a>,
    /// The requests it is for, in a comparable form.
    pub(crate) same: Vec<(String, Vec<String>)>,
    pub(crate) kind: QuantityKind,
    pub(crate) denials: Denials,
    /// Where its quantity stands.
    pub(crate) quantity_at: Spot<'a>,
    /// Where its cost stands, or the highest of its prices; empty if none is written.
    pub(crate) cost_at: Spot<'a>,
    /// Its extra, if it is soft or elastic.
    pub(crate) extra: Option<Box<Extra<'a>>>,
    /// The rule with its other number, if it has a candidate.
    pub(crate) candidate: Option<Box<Rule>>,
    /// True if another limit replaces it.
    pub(crate) is_replaced: bool,
}

/// Formats it as ``limit `per-ip` ``.
impl fmt::Display for Draft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit `{}`", self.rule.limit.name)
    }
}

impl Draft<'_> {
    /// Returns true if another limit asks this one by `otherwise`.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.rule.role, Role::Allowance)
    }

    /// Returns `None`, and reports what the limit cannot do, if there is a reason.
    pub(crate) fn unless(
        &self,
        what: &str,
        code: &'static str,
        at: Spot<'_>,
        reason: Option<ValueError>,
    ) -> Option<()> {
        let Some(reason) = reason else {
            return Some(());
        };
        refuse(code, at, format!("{self} {what}"), reason);
        None
    }

    /// Returns true if it is switched off.
    pub(crate) fn is_off(&self) -> bool {
        self.rule.mode == RuleMode::Off
    }
}

/// Returns the indices of limits by their names.
pub(crate) fn by_name(drafts: &[Draft<'_>]) -> BTreeMap<Arc<str>, usize> {
    let names = drafts
        .iter()
        .map(|draft| Arc::clone(&draft.rule.limit.name));
    names.zip(0..).collect()
}

/// Label of a name that no limit has.
pub(super) const HERE: &str = "not found in this file";

/// Reports a name that no limit has; `missing` has the label, and the help if no known name is near.
pub(crate) fn unknown_limit<'k>(
    name: &Text<'_>,
    known: impl Iterator<Item = &'k str>,
    missing: ValueError,
) {
    let findings = name.at.findings;
    if !findings.is_whole() {
        return; // it may stand where the text could not be read
    }
    let help = findings.meant(name.value, known, "", || missing.help);
    let message = format!("no limit is called `{name}`");
    error(codes::UNKNOWN_LIMIT, name.at, message, missing.reason).help(help);
}

/// A field with the names of other limits.
pub(super) struct LimitList {
    pub(super) field: &'static str,
    /// What the limit does with the others: `cannot ask`.
    pub(super) verb: &'static str,
    pub(super) code: &'static str,
    /// Returns why the first limit cannot name the second.
    pub(super) refused: fn(&Draft<'_>, &Draft<'_>) -> Option<ValueError>,
}

impl LimitList {
    /// Returns the indices of the limits that `by` names; reports the names that are wrong.
    pub(super) fn read<'a>(
        &self,
        by: &Draft<'a>,
        drafts: &[Draft<'_>],
        names: &BTreeMap<Arc<str>, usize>,
    ) -> Vec<At<'a, usize>> {
        let mut listed: Vec<At<'a, usize>> = Vec::new();
        for text in by.table.texts(self.field) {
            let Some(&index) = names.get(text.value) else {
                let known = names.keys().map(|name| &**name);
                let help = "write the name of another limit";
                unknown_limit(&text, known, ValueError::new(HERE, help));
                continue;
            };
            let twice = listed.iter().any(|named| named.value == index);
            let twice = twice.then(|| ValueError::new("named twice", "name each limit once"));
            let reason = twice.or_else(|| (self.refused)(by, &drafts[index]));
            let accepted = self.unless(by, &text, reason);
            listed.extend(accepted.map(|()| At::new(index, text.at)));
        }
        listed
    }

    /// Returns `None`, and reports that a limit cannot name another, if there is a reason.
    pub(super) fn unless(
        &self,
        by: &Draft<'_>,
        name: &Text<'_>,
        reason: Option<ValueError>,
    ) -> Option<()> {
        let what = format!("cannot {} `{name}`", self.verb);
        by.unless(&what, self.code, name.at, reason)
    }
}

/// The extra of a limit.
#[derive(Clone, Debug)]
pub(crate) struct Extra<'a> {
    pub(crate) rule: Rule,
    pub(crate) share: At<'a, ExtraShare>,
}

/// How much an extra adds to a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExtraShare {
    Percent(u32),
    Permits(u64),
    /// Up to this number: only for the limit's own.
    UpTo(u64),
}

impl ExtraShare {
    /// Returns the extra to `number/period`; `None` if it is nothing.
    pub(crate) fn text(self, base: &str) -> Option<String> {
        let (number, period) = base.split_once('/')?;
        let number: u64 = number.trim().parse().ok()?;
        let extra = match self {
            Self::Percent(percent) => percent_of(number, percent).get(),
            Self::Permits(permits) => permits,
            Self::UpTo(most) => most.checked_sub(number)?,
        };
        (extra > 0).then(|| format!("{extra}/{period}"))
    }
}
