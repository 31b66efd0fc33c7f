//! Conformance: runs the store's own table of stories against a user's server.
//!
//! ```text
//!   row --> a store with a prefix of its own --> compare --> erase --> next row
//!                                                 |         ^
//!                          difference, or a signal +--------+--> end
//! ```
//!
//! Stories have their own time, a day ahead of the server's, so that no key expires during a story.
//! Keys that a kill leaves behind expire within two days.

use ratekeeper_core::{Origin, UnixMicros};
use ratekeeper_store::conformance::{self, Difference};
use ratekeeper_store::{RedisClock, RedisConfig, RedisStore, Store, StoreError};

/// Seconds by which the stories' time is ahead of the server's.
const AHEAD_SECONDS: u64 = 86_400;

/// How the run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Every answer was the one of the table.
    Same,
    /// This answer differed.
    Different(Difference),
    /// The run was interrupted.
    Interrupted,
}

/// How the stories ended, and whether their keys were removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoryReport {
    pub(crate) ending: Ending,
    pub(crate) removed: Result<(), StoreError>,
}

/// Runs every row against a store of its own and removes the keys that it wrote, whatever the
/// outcome. Ends early with the first difference, or with `interrupted`.
///
/// # Errors
/// Returns an error if no store could be made.
pub(crate) async fn compare<S: Store>(
    new_store: impl Fn(usize) -> Result<S, StoreError>,
    interrupted: impl Future<Output = ()>,
    mut on_row: impl FnMut(&'static str, usize),
) -> Result<StoryReport, StoreError> {
    let mut interrupted = std::pin::pin!(interrupted);
    for (number, row) in conformance::rows().into_iter().enumerate() {
        let store = new_store(number)?;
        let ending = tokio::select! {
            biased;
            () = &mut interrupted => Ending::Interrupted,
            answered = row.compare(&store) => match answered {
                Ok(calls) => {
                    on_row(row.name(), calls);
                    Ending::Same
                }
                Err(difference) => Ending::Different(difference),
            },
        };
        let removed = row.erase(&store).await;
        if ending != Ending::Same || removed.is_err() {
            return Ok(StoryReport { ending, removed });
        }
    }
    Ok(StoryReport {
        ending: Ending::Same,
        removed: Ok(()),
    })
}

/// Creates a store for one row, on the time of the stories.
pub(crate) fn store_for(
    config: &RedisConfig,
    now: UnixMicros,
    scratch: &str,
    row: usize,
) -> Result<RedisStore, StoreError> {
    let zero = now.get() / 1_000_000 + AHEAD_SECONDS; // whole seconds
    let mut config = config.clone();
    config.prefix = format!("{scratch}-{row}");
    config.clock = RedisClock::Caller;
    config.origin = Origin::from_unix_nanos(zero.saturating_mul(1_000_000_000));
    RedisStore::new(config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratekeeper_core::{Charge, Lend, Permits, Time};
    use ratekeeper_store::{Decisions, MemoryConfig, MemoryStore, StoreAct};

    use super::*;

    /// A store that lets one more pass than it should, and allows its contents to be examined.
    #[derive(Clone)]
    struct Generous(Arc<MemoryStore>);

    impl Generous {
        fn new() -> Self {
            Self(Arc::new(MemoryStore::new(MemoryConfig::default())))
        }
    }

    /// Returns the charges, each at one less.
    fn cheaper<'a>(charges: &[Charge<'a>]) -> Vec<Charge<'a>> {
        let cheaper = |charge: &Charge<'a>| Charge {
            cost: charge.cost - Permits::ONE,
            ..*charge
        };
        charges.iter().map(cheaper).collect()
    }

    impl Store for Generous {
        async fn settle<A: StoreAct>(
            &self,
            act: A,
            items: &[A::Item<'_>],
            now: Time,
        ) -> Result<A::Answer, StoreError> {
            self.0.settle(act, items, now).await
        }

        async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
            self.0.decide(&cheaper(charges), now).await
        }

        async fn acquire(
            &self,
            charges: &[Charge<'_>],
            lend: Lend,
            now: Time,
        ) -> Result<Decisions, StoreError> {
            self.0.acquire(&cheaper(charges), lend, now).await
        }
    }

    fn run_table<S: Store>(
        new_store: impl Fn() -> S,
        interrupted: impl Future<Output = ()>,
    ) -> (Ending, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut rows = 0;
        let report = compare(
            |_| Ok(new_store()),
            interrupted,
            |_, calls| {
                assert!(calls > 0);
                rows += 1;
            },
        );
        let report = runtime.block_on(report).unwrap();
        assert_eq!(report.removed, Ok(()));
        (report.ending, rows)
    }

    #[test]
    fn a_conforming_store_passes_every_row() {
        let store = || MemoryStore::new(MemoryConfig::default());
        let (ending, rows) = run_table(store, std::future::pending());
        assert_eq!(ending, Ending::Same);
        assert_eq!(rows, conformance::rows().len());
    }

    #[test]
    fn a_store_that_admits_one_too_many_fails_and_is_left_empty() {
        let store = Generous::new();
        let (ending, rows) = run_table(|| store.clone(), std::future::pending());
        let Ending::Different(difference) = ending else {
            panic!("{ending:?}");
        };
        assert_eq!(rows, 0);
        assert_eq!(difference.row, conformance::rows()[0].name());
        assert!(
            difference.call.starts_with("call 1, Decide at "),
            "{difference}"
        );
        assert_ne!(difference.expected, difference.answered);
        assert!(store.0.usage().limits.iter().all(|usage| usage.keys == 0));
    }

    #[test]
    fn an_interrupted_run_leaves_no_keys_behind() {
        let store = Generous::new();
        let (ending, rows) = run_table(|| store.clone(), std::future::ready(()));
        assert_eq!((ending, rows), (Ending::Interrupted, 0));
        assert!(store.0.usage().limits.iter().all(|usage| usage.keys == 0));
    }
}
