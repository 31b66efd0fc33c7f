//! Missing keys: a notice of limits whose key many of their requests lack.
//!
//! ```text
//!   counters --each 5 s---> since the hour began: above 40 % of 100 requests or more
//!                                                          --> RK-W104, once an hour
//! ```
//!
//! Nothing is added to the path of a request: the counters of the metrics are read. A limit of the
//! policy, which has 1 MiB at most, takes 40 bytes. A new policy begins a new hour.

use std::collections::BTreeMap;
use std::time::Duration;

use ratekeeper_core::LimitId;
use ratekeeper_policy::{Policy, Role};

use crate::context::{NoticeHour, ServiceContext};
use crate::observe::metrics::KeyCounts;

/// How often the counters are read.
pub(super) const LOOK: Duration = Duration::from_secs(5);
/// Percentage of requests above which a missing key is worth a notice.
const PERCENT: u64 = 40;
/// Minimum number of requests of a limit in an hour.
const MIN_REQUESTS: u64 = 100;
/// Maximum number of limits that a notice names.
const MAX_NAMED: usize = 3;

impl KeyCounts {
    fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            missing: self.missing.saturating_sub(before.missing),
        }
    }

    fn is_worth_a_notice(self) -> bool {
        self.requests >= MIN_REQUESTS && self.missing * 100 > self.requests * PERCENT
    }
}

/// The limits of an hour.
#[derive(Clone, Debug, Default)]
pub(super) struct HourCounts {
    hour: NoticeHour,
    limits: BTreeMap<LimitId, Looked>,
}

/// The counts of a limit, when the counters were read.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    /// At the beginning of the hour; `None` if the limit had its notice.
    begin: Option<KeyCounts>,
    last: KeyCounts,
}

/// A limit that is worth a notice, with its counts of the hour.
struct LimitCounts {
    limit: LimitId,
    counts: KeyCounts,
}

impl HourCounts {
    /// Returns the limits that are worth a notice now.
    fn look(
        &mut self,
        hour: NoticeHour,
        counts: impl Iterator<Item = (LimitId, KeyCounts)>,
    ) -> Vec<LimitCounts> {
        let begins = self.hour != hour;
        self.hour = hour;
        let (mut found, mut limits) = (Vec::new(), BTreeMap::new());
        for (limit, now) in counts {
            // The counters of a new limit begin at zero.
            let known = self.limits.remove(&limit);
            let last = known.unwrap_or_default().last;
            let mut begin = match known {
                Some(known) if !begins => known.begin,
                _ => Some(last),
            };
            let since = begin.map(|begin| now.since(begin));
            if let Some(since) = since.filter(|since| since.is_worth_a_notice()) {
                begin = None;
                found.push(LimitCounts {
                    limit,
                    counts: since,
                });
            }
            limits.insert(limit, Looked { begin, last: now });
        }
        self.limits = limits; // those that left the policy are forgotten
        found
    }

    /// Gives the notice of limits.
    pub(super) fn watch(&mut self, shared: &ServiceContext) {
        let policy = shared.keeper.policy();
        let hour = NoticeHour::new(policy.version, shared.now());
        // An alternative sees the requests of its limit again.
        let rules = policy.rules.iter();
        let each = rules
            .filter(|rule| matches!(rule.role, Role::Limit))
            .map(|rule| {
                let id = rule.limit.id;
                (id, shared.observers.metrics.key_counts(id))
            });
        let found = self.look(hour, each);
        shared.sink.notices(notice(&policy, &found));
    }
}

/// Returns the notice; `None` if there is no limit to name.
fn notice(policy: &Policy, found: &[LimitCounts]) -> Option<String> {
    let named = found.iter().take(MAX_NAMED).map(|of| {
        let rule = policy.rules.iter().find(|rule| rule.limit.id == of.limit)?;
        let parts: Vec<String> = rule.key_parts().map(ToString::to_string).collect();
        let (name, parts) = (&rule.limit.name, parts.join(", "));
        let KeyCounts { missing, requests } = of.counts;
        Some(format!("limit `{name}` {missing} of {requests} ({parts})"))
    });
    let mut named: Vec<String> = named.collect::<Option<_>>()?;
    if found.len() > MAX_NAMED {
        named.push(format!("and {} more limits", found.len() - MAX_NAMED));
    }
    let text = named.join(", ");
    (!found.is_empty()).then(|| {
        format!(
            "RK-W104: requests of this hour lack the key of their limit, so `missing_key` decides \
             for them: {text}; look whether the proxy or the application still sends it"
        )
    })
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Nanos, Time};

    use super::*;

    const API: LimitId = LimitId::new(3);

    fn counts(requests: u64, missing: u64) -> KeyCounts {
        KeyCounts { requests, missing }
    }

    fn hour(version: u32, minutes: u64) -> NoticeHour {
        NoticeHour::new(version, Time::ZERO + Nanos::from_secs(minutes * 60))
    }

    #[test]
    fn more_than_forty_percent_of_a_hundred_requests_are_worth_a_notice() {
        for (requests, missing, expected) in [
            (0, 0, false),
            (99, 99, false),
            (100, 40, false),
            (100, 41, true),
            (1_000_000, 400_000, false),
            (1_000_000, 400_001, true),
        ] {
            let counts = counts(requests, missing);
            assert_eq!(counts.is_worth_a_notice(), expected, "{counts:?}");
        }
    }

    #[test]
    fn a_limit_has_one_notice_in_an_hour_of_a_policy() {
        let mut hours = HourCounts::default();
        let mut look = |hour, requests, missing| {
            let found = hours.look(hour, std::iter::once((API, counts(requests, missing))));
            found.first().map(|of| of.counts)
        };
        assert_eq!(look(hour(1, 0), 90, 90), None, "only 90 requests");
        assert_eq!(look(hour(1, 1), 110, 90), Some(counts(110, 90)));
        assert_eq!(look(hour(1, 59), 9_000, 8_000), None, "once");
        assert_eq!(look(hour(1, 60), 9_010, 8_010), None, "of this hour: 10");
        assert_eq!(look(hour(1, 61), 9_100, 8_100), Some(counts(100, 100)));
        assert_eq!(look(hour(1, 62), 9_900, 8_900), None, "once");
        assert_eq!(look(hour(2, 63), 10_000, 8_900), None, "it sends the key");
        assert_eq!(look(hour(2, 64), 10_100, 9_000), Some(counts(200, 100)));
    }
}
