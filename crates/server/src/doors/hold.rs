//! Hold: answers held back until the moment that a queue has granted.
//!
//! ```text
//!   moments   5.0 s   5.2 s   5.4 s        what the limits have promised to this line
//!   line      first   second  third        requests with the same limits, keys and costs
//!               |        '- leaves: the third has 5.2 s now, and 5.4 s is given back
//!               '- the only one with a timer; when it goes, the next has one
//! ```
//!
//! Requests with the same costs under the same keys and limits may change places, because the
//! limits cannot tell them apart. So when a request leaves, all behind it move up, and the last
//! moment of the line becomes free. It is given back if the limit has promised no later moment;
//! otherwise it stays for the next request that joins, until it has passed. A shared store cannot
//! take moments back.
//!
//! The number of answers held back is bounded by `[listen] max_held`; beyond it a request is
//! refused, and its charge is given back.

mod charges;
mod queue;

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Answer;
use ratekeeper_core::{LimitId, Nanos, Time};
use ratekeeper_store::{AnyStore, Settle, Store};
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) use charges::lets_wait;
use charges::{charges_of, take_back, unpromised};
pub(crate) use queue::{DEFAULT_MAX_HELD, HoldEnd, HoldQueue};
use queue::{HeldRequest, PromisedMoment};

use crate::context::ServiceContext;
use crate::observe::denial_log::LoggedRequest;
use crate::observe::metrics::Protocol;
use crate::serve::listener::Caller;

/// A place in a line; dropping it leaves the line.
#[derive(Debug)]
struct LinePlace {
    shared: Arc<ServiceContext>,
    charges: Box<[u8]>,
    /// The limit that asks for the longest wait.
    limit: LimitId,
    number: u64,
    first: Arc<Notify>,
    answer: Answer,
    joined: Time,
    end: HoldEnd,
}

/// Takes a place in line for a request that `limit` lets pass after `delay`; refuses it if too many
/// requests wait.
async fn join(
    shared: &Arc<ServiceContext>,
    answer: Answer,
    limit: LimitId,
    delay: Nanos,
) -> Result<LinePlace, Answer> {
    let hold = &shared.hold;
    let now = shared.now();
    let charges = charges_of(&answer);
    let first = Arc::new(Notify::new());
    let number = {
        let mut lines = hold.lines.lock();
        if lines.held >= hold.most {
            None
        } else {
            lines.held += 1;
            *lines.by_limit.entry(limit).or_default() += 1;
            lines.next += 1;
            let number = lines.next;
            let line = lines.by_charges.entry(charges.clone()).or_default();
            line.join(
                HeldRequest {
                    number,
                    first: Arc::clone(&first),
                },
                PromisedMoment {
                    at: now + delay,
                    answer: answer.clone(),
                },
            );
            Some(number)
        }
    };
    let Some(number) = number else {
        give_back(shared, &answer).await;
        hold.count_end(HoldEnd::Refused);
        return Err(answer.turned_away());
    };
    Ok(LinePlace {
        shared: Arc::clone(shared),
        charges,
        limit,
        number,
        first,
        answer,
        joined: now,
        end: HoldEnd::Left,
    })
}

/// Counts a decided request, and holds its answer back until the moment that its limits grant; then
/// `answer` is the one of that moment.
pub(super) async fn hold_back(
    shared: &Arc<ServiceContext>,
    caller: Caller<'_>,
    protocol: Protocol,
    request: LoggedRequest<'_>,
    answer: &mut Answer,
) {
    let delayed_by = answer.delayed_by().filter(|_| answer.allowed());
    let Some((by, delay)) = delayed_by.filter(|(_, wait)| *wait > Nanos::ZERO) else {
        return shared.record(protocol, request, answer);
    };
    let limit = by.rule.limit.id;
    // Boxed apart from the connection, because most requests need no wait.
    Box::pin(async {
        match join(shared, answer.clone(), limit, delay).await {
            Err(refused) => {
                shared.record(protocol, request, &refused);
                *answer = refused;
            }
            Ok(place) => {
                shared.record(protocol, request, &place.answer);
                *answer = place.wait(caller).await;
            }
        }
    })
    .await;
}

impl LinePlace {
    /// Returns the answer at the granted moment; a refusal if the service stops before.
    async fn wait(mut self, caller: Caller<'_>) -> Answer {
        let _held_back = caller.pulse.hold_back();
        let mut closing = self.shared.hold.closing.subscribe();
        loop {
            let now = self.shared.now();
            let (at, is_first) = self.standing(now);
            let end = *closing.borrow_and_update();
            if end.is_some_and(|end| at > end) {
                self.end = HoldEnd::Refused;
                return self.answer.clone().turned_away();
            }
            tokio::select! {
                () = sleep(Duration::from_nanos(at.since(now).as_nanos())), if is_first => break,
                () = self.first.notified() => {}
                _ = closing.changed() => {} // never an error: this holds the sender
            }
        }
        self.end = HoldEnd::Released;
        let waited = self.shared.now().since(self.joined);
        let waited = waited.max(self.answer.delay());
        self.answer.clone().held_for(waited)
    }

    /// Returns its moment, and true if no request stands before it.
    fn standing(&self, now: Time) -> (Time, bool) {
        let lines = self.shared.hold.lines.lock();
        let line = lines.by_charges.get(&self.charges);
        let found = line.and_then(|line| {
            let index = line.index_of(self.number)?;
            Some((line.moments.get(index)?.at, index == 0))
        });
        // It stands there as long as it lives.
        found.unwrap_or((now, true))
    }
}

/// Leaves the line; those behind move up.
impl Drop for LinePlace {
    fn drop(&mut self) {
        let (shared, now) = (&self.shared, self.shared.now());
        shared.hold.count_end(self.end);
        {
            let mut guard = shared.hold.lines.lock();
            let lines = &mut *guard;
            lines.held -= 1;
            if let Entry::Occupied(mut length) = lines.by_limit.entry(self.limit) {
                *length.get_mut() -= 1;
                if *length.get() == 0 {
                    length.remove();
                }
            }
            let Some(line) = lines.by_charges.get_mut(&self.charges) else {
                return; // it stands there as long as it lives
            };
            line.leave(self.number, self.end);
            line.give_back_spare(shared.keeper.store(), now);
            if line.waiting.is_empty() {
                lines.by_charges.remove(&self.charges);
            }
        }
        if self.end == HoldEnd::Released {
            return;
        }
        shared.keeper.withdraw(&self.answer);
        // Its moment went to the requests behind it; its other charges go back.
        settle_unpromised(shared, &self.answer, now);
    }
}

/// Gives back the charges of limits without a queue, in a task if the store is shared.
fn settle_unpromised(shared: &Arc<ServiceContext>, answer: &Answer, now: Time) {
    match shared.keeper.store() {
        AnyStore::Memory(memory) => memory.settle_now(Settle, &unpromised(answer), now),
        AnyStore::Redis(_) => {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let (shared, answer) = (Arc::clone(shared), answer.clone());
                runtime.spawn(async move {
                    let charges = unpromised(&answer);
                    let refunded = shared.keeper.store().correct(&charges, now).await;
                    // An error: the charge stays, which admits less.
                    drop(refunded);
                });
            }
        }
    }
}

/// Gives back every charge of a request whose client has left before it was served.
pub(super) fn give_back_left(shared: &Arc<ServiceContext>, answer: &Answer) {
    let now = shared.now();
    shared.keeper.withdraw(answer);
    take_back(shared.keeper.store(), answer, now);
    settle_unpromised(shared, answer, now);
}

/// Gives back every charge of a request that is not served after all.
pub(super) async fn give_back(shared: &ServiceContext, answer: &Answer) {
    let now = shared.now();
    shared.keeper.withdraw(answer);
    let store = shared.keeper.store();
    take_back(store, answer, now);
    // An error: the charge stays, which admits less.
    let _ = store.correct(&unpromised(answer), now).await;
}
