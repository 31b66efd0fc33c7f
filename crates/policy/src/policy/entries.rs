//! Entries: the charge of each rule that applies to a request, under each key of the request.
//!
//! ```text
//!   rule --exempt?--> keys --known?--> allowance --numbers?--> cost --> condition, entry, chain
//!            |                 |               |                |
//!            '-----------------+--- uncharged -+----------------'
//! ```

use ratekeeper_core::{Key, Mode, Permits};

use super::{Charges, Entry, NoCharge, Policy};
use crate::key_part::Credential;
use crate::keys::{KeySubject, KeyWriter};
use crate::{Allowance, Numbers, Rule};

impl Policy {
    /// Adds the charges of a rule that matches, or the reason why it is not charged.
    pub(super) fn add_rule<'p>(
        &'p self,
        index: u32,
        rule: &'p Rule,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) {
        if rule.is_exempt(keys.request()) {
            return out.add_uncharged(index, NoCharge::Exempt);
        }
        let descriptor = keys.facts().descriptor;
        let numbers = descriptor.and_then(|descriptor| descriptor.instead);
        if let Some(none) = numbers.filter(|numbers| numbers.permits() == Permits::ZERO) {
            if let Some(mode) = rule.mode_of(None) {
                self.set_aside(rule, mode, out);
                let per = none.per();
                out.add_uncharged(index, NoCharge::Barred { per, mode });
            }
            return;
        }
        let first = out.entries.len();
        self.add_key(
            (index, rule),
            (Credential::First, first),
            keys,
            numbers,
            out,
        );
        if keys.has_second(rule) {
            self.add_key(
                (index, rule),
                (Credential::Second, first),
                keys,
                numbers,
                out,
            );
        }
    }

    /// Adds the charge under one key of the request; `first` is the index of the rule's first entry.
    fn add_key<'p>(
        &'p self,
        (index, rule): (u32, &'p Rule),
        (credential, first): (Credential, usize),
        keys: &mut KeyWriter<'p, '_>,
        numbers: Option<Numbers>,
        out: &mut Charges,
    ) {
        let start = out.bytes.end();
        let is_second = credential == Credential::Second;
        let subject = keys.write(rule, credential, &mut out.bytes);
        match subject {
            KeySubject::Skip => return,
            KeySubject::Deny if is_second => return, // the first key lacks the same part
            KeySubject::Deny => {
                self.set_aside(rule, rule.mode_of(None).unwrap_or(Mode::Shadow), out);
                return out.add_missing(index, rule);
            }
            KeySubject::Known | KeySubject::StandIn => {}
        }
        // Compared only with the first key of this request: two requests of one call that have
        // the same key are charged each.
        if is_second && is_repeated(start, first, out) {
            return keys.truncate(start as usize, &mut out.bytes);
        }
        let key = Key::from_bytes(&out.bytes[start as usize..]);
        let Some(mode) = rule.mode_of(Some(key)) else {
            return; // off
        };
        let set_aside_before = out.set_aside.len();
        self.set_aside(rule, mode, out);
        let allowance = match numbers {
            Some(_) => Allowance::Own,
            None => self.allowance_of(rule, start, credential, keys, out),
        };
        let variant = match allowance {
            Allowance::Own => None,
            Allowance::Variant(variant) => Some(variant),
            Allowance::Unlimited => return,
            Allowance::Blocked => return out.bar(index, rule, mode),
        };
        let Some(cost) = rule.cost.of(keys.request()) else {
            if !is_second {
                out.add_missing(index, rule);
            }
            return;
        };
        let replaced = numbers.and_then(|numbers| {
            let limit = rule.limit_of(numbers, self.origin)?;
            Some(out.add_replaced(limit, numbers))
        });
        let is_diverted = mode == Mode::Enforce && rule.is_diverted(keys.facts());
        let entry = Entry {
            rule: index,
            key: start..out.bytes.end(),
            cost,
            fallback: subject == KeySubject::StandIn,
            replaced,
            variant,
            mode: if is_diverted { Mode::Shadow } else { mode },
        };
        match self.add_condition((rule, &entry), credential, keys, out) {
            KeySubject::Skip => return out.set_aside.truncate(set_aside_before), // does not apply
            KeySubject::Deny => return,
            KeySubject::Known | KeySubject::StandIn => {}
        }
        out.entries.push(entry);
        // The numbers of a caller stand alone.
        if numbers.is_none() {
            self.add_beside(rule, credential, keys, out);
        }
    }

    /// Notes the rules that a rule which applies replaces, unless it acts as in shadow mode.
    fn set_aside(&self, rule: &Rule, mode: Mode, out: &mut Charges) {
        if mode != Mode::Enforce {
            return;
        }
        for &index in &rule.replaces {
            let replaced = self.rules.get(index as usize).into_iter();
            let beside = replaced.flat_map(|rule| [rule.candidate, rule.distinct]);
            out.set_aside
                .extend([index].into_iter().chain(beside.flatten()));
        }
    }
}

/// Returns true if the key from `start` on equals that of the rule's first charge, which is at
/// `first` or behind its condition: a credential may stand in, and not be needed.
fn is_repeated(start: u32, first: usize, out: &Charges) -> bool {
    let key = &out.bytes[start as usize..];
    let mut before = out.entries.iter().skip(first);
    let before = before.find(|entry| entry.is_shown());
    before.is_some_and(|before| out.key(before).as_bytes() == key)
}
