//! Expired reservations: charges that waited for a report until their time was over, in the log.
//!
//! ```text
//!   keeper --each second--> expired since the last look --first of a minute--> settle.expired
//!                                                      \--others-------------> counted in the next
//! ```
//!
//! Not where several processes share a store (`nodes` above 1): the report may have reached another
//! one, so that no process knows. The metrics of all together do.

use std::collections::HashMap;
use std::time::Duration;

use ratekeeper::ExpiredReservations;
use ratekeeper_core::{LimitId, Nanos, Time};

use crate::context::ServiceContext;

/// How often expired reservations are looked for.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// Minimum time between two lines of a limit.
const PERIOD: Nanos = Nanos::from_secs(60);

/// The lines of each limit; as many as the policies of this process have had limits.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpiryLog(HashMap<LimitId, ExpiryLine>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ExpiryLine {
    /// Expired since the last line.
    count: u64,
    units: u64,
    /// When the next may be written.
    next: Time,
}

impl ExpiryLog {
    /// Returns the lines that are due, with the charges that expired since the last ones.
    fn look(&mut self, expired: Vec<ExpiredReservations>, now: Time) -> Vec<(LimitId, ExpiryLine)> {
        for one in expired {
            let line = self.0.entry(one.limit).or_default();
            line.count += one.count;
            line.units = line.units.saturating_add(one.units);
        }
        let due = self.0.iter_mut();
        let due = due.filter(|(_, line)| line.count > 0 && line.next <= now);
        due.map(|(limit, line)| {
            let next = now + PERIOD;
            let new = ExpiryLine {
                next,
                ..ExpiryLine::default()
            };
            (*limit, std::mem::replace(line, new))
        })
        .collect()
    }

    /// Reports expired reservations.
    pub(super) fn report(&mut self, shared: &ServiceContext) {
        let (keeper, now) = (&shared.keeper, shared.now());
        let expired = keeper.reservations().take_expired(now);
        let store = keeper.store().shared();
        if store.is_some_and(|store| store.nodes().get() > 1) {
            return;
        }
        let due = self.look(expired, now);
        if due.is_empty() {
            return;
        }
        let policy = keeper.policy();
        for (id, line) in due {
            let mut rules = policy.rules.iter();
            if let Some(rule) = rules.find(|rule| rule.limit.id == id) {
                let (limit, count, units) = (&*rule.limit.name, line.count, line.units);
                tracing::warn!(event = "settle.expired", limit, count, units);
            }
        }
    }
}
