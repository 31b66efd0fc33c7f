//! Entries: the charge of each rule that applies to a request, under each key of the request.
//!
//! ```text
//!   rule --exempt?--> keys --known?--> allowance --numbers?--> cost --> condition, entry, chain
//!            |                 |               |                |
//!            '-----------------+--- uncharged -+----------------'
//! ```
//!
//! A condition comes before the charge of a limit that counts values, or keeps a part for requests
//! with priority.
//!
//! ```text
//!   distinct   [ accounts+seen  ip a1  once     ] [ accounts  ip  enforce ]
//!   priority   [ api            ip 20  headroom ] [ api       ip  enforce ]
//! ```

use ratekeeper_core::{Algorithm as _, Key, KeyBuilder, Mode, Permits};

use super::{Charges, Entry, NoCharge, Policy};
use crate::model::keys::key_writer::{KeyNumber, KeySubject, KeyWriter, MAX_KEYS, NoKey};
use crate::{Allowance, HeldBy, Numbers, Rule};

impl Policy {
    /// Adds the charges of a rule that matches, or the reason why it is not charged.
    pub(super) fn add_rule<'p>(
        &'p self,
        index: u32,
        rule: &'p Rule,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) {
        if rule.is_exempt(keys.request) {
            return out.add_uncharged(index, NoCharge::Exempt);
        }
        let descriptor = keys.request.facts.descriptor;
        let numbers = descriptor.and_then(|descriptor| descriptor.instead);
        if let Some(none) = numbers.filter(|numbers| numbers.permits() == Permits::ZERO) {
            if let Some(mode) = rule.mode_of(None) {
                self.set_aside(rule, mode, keys, out);
                let per = none.per();
                out.add_uncharged(index, NoCharge::Barred { per, mode });
            }
            return;
        }
        // A limit that counts values has a charge for each of them.
        let seen = rule
            .distinct
            .and_then(|index| self.rules.get(index as usize));
        for number in 0..=MAX_KEYS {
            let added = self.add_key(index, rule, number, keys, numbers, out);
            let count = keys.count(seen.unwrap_or(rule));
            if added == Err(NoKey::Deny) || count > MAX_KEYS {
                return out.add_missing(index, rule);
            }
            if number + 1 >= count {
                return;
            }
        }
    }

    /// Adds the charge under one key of the request, if the rule applies to it and has a limit.
    fn add_key<'p>(
        &'p self,
        index: u32,
        rule: &'p Rule,
        number: KeyNumber,
        keys: &mut KeyWriter<'p, '_>,
        numbers: Option<Numbers>,
        out: &mut Charges,
    ) -> Result<(), NoKey> {
        let start = out.bytes.end();
        let written = keys.write(rule, number, &mut out.bytes);
        if written == Err(NoKey::Deny) {
            self.set_aside(rule, rule.mode_of(None).unwrap_or(Mode::Shadow), keys, out);
        }
        let subject = written?;
        let key = Key::from_bytes(&out.bytes[start as usize..]);
        let Some(mode) = rule.mode_of(Some(key)) else {
            return Ok(()); // off
        };
        let set_aside_before = out.set_aside.len();
        self.set_aside(rule, mode, keys, out);
        let held = self.held(rule, Key::from_bytes(&out.bytes[start as usize..]), keys);
        let (allowance, banned) = match (held.allowance, held.by) {
            (Allowance::Blocked, HeldBy::Hand(left)) => (Allowance::Own, Some(left)),
            (allowance, HeldBy::Hand(_)) => (allowance, None),
            _ if numbers.is_some() => (Allowance::Own, None),
            (allowance, _) => (allowance, None),
        };
        let variant = match allowance {
            Allowance::Own => None,
            Allowance::Variant(variant) => Some(variant),
            Allowance::Unlimited => return Ok(()),
            Allowance::Blocked => {
                out.bar(index, rule, mode);
                return Ok(());
            }
        };
        let cost = rule.cost.of(keys.request).ok_or(NoKey::Deny)?;
        let replaced = numbers.and_then(|numbers| {
            let limit = rule.limit_of(numbers, self.origin)?;
            Some(out.add_replaced(limit, numbers))
        });
        let is_diverted =
            mode == Mode::Enforce && banned.is_none() && rule.is_diverted(keys.request.facts);
        let entry = Entry {
            rule: index,
            key: start..out.bytes.end(),
            cost,
            fallback: subject == KeySubject::StandIn,
            replaced,
            variant,
            banned,
            mode: if is_diverted { Mode::Shadow } else { mode },
        };
        if banned.is_some() {
            out.entries.push(entry);
            return Ok(());
        }
        let condition = self.add_condition(rule, &entry, number, keys, out);
        if condition == Err(NoKey::Skip) {
            out.set_aside.truncate(set_aside_before); // does not apply
        }
        condition?;
        out.entries.push(entry);
        // The numbers of a caller stand alone.
        if numbers.is_none() {
            self.add_beside(rule, number, keys, out);
        }
        Ok(())
    }

    /// Adds the condition or the headroom of an entry of a rule, if it has one.
    ///
    /// # Errors
    /// If the request has no value to count, and is not charged for that reason.
    fn add_condition<'p>(
        &'p self,
        rule: &'p Rule,
        entry: &Entry,
        number: KeyNumber,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) -> Result<(), NoKey> {
        if let Some(priority) = rule.priority.as_deref()
            && entry.cost > Permits::ZERO
            && !priority.holds(keys.request)
        {
            let capacity = out.limit(entry, rule).algorithm.capacity();
            out.entries.push(Entry {
                cost: priority.headroom(capacity),
                mode: Mode::Headroom,
                ..entry.clone()
            });
        }
        let seen = |index: u32| Some((index, self.rules.get(index as usize)?));
        let Some((index, seen)) = rule.distinct.and_then(seen) else {
            return Ok(());
        };
        let start = out.bytes.end();
        if rule.key.is_empty() {
            // The first part chooses the slot on a cluster: that of the limit, which is its name.
            KeyBuilder::new(&mut out.bytes).part(rule.limit.name.as_bytes());
        }
        keys.write(seen, number, &mut out.bytes)?;
        out.entries.push(Entry {
            rule: index,
            key: start..out.bytes.end(),
            cost: entry.cost.min(Permits::ONE),
            mode: Mode::Once,
            ..entry.clone()
        });
        Ok(())
    }

    /// Notes the rules that a rule which applies replaces, unless it acts as in shadow mode.
    fn set_aside(&self, rule: &Rule, mode: Mode, keys: &KeyWriter<'_, '_>, out: &mut Charges) {
        let is_set_aside = mode == Mode::Enforce && !rule.replaces.is_empty();
        // In doubt the request is counted by both.
        if !is_set_aside || !rule.matcher.exempts(keys.request) {
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
