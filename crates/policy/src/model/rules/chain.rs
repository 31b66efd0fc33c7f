//! Chain: a rule, and the rules that are asked in order when it denies.
//!
//! ```text
//!   limit = "100/1m", soft = { extra = "10%" }      messages --> messages+soft
//!   otherwise = ["promo", "credits"]                api --> promo --> credits
//! ```
//!
//! The store asks a chain in one act and charges one limit of it. So the bound of a chain is the
//! sum of the bounds of its limits.

use std::sync::Arc;

use ratekeeper_core::{Key, Mode, Permits};

use crate::model::keys::key_writer::{KeyNumber, KeySubject, KeyWriter};
use crate::{Allowance, Charges, Entry, Policy, Role, Rule, RuleMode, Signal};

impl Policy {
    /// Adds the alternatives to the last entry, which is of `rule`, and its candidate.
    pub(crate) fn add_beside<'p>(
        &'p self,
        rule: &'p Rule,
        number: KeyNumber,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) {
        let Some(head) = out.entries.len().checked_sub(1) else {
            return;
        };
        self.add_alternatives(rule, number, head, keys, out);
        // A key with other numbers has no candidate.
        if let (Some(candidate), Some(live)) = (rule.candidate, out.entries.get(head))
            && live.variant.is_none()
        {
            let entry = Entry {
                rule: candidate,
                mode: Mode::Shadow,
                ..live.clone()
            };
            out.entries.push(entry);
        }
    }

    /// Adds the alternatives to the entry at `head`. Removes it if one of them is unlimited.
    fn add_alternatives<'p>(
        &'p self,
        rule: &'p Rule,
        number: KeyNumber,
        head: usize,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) {
        for &index in &rule.otherwise {
            let other = self.rules.get(index as usize);
            let Some(other) = other.filter(|other| other.mode != RuleMode::Off) else {
                continue;
            };
            let entry = match &other.role {
                Role::Elastic(gate) if !gate.is_open(keys.wall) => None,
                Role::Soft | Role::Elastic(_) => extra(index, other, &out.entries[head]),
                Role::Limit | Role::Allowance | Role::Candidate | Role::Seen => {
                    let Ok(entry) = self.allowance_entry(index, other, rule, number, keys, out)
                    else {
                        // Unlimited: no request is refused by this chain.
                        out.entries.truncate(head);
                        return;
                    };
                    entry
                }
            };
            out.entries.extend(entry);
        }
    }

    /// Returns the entry of a rule that another names in `otherwise`; `None` if it is not for the
    /// request or its key.
    fn allowance_entry<'p>(
        &'p self,
        index: u32,
        rule: &'p Rule,
        head: &Rule,
        number: KeyNumber,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) -> Result<Option<Entry>, Unlimited> {
        let descriptor = keys.request.facts.descriptor;
        let named = descriptor.is_none_or(|descriptor| rule.names_all(&descriptor));
        if !named || !rule.is_active(keys.wall) || !rule.holds(keys.request) {
            return Ok(None);
        }
        let start = out.bytes.end();
        let number = if rule.key == head.key { number } else { 0 };
        let Ok(subject) = keys.write(rule, number, &mut out.bytes) else {
            return Ok(None);
        };
        if rule.key != head.key && keys.count(rule) > 1 {
            return Ok(None); // one of its keys would admit the request, and the others not count it
        }
        let Some(cost) = rule.cost.of(keys.request) else {
            return Ok(None);
        };
        let key = Key::from_bytes(&out.bytes[start as usize..]);
        let variant = match self.held(rule, key, keys).allowance {
            Allowance::Own => None,
            Allowance::Variant(index) => Some(index),
            Allowance::Unlimited => return Err(Unlimited),
            Allowance::Blocked => return Ok(None),
        };
        Ok(Some(Entry {
            rule: index,
            key: start..out.bytes.end(),
            cost,
            fallback: subject == KeySubject::StandIn,
            replaced: None,
            variant,
            banned: None,
            mode: Mode::Otherwise,
        }))
    }

    /// Returns the signals that its rules name, each once.
    pub fn signals(&self) -> impl Iterator<Item = &Arc<Signal>> {
        self.signals.iter()
    }

    /// Takes over the levels of the signals that `before` has as well.
    pub fn keep_signals(&mut self, before: &Self) {
        let gates = self.rules.gates_mut().map(|gate| &mut gate.signal);
        for signal in self.signals.iter_mut().chain(gates) {
            let mut known = before.signals.iter();
            if let Some(known) = known.find(|known| known.name() == signal.name()) {
                *signal = Arc::clone(known);
            }
        }
    }
}

/// The reason why a chain is not charged: one of its limits is unlimited for the key.
struct Unlimited;

/// Returns the entry of an extra, with the key and the cost of the first entry of its chain. `None`
/// if the key has other numbers, and the extra has none for them.
fn extra(index: u32, rule: &Rule, head: &Entry) -> Option<Entry> {
    let variant = head.variant;
    let has_numbers =
        variant.is_none_or(|variant| (variant as usize) < rule.variants.numbers.len());
    has_numbers.then(|| Entry {
        rule: index,
        variant,
        mode: Mode::Otherwise,
        replaced: None,
        ..head.clone()
    })
}

/// Returns a percentage of a number, rounded down.
pub(crate) fn percent_of(number: u64, percent: u32) -> Permits {
    Permits::new(number * u64::from(percent) / 100)
}
