//! Conditions: the entries before a charge whose limit counts values, or keeps a part for requests
//! with priority.
//!
//! ```text
//!   distinct   [ accounts+seen  ip a1  once     ] [ accounts  ip  enforce ]
//!   priority   [ api            ip 20  headroom ] [ api       ip  enforce ]
//! ```

use ratekeeper_core::{Algorithm as _, KeyBuilder, Mode, Permits};

use super::{Charges, Entry, Policy};
use crate::Rule;
use crate::model::keys::key_writer::{KeyNumber, KeySubject, KeyWriter};

impl Policy {
    /// Adds the condition or the headroom of an entry of a rule, if it has one. Returns
    /// [`KeySubject::Skip`] or [`KeySubject::Deny`] if the request has no value to count, and is
    /// not charged for that reason.
    pub(super) fn add_condition<'p>(
        &'p self,
        rule: &'p Rule,
        entry: &Entry,
        number: KeyNumber,
        keys: &mut KeyWriter<'p, '_>,
        out: &mut Charges,
    ) -> KeySubject {
        if let Some(priority) = rule.priority.as_deref()
            && entry.cost > Permits::ZERO
            && !priority.holds(keys.request())
        {
            let capacity = out.limit(entry, rule).algorithm.capacity();
            out.entries.push(Entry {
                cost: priority.headroom(capacity),
                mode: Mode::Headroom,
                ..entry.clone()
            });
        }
        let Some(index) = rule.distinct else {
            return KeySubject::Known;
        };
        let Some(seen) = self.rules.get(index as usize) else {
            return KeySubject::Known;
        };
        let start = out.bytes.end();
        if rule.key.is_empty() {
            // The first part chooses the slot on a cluster: that of the limit, which is its name.
            KeyBuilder::new(&mut out.bytes).part(rule.limit.name.as_bytes());
        }
        match keys.write(seen, number, &mut out.bytes) {
            KeySubject::Skip => return KeySubject::Skip,
            KeySubject::Deny => {
                out.add_missing(entry.rule, rule);
                return KeySubject::Deny;
            }
            KeySubject::Known | KeySubject::StandIn => {}
        }
        out.entries.push(Entry {
            rule: index,
            key: start..out.bytes.end(),
            cost: entry.cost.min(Permits::ONE),
            mode: Mode::Once,
            ..entry.clone()
        });
        KeySubject::Known
    }
}
