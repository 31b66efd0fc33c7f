//! Admit: the charges of a request, made at a store that may be far away.
//!
//! * A store that cannot answer causes no error of the server. Behind a `Fallback` it always
//!   answers. Alone, the `on_store_error` of each limit decides: `allow` passes, uncounted; `deny`
//!   refuses as the limit refuses; and so does `local`, because there is no memory that could hold
//!   a share.
//! * A client that goes away while a store is asked for permits leaves nothing on loan: a task
//!   completes the call, and the loan is given back.

use std::future::{Future, pending};
use std::panic::resume_unwind;

use ratekeeper_core::{
    Algorithm as _, Charge, Decision, LeaseId, Lend, Mode, Nanos, Outage, Time, Verdict,
};
use ratekeeper_store::{Decisions, Store, StoreError};
use tokio::runtime::Handle;

use super::Boxed;
use crate::permit::lends;
use crate::tower::ledger::new_lease;

/// Retry time of a refusal while the store does not answer.
const RETRY: Nanos = Nanos::SECOND;

/// The result of a question to a store.
pub(crate) struct Admitted {
    pub(crate) decisions: Decisions,
    pub(crate) lease: Option<LeaseId>,
    /// Set if the store could not answer.
    #[cfg_attr(
        not(feature = "policy"),
        expect(dead_code, reason = "only the layer of a policy passes it on")
    )]
    pub(crate) error: Option<StoreError>,
}

/// Charges the rates and takes permits, all or none; if the store cannot answer, follows the
/// limits' settings for that case.
pub(crate) async fn admit<S: Store>(store: &S, charges: &[Charge<'_>], now: Time) -> Admitted {
    let lease = charges.iter().any(lends).then(new_lease);
    let lend = lease.map_or(Lend::Unnamed, Lend::To);
    let decided = store.acquire(charges, lend, now).await;
    Admitted::of(decided, lease, charges)
}

impl Admitted {
    /// Returns the result of a store's answer.
    pub(crate) fn of(
        result: Result<Decisions, StoreError>,
        lease: Option<LeaseId>,
        charges: &[Charge<'_>],
    ) -> Self {
        match result {
            Ok(decisions) => Self {
                decisions,
                lease,
                error: None,
            },
            Err(error) => Self {
                decisions: without_store(charges),
                lease: None,
                error: Some(error),
            },
        }
    }
}

/// Returns the decisions of limits for a store that cannot answer.
fn without_store(charges: &[Charge<'_>]) -> Decisions {
    let passes = |charge: &Charge<'_>| charge.limit.outage == Outage::Allow;
    let each = charges.iter().map(|charge| {
        if passes(charge) {
            Decision::without_times(Verdict::Allow, charge.limit.algorithm.capacity())
        } else {
            Decision::deny_all(RETRY)
        }
    });
    let mut enforced = charges.iter().filter(|it| it.mode == Mode::Enforce);
    Decisions {
        each: each.collect(),
        made: Time::ZERO, // nothing was charged
        mark: None,
        admitted: enforced.all(passes),
        without_store: true,
    }
}

/// Completes a call for permits even if its client goes away, so that they come back.
pub(crate) fn completed<T: Send + 'static>(
    asking: impl Future<Output = T> + Send + 'static,
) -> Boxed<T> {
    let Ok(runtime) = Handle::try_current() else {
        return Box::pin(asking);
    };
    let task = runtime.spawn(asking);
    Box::pin(async move {
        match task.await {
            Ok(decided) => decided,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => pending().await, // the runtime ends, and this with it
        }
    })
}
