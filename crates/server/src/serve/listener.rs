//! Listener: takes connections at a door and keeps each within its bounds.
//!
//! ```text
//!   accept --(a seat?)--> worker --> asleep --bytes--> hyper <--> handle(peer, request)
//!      ^                               ^  |              |
//!      +-- no room: wait, the          +--|-- quiet -----+
//!          kernel queues                  +-- silent too long: close
//! ```
//!
//! A connection that is kept open without a request is *asleep*: only its socket is kept,
//! without the buffers that reading a request takes. It wakes with its next byte.
//!
//! Stopping breaks no request. A connection that is kept open may be shut only when no
//! request is on its way, which only its client knows. So the door stays open a moment
//! longer, and every answer on the way out says `Connection: close`:
//!
//! ```text
//!   stop ---- linger: accept and answer, each answer the last ----> close idle connections
//! ```

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{Empty, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::either::Either;

use super::accept_queue::{AcceptSocket, refuse_handshakes, take_queued};
use super::connection_state::{BoxedError, HeadBounds, NextEvent, State, Upgrade};
use super::connections::{Connections, Seat};
use super::pulse::{InFlight, MaxTicks, Pulse, TICK};
use super::request_body::RequestBody;
use super::tls::ListenerTls;
use super::watched::{Asleep, Wakes, Watched};
use super::woken::when_woken;
use super::workers::Workers;
use crate::addresses::OpenedBy;

/// How long to wait when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the connections of a door.
pub(crate) trait ServeConnection: Send + Sync + 'static {
    /// Serves the connection until it ends, falls silent, has to make room, or the door closes.
    fn serve(self: Arc<Self>, visit: Visit) -> impl Future<Output = ()> + Send;
}

/// One connection at a door.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) spans: Spans,
    pub(crate) stop: watch::Receiver<bool>,
}

/// The times that a door waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// How long connections stay open.
    pub(crate) ticks: MaxTicks,
    /// How long the door stays open after the stop.
    pub(crate) linger: Duration,
}

/// A door of HTTP requests.
#[derive(Debug)]
pub(crate) struct Http<H>(pub(crate) H);

impl<H: Handle> ServeConnection for Http<H> {
    async fn serve(self: Arc<Self>, visit: Visit) {
        serve(self, visit).await;
    }
}

/// The body of an answer of our own: complete from the start.
pub(crate) type Reply = Full<Bytes>;

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) pulse: &'a Arc<Pulse>,
    /// For an answer that switches to another protocol.
    pub(crate) upgrade: &'a Upgrade,
}

/// A request and who sent it. Its head is a reference, because each future that it is moved into
/// copies it.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) head: &'a mut Parts,
    pub(crate) body: RequestBody,
}

/// Answers the requests of a door.
pub(crate) trait Handle: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<BoxedError>> + Send + 'static;

    /// Returns TLS of the listener, if it has certificates.
    fn tls(&self) -> Option<&ListenerTls> {
        None
    }

    /// Returns the bounds of the head of a request.
    fn head_bounds(&self) -> HeadBounds {
        HeadBounds::default()
    }

    /// Returns the client of a connection, of which its first bytes may be about; `None` to close
    /// it.
    fn client(
        &self,
        _: &mut TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = Option<SocketAddr>> + Send {
        ready(Some(peer))
    }

    /// Notes the error of a connection, to which hyper itself may have responded.
    fn failed(&self, _: &hyper::Error) {}

    /// Answers a request.
    fn handle(&self, asked: Asked<'_>) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// A door that accepts connections.
pub(crate) struct Accepting<D> {
    pub(crate) socket: AcceptSocket,
    pub(crate) opened_by: OpenedBy,
    pub(crate) door: Arc<D>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) spans: Spans,
    pub(crate) workers: Arc<Workers>,
    pub(crate) stop: StopSignals,
}

/// When the answers of a listener are its last, and when it accepts no more.
///
/// A socket that the next process gets too is left late, once the requests from before the stop
/// have ended: until then the next process has not begun, and connections would wait.
#[derive(Clone, Debug)]
pub(crate) struct StopSignals {
    /// Each answer from now on is the last of its connection.
    stop: watch::Receiver<bool>,
    /// Sockets that the next process gets are its own from now on.
    leave: watch::Receiver<bool>,
}

impl StopSignals {
    /// Returns the sender of the stop, and the signals before it.
    pub(crate) fn before(leave: &watch::Sender<bool>) -> (watch::Sender<bool>, Self) {
        let (sender, stop) = watch::channel(false);
        let leave = leave.subscribe();
        (sender, Self { stop, leave })
    }
}

impl<D: ServeConnection> Accepting<D> {
    /// Accepts until it has to stop, and a moment longer; `failed` is called for each connection
    /// that the system does not hand over.
    pub(crate) async fn run(&self, failed: impl Fn(&io::Error)) {
        let StopSignals {
            mut stop,
            mut leave,
        } = self.stop.clone();
        let mut closing = pin!(async {
            let _ = stop.wait_for(|stop| *stop).await; // an error: the sender is gone
            match self.opened_by {
                OpenedBy::Us => sleep(self.spans.linger).await,
                OpenedBy::Parent => drop(leave.wait_for(|leave| *leave).await), // likewise
            }
        });
        loop {
            let next = async {
                let open = self.connections.room().await;
                (open, self.socket.accept().await)
            };
            let (open, accepted) = tokio::select! {
                biased;
                () = &mut closing => break,
                next = next => next,
            };
            let Ok(open) = open else {
                return; // the semaphore is closed: nothing may be accepted any more
            };
            match accepted {
                Ok((stream, peer)) => self.start(stream, peer, open),
                Err(error) => {
                    failed(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        if self.opened_by == OpenedBy::Parent {
            return; // the next process accepts the queued connections
        }
        refuse_handshakes(&self.socket);
        while let Some(open) = self.connections.room_now()
            && let Some((stream, peer)) = take_queued(&self.socket)
        {
            self.start(stream, peer, open);
        }
    }

    fn start(&self, stream: StdStream, peer: SocketAddr, open: OwnedSemaphorePermit) {
        let Some(seat) = self.connections.seat(peer.ip(), open) else {
            return; // dropped, and so closed
        };
        let (door, spans, stop) = (Arc::clone(&self.door), self.spans, self.stop.stop.clone());
        self.workers.next().spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                let _ = stream.set_nodelay(true); // a refusal costs speed only
                let visit = Visit {
                    stream,
                    peer,
                    pulse: Arc::clone(&seat.pulse),
                    spans,
                    stop,
                };
                door.serve(visit).await;
            }
            drop::<Seat>(seat);
        });
    }
}

/// State shared by the requests of one connection: one count of references for each connection,
/// so that no request touches a line of memory that another worker writes.
struct Connection<H> {
    door: Arc<Http<H>>,
    peer: SocketAddr,
    pulse: Arc<Pulse>,
    /// True once the service stops: the next answer is the last.
    last: AtomicBool,
    upgrade: Upgrade,
}

/// Serves one connection until it closes, falls silent, or the service stops.
async fn serve<H: Handle>(door: Arc<Http<H>>, visit: Visit) {
    let Visit {
        mut stream,
        peer,
        pulse,
        spans,
        mut stop,
    } = visit;
    let Some(peer) = door.0.client(&mut stream, peer).await else {
        return;
    };
    let stream = match door.0.tls() {
        None => Either::Left(stream),
        Some(tls) => match tls.accept(stream, &pulse).await {
            Some(stream) => Either::Right(Box::new(stream)),
            None => return,
        },
    };
    let bounds = door.0.head_bounds();
    let shared = Arc::new(Connection {
        door,
        peer,
        pulse: Arc::clone(&pulse),
        last: AtomicBool::new(false),
        upgrade: Upgrade::default(),
    });
    let service = || {
        let shared = Arc::clone(&shared);
        service_fn(move |request| answer(Arc::clone(&shared), request))
    };
    let mut state = State::Asleep(Asleep::new(Watched::new(stream, Arc::clone(&pulse))));
    let mut closing = pin!(when_woken(async {
        let _ = stop.wait_for(|stop| *stop).await; // an error: the sender is gone
        shared.last.store(true, Ordering::Relaxed);
        if !pulse.is_h2() {
            sleep(spans.linger).await;
        }
    }));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            // Before the connection, so that an answer after the stop says that it is the last.
            () = &mut closing, if !stopping => {
                stopping = true;
                match &mut state {
                    State::Asleep(_) => return,
                    State::One(connection) => Pin::new(&mut **connection).graceful_shutdown(),
                    State::Two(connection) => connection.as_mut().graceful_shutdown(),
                }
            }
            () = when_woken(pulse.closed()) => return,
            next = std::future::poll_fn(|context| state.poll(context)) => match next {
                NextEvent::End(error) => {
                    if let Some(error) = error {
                        shared.door.0.failed(&error);
                    }
                    return state.switch(&shared.upgrade, &pulse).await;
                }
                NextEvent::Wakes(Wakes::Http1(stream)) => state = State::one(stream, service(), bounds),
                NextEvent::Wakes(Wakes::Http2(stream)) => state = State::two(stream, service(), bounds),
            },
            _ = when_woken(tick.tick()) => {
                let quiet = pulse.is_quiet();
                if pulse.expired(spans.ticks) {
                    return;
                }
                if quiet && !stopping {
                    state = state.asleep(service, bounds);
                }
            }
        }
    }
}

async fn answer<H: Handle>(
    shared: Arc<Connection<H>>,
    request: Request<Incoming>,
) -> Result<Response<Sent<H::Body>>, Infallible> {
    let gives_way = shared.pulse.gives_way();
    let _in_flight = InFlight::begin(&shared.pulse);
    if gives_way {
        yield_now().await;
    }
    // HTTP/2 has a frame for it, and no such field.
    let one_by_one = request.version() < Version::HTTP_2;
    let is_head = request.method() == Method::HEAD;
    let caller = Caller {
        address: shared.peer,
        pulse: &shared.pulse,
        upgrade: &shared.upgrade,
    };
    let (mut head, body) = request.into_parts();
    let asked = Asked {
        caller,
        body: RequestBody::of(&head, body, &shared.pulse),
        head: &mut head,
    };
    let mut response = shared.door.0.handle(asked).await;
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if one_by_one && !switches && shared.last.load(Ordering::Relaxed) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    if is_head && !one_by_one && !response.body().is_end_stream() {
        return Ok(without_content(response));
    }
    Ok(response.map(Sent::Left))
}

/// A body, or none in its place.
type Sent<B> = http_body_util::Either<B, Empty<Bytes>>;

/// Returns the head of a response alone, as hyper does over HTTP/1.1.
fn without_content<B: Body>(mut response: Response<B>) -> Response<Sent<B>> {
    if let Some(length) = response.body().size_hint().exact() {
        let headers = response.headers_mut();
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert(length.into());
    }
    response.map(|_| Sent::Right(Empty::new()))
}
