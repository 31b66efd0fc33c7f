//! Stream: server-sent events with the state of each second, for open pages.
//!
//! ```text
//!                             +--> [one state] --> body of a response --> page
//!   second --> state, made once
//!                             +--> [full: the state is dropped] --> slow page
//! ```
//!
//! * A reader that is slow loses states: one waits for it, and one is in the buffer of its
//!   connection. A reader that takes no byte is closed as any other connection
//!   ([`crate::serve::pulse`]).
//! * There are at most [`MAX_STREAMS`], and never more than half of the connections of the admin
//!   listener, so that other calls find room beside them.
//! * They end when the service stops, before requests in flight are awaited.
//!
//! Source: WHATWG, "HTML", section 9.2, "Server-sent events".

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response, header};
use hyper::body::{Body, Frame};
use ratekeeper_policy::{Policy, Rule};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::last_state;
use super::state::{CHART_SPANS, by_refusals};
use crate::admin::query::Query;
use crate::admin::{bans, top};
use crate::context::ServiceContext;
use crate::doors::problem::Problem;
use crate::doors::put_field;
use crate::serve::listener::Caller;
use crate::serve::pulse::{HeldBack, InFlight};

/// Time between two states.
const SECOND: Duration = Duration::from_secs(1);
/// Maximum number of keys of a limit, and of its bans.
const MAX_KEYS: usize = 20;

/// The body of a stream.
#[derive(Debug)]
pub(crate) struct StateStream {
    states: mpsc::Receiver<Bytes>,
    in_flight: InFlight,
    /// Set while there is nothing to send, so that a page that leaves is noticed.
    waits: Option<HeldBack>,
}

impl Body for StateStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Poll::Ready(state) = this.states.poll_recv(context) else {
            if this.waits.is_none() {
                this.waits = Some(this.in_flight.hold_back());
            }
            return Poll::Pending;
        };
        this.waits = None;
        Poll::Ready(state.map(|state| Ok(Frame::data(state))))
    }
}

/// `GET /v1/dashboard/stream?limit=NAME`: the state each second, with the keys and the charts of one
/// limit. Without a name it is the limit that refuses most now, and if none has that name, the one
/// that refuses most in each second.
pub(in crate::admin) async fn open(
    shared: &Arc<ServiceContext>,
    caller: Caller<'_>,
    query: &str,
) -> Result<Response<StateStream>, Problem> {
    let query = Query::read(query, &["limit"])?;
    let limit: Option<Arc<str>> = query.text("limit").map(Arc::from);
    let first = shared.apart(move |shared| {
        let policy = shared.keeper.policy();
        let most = || most_refusing(shared, &policy).map(|rule| Arc::clone(&rule.limit.name));
        let limit = limit.or_else(most);
        let first = event(shared, limit.as_deref());
        (limit, first)
    });
    let (limit, first) = first.await.unwrap_or_default();
    let states = shared.streams.add(limit, first)?;
    let mut response = Response::new(StateStream {
        states,
        in_flight: InFlight::begin(caller.pulse),
        waits: None,
    });
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // nginx would keep states back until its buffer is full.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        put_field(&mut response, name, value);
    }
    Ok(response)
}

/// Sends the state of each second to the open streams, until the service ends.
pub(crate) async fn publish(shared: Arc<ServiceContext>) {
    let mut tick = interval(SECOND);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        if shared.streams.count() == 0 {
            continue;
        }
        let send = |shared: &Arc<ServiceContext>| shared.streams.send(|limit| event(shared, limit));
        shared.apart(send).await;
    }
}

/// Returns the event of this second: the state, and the details of a limit.
fn event(shared: &ServiceContext, limit: Option<&str>) -> Bytes {
    let policy = shared.keeper.policy();
    let named = |rule: &&Rule| Some(&*rule.limit.name) == limit;
    let rule = policy.rules.iter().find(named);
    let rule = rule.or_else(|| most_refusing(shared, &policy));
    let details = rule.map_or(Value::Null, |rule| details(shared, rule));
    let mut event = b"data: {\"state\":".to_vec();
    event.extend_from_slice(&last_state(shared)); // on one line, as all JSON of this process
    event.extend_from_slice(format!(",\"limit\":{details}}}\n\n").as_bytes());
    event.into()
}

/// Returns the limit that refuses most.
fn most_refusing<'p>(shared: &ServiceContext, policy: &'p Policy) -> Option<&'p Rule> {
    let first = by_refusals(shared, policy).into_iter().next();
    let first = first.map(|limit| limit.rule);
    first.or_else(|| policy.rules.first()) // before the first reading of the counters
}

/// Returns the numbers of one limit: the most refused keys, its charts, and the banned keys.
fn details(shared: &ServiceContext, rule: &Rule) -> Value {
    let recent = shared.observers.history.recent(rule.limit.id);
    let how = shared.keeper.policy().settings.reveal_keys;
    json!({
        "name": &*rule.limit.name,
        "top": top::most_refused(shared, rule, MAX_KEYS),
        "counts": recent.map(|recent| recent.ranges(CHART_SPANS)),
        "bans": bans::of_memory(shared, rule, MAX_KEYS),
        "by_hand": bans::by_hand_shown(shared, rule, MAX_KEYS, how),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Streams;
    use crate::doors::problem::TOO_MANY_STREAMS;

    fn state() -> Bytes {
        Bytes::from_static(b"state")
    }

    #[test]
    fn streams_are_bounded_and_one_that_ends_makes_room() {
        for (connections, most) in [(0, 1), (1, 1), (10, 5), (96, 32), (u32::MAX, 32)] {
            let streams = Streams::beside(connections);
            let mut open: Vec<_> = (0..most)
                .map(|_| streams.add(None, state()).unwrap())
                .collect();
            assert_eq!(streams.count(), most);
            let refused = streams.add(None, state()).unwrap_err();
            assert_eq!(refused.kind, TOO_MANY_STREAMS);
            drop(open.pop());
            assert_eq!(streams.count(), most - 1);
            assert!(streams.add(None, state()).is_ok(), "{connections}");
        }
    }

    #[test]
    fn a_slow_reader_loses_states_and_a_limit_is_made_once_for_its_viewers() {
        let streams = Streams::beside(10);
        let mut slow = streams.add(Some("api".into()), state()).unwrap();
        let mut quick = streams.add(Some("api".into()), state()).unwrap();
        assert_eq!(quick.try_recv(), Ok(state()));
        let made = std::cell::Cell::new(0);
        for second in 1..=3 {
            streams.send(|limit| {
                assert_eq!(limit, Some("api"));
                made.set(made.get() + 1);
                Bytes::from(second.to_string())
            });
            assert_eq!(quick.try_recv(), Ok(Bytes::from(second.to_string())));
        }
        assert_eq!(made.get(), 3, "once a second");
        assert_eq!(slow.try_recv(), Ok(state()));
        assert!(slow.try_recv().is_err(), "the others are dropped");
    }

    #[test]
    fn the_end_of_the_service_ends_streams_and_allows_no_others() {
        let streams = Streams::beside(10);
        let mut reader = streams.add(None, state()).unwrap();
        streams.end();
        assert_eq!(reader.blocking_recv(), Some(state()));
        assert_eq!(reader.blocking_recv(), None);
        let refused = streams.add(None, state()).unwrap_err();
        assert!(refused.detail.contains("stopping"), "{refused}");
    }
}
