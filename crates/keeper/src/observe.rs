//! Observers of decisions, for the facades `metrics` and `tracing`.
//!
//! ```text
//!   Observed::new(store, Metrics::default())   ratekeeper_decisions_total{limit, mode, outcome}
//!   Observed::new(store, Events)               DEBUG refused limit=.. mode=.. retry_after_ms=..
//!   Observed::new(store, (Events, |charge, decision| ..))      both, and a hook of your own
//! ```
//!
//! No key is in an event or a label: the name of a limit and words of a closed set are.

#[cfg(feature = "metrics")]
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "metrics")]
use arc_swap::ArcSwap;
#[cfg(feature = "tracing")]
use ratekeeper_core::Nanos;
use ratekeeper_core::{Charge, Decision, Verdict};
#[cfg(feature = "metrics")]
use ratekeeper_core::{LimitId, Mode};
use ratekeeper_store::Observer;

/// Returns the name of the charged limit. Numbers of a plan or an override belong to it:
/// `api=20000/1m` is the limit `api`.
pub(crate) fn name_of<'a>(charge: &Charge<'a>) -> &'a str {
    let name = &*charge.limit.name;
    name.split_once('=').map_or(name, |(limit, _)| limit)
}

/// Reports refusals as events of `tracing`, at the level `DEBUG`, and everything else at `TRACE`,
/// with the target `ratekeeper`.
///
/// ```
/// use ratekeeper::Events;
/// use ratekeeper::core::{Gcra, Quota};
/// use ratekeeper::store::{MemoryConfig, MemoryStore, Observed};
///
/// // For `Limits::new` or `Keeper::new`:
/// let store = Observed::new(MemoryStore::new(MemoryConfig::default()), Events);
/// ```
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Events;

#[cfg(feature = "tracing")]
impl Observer for Events {
    fn decided(&self, charge: &Charge<'_>, decision: &Decision) {
        let (limit, mode) = (name_of(charge), charge.mode);
        let cost = charge.cost.get();
        let refused = match decision.verdict {
            Verdict::Allow | Verdict::AllowAfter(_) => {
                let remaining = decision.remaining.get();
                tracing::trace!(target: "ratekeeper", limit, %mode, cost, remaining, "allowed");
                return;
            }
            Verdict::Deny { .. } => "refused",
            Verdict::Ban { .. } | Verdict::Banned { .. } => "refused: the key is banned",
            Verdict::DenyForever => "refused: no wait helps",
        };
        let retry_after_ms = decision.verdict.retry_after().map(Nanos::as_millis_ceil);
        tracing::debug!(target: "ratekeeper", limit, %mode, cost, retry_after_ms, "{refused}");
    }
}

/// Maximum number of limits with counters of their own; the others share the counters of the limit
/// `other`.
#[cfg(feature = "metrics")]
pub const MAX_COUNTED_LIMITS: usize = 10_000;

/// Counts decisions by the recorder of the crate `metrics`, under the names of the service:
/// `ratekeeper_decisions_total`, labelled `limit`, `mode` (enforce, shadow) and `outcome` (allowed,
/// queued, denied). The first 10,000 limits ([`MAX_COUNTED_LIMITS`]) have counters of their own;
/// each set of numbers of a plan or an override counts as one.
///
/// Install the recorder before the first decision: counters are looked up once.
///
/// ```
/// use ratekeeper::store::{MemoryConfig, MemoryStore, Observed};
/// use ratekeeper::{Limits, Metrics, SystemClock, at_once};
/// let store = Observed::new(MemoryStore::new(MemoryConfig::default()), Metrics::default());
/// let limits = Limits::new(store, SystemClock::new());
/// let logins = limits.token_bucket("logins", "5/1m".parse()?)?;
/// assert!(at_once(logins.check("ann")).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct Metrics {
    /// By the number of the limit.
    known: ArcSwap<Vec<Option<LimitCounters>>>,
    /// Held while a limit is added.
    adding: Mutex<()>,
}

/// The counters of one limit, by mode and outcome.
#[cfg(feature = "metrics")]
#[derive(Clone)]
struct LimitCounters(Arc<[[metrics::Counter; 3]; 2]>);

#[cfg(feature = "metrics")]
impl LimitCounters {
    fn new(limit: &str) -> Self {
        let counters = |mode: Mode| {
            ["allowed", "queued", "denied"].map(|outcome| {
                metrics::counter!(
                    "ratekeeper_decisions_total",
                    "limit" => limit.to_owned(),
                    "mode" => mode.to_string(),
                    "outcome" => outcome,
                )
            })
        };
        Self(Arc::new([counters(Mode::Enforce), counters(Mode::Shadow)]))
    }

    fn count(&self, mode: Mode, decision: &Decision) {
        let outcomes = &self.0[usize::from(mode == Mode::Shadow)];
        let outcome = match decision.verdict {
            Verdict::Allow => &outcomes[0],
            Verdict::AllowAfter(_) => &outcomes[1],
            _ => &outcomes[2],
        };
        outcome.increment(1);
    }
}

#[cfg(feature = "metrics")]
impl Metrics {
    /// Adds the counters of a limit, unless another thread just did.
    #[cold]
    fn add(&self, id: LimitId, name: &str) -> LimitCounters {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        // One more than the maximum: the limit `other`.
        let (at, name) = if id.index() < MAX_COUNTED_LIMITS {
            (id.index(), name)
        } else {
            (MAX_COUNTED_LIMITS, "other")
        };
        let mut known = Vec::clone(&self.known.load());
        if known.len() <= at {
            known.resize(at + 1, None);
        }
        let counters = known[at].get_or_insert_with(|| LimitCounters::new(name));
        let counters = counters.clone();
        self.known.store(Arc::new(known));
        counters
    }
}

#[cfg(feature = "metrics")]
impl Observer for Metrics {
    fn decided(&self, charge: &Charge<'_>, decision: &Decision) {
        let at = charge.limit.id.index().min(MAX_COUNTED_LIMITS);
        if let Some(Some(counters)) = self.known.load().get(at) {
            return counters.count(charge.mode, decision);
        }
        let counters = self.add(charge.limit.id, name_of(charge));
        counters.count(charge.mode, decision);
    }
}

#[cfg(feature = "metrics")]
impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics")
            .field("limits", &self.known.load().iter().flatten().count())
            .finish_non_exhaustive()
    }
}

#[cfg(all(feature = "metrics", feature = "tracing"))]
#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use ratekeeper_core::{Gcra, Quota};
    use ratekeeper_store::{MemoryConfig, MemoryStore, Observed};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::{Limits, ManualClock, at_once};

    fn limits<O: Observer>(observer: O) -> Limits<Observed<MemoryStore, O>, ManualClock> {
        let store = MemoryStore::new(MemoryConfig::default());
        Limits::new(Observed::new(store, observer), ManualClock::default())
    }

    /// Asks for ten permits of three, one by one, and for four at once.
    fn ask<O: Observer>(limits: &Limits<Observed<MemoryStore, O>, ManualClock>) {
        let quota = Quota::per_hour(3);
        let bucket = limits.token_bucket("logins", quota).unwrap();
        let queue = Gcra::leaky_queue(quota, 1).unwrap();
        let queue = limits.limit("mails", queue).unwrap();
        for _ in 0..10 {
            let _ = at_once(bucket.check("ann@example.com"));
            let _ = at_once(queue.check(()));
            let _ = at_once(bucket.peek("ann@example.com"));
        }
        let _ = at_once(bucket.check_n("ann@example.com", 4));
    }

    #[test]
    fn decisions_are_counted_by_limit_mode_and_outcome() {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || ask(&limits(Metrics::default())));
        let counted = recorder.snapshotter().snapshot().into_vec();
        let mut counted: Vec<String> = counted
            .into_iter()
            .filter(|(.., value)| *value != DebugValue::Counter(0))
            .map(|(key, _, _, value)| {
                let labels = key.key().labels().map(metrics::Label::value);
                let labels: Vec<_> = labels.collect();
                format!("{} {} {value:?}", key.key().name(), labels.join(" "))
            })
            .collect();
        counted.sort();
        assert_eq!(
            counted,
            [
                "ratekeeper_decisions_total logins enforce allowed Counter(3)",
                "ratekeeper_decisions_total logins enforce denied Counter(8)",
                "ratekeeper_decisions_total mails enforce allowed Counter(1)",
                "ratekeeper_decisions_total mails enforce denied Counter(8)",
                "ratekeeper_decisions_total mails enforce queued Counter(1)",
            ]
        );
    }

    #[test]
    fn limits_beyond_the_maximum_share_their_counters() {
        let recorder = DebuggingRecorder::new();
        metrics::with_local_recorder(&recorder, || {
            let metrics = Metrics::default();
            let names = [0, MAX_COUNTED_LIMITS, MAX_COUNTED_LIMITS + 7];
            for index in names {
                let id = LimitId::new(u32::try_from(index).unwrap());
                let _counters = metrics.add(id, "any");
            }
            assert_eq!(format!("{metrics:?}"), "Metrics { limits: 2, .. }");
        });
        let counted = recorder.snapshotter().snapshot().into_vec();
        let is_other = |label: &metrics::Label| label.value() == "other";
        let others = counted
            .iter()
            .filter(|(key, ..)| key.key().labels().any(is_other));
        assert_eq!((counted.len(), others.count()), (12, 6));
    }

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn refusals_are_events_without_keys_and_a_hook_sees_them() {
        let log = Log::default();
        let refused = Mutex::new(0);
        let hook = |_: &Charge<'_>, decision: &Decision| {
            *refused.lock().unwrap() += u32::from(!decision.verdict.allows());
        };
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(log.clone())
            .without_time()
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || ask(&limits((Events, hook))));
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 16, "{text}");
        let first =
            r#"DEBUG ratekeeper: refused limit="mails" mode=enforce cost=1 retry_after_ms=1200000"#;
        assert_eq!(lines[0], first);
        let last = r#"limit="logins" mode=enforce cost=4"#;
        assert!(
            lines[15].contains("no wait helps") && lines[15].ends_with(last),
            "{text}"
        );
        assert!(!text.contains("ann"), "{text}");
        assert_eq!(*refused.lock().unwrap(), 16);
    }
}
