//! Listener: takes connections at a door and keeps each within its bounds.
//!
//! ```text
//!   accept --(a free slot?)--> worker --> hyper <--> handle(peer, request)
//!      ^                                    |
//!      +-- no slot: wait, the kernel queues |-- silent too long: close
//!                                           +-- stopping: finish what is in flight
//! ```
//!
//! Stopping breaks no request. A connection that is kept open may be shut only when no
//! request is on its way, and that only its client knows. So the door stays open a moment
//! longer, and every answer on the way out says `Connection: close`:
//!
//! ```text
//!   stop ---- LINGER: accept and answer, each answer the last ----> close what is idle
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::pulse::{Pulse, TICK, Ticks, Watched};
use crate::{Door, StartError};

/// Bytes of a request's head, and of what hyper buffers of a connection.
pub(crate) const MAX_HEAD_BYTES: usize = 16 << 10;
/// Header fields of a request.
pub(crate) const MAX_HEADERS: usize = 100;
/// Requests in flight on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// How long a door stays open after the stop.
pub(crate) const LINGER: Duration = Duration::from_millis(500);
/// How long to wait when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a door does with a connection.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Serves it until it ends, falls silent, or the door closes.
    fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;
}

/// A door of HTTP requests.
#[derive(Debug)]
pub(crate) struct Http<H>(pub(crate) H);

impl<H: Handle> Serve for Http<H> {
    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        stop: watch::Receiver<bool>,
    ) {
        serve(stream, peer, self, stop).await;
    }
}

/// The body of every answer: all there at once.
pub(crate) type Reply = Full<Bytes>;

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) pulse: &'a Arc<Pulse>,
}

/// What a door does with a request.
pub(crate) trait Handle: Send + Sync + 'static {
    fn handle(
        &self,
        caller: Caller<'_>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Reply>> + Send;
}

/// Opens a door; port 0 takes a free one.
pub(crate) fn bind(door: Door, address: SocketAddr) -> Result<StdListener, StartError> {
    let bound = StdListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse { door, address },
        _ => StartError::Bind {
            door,
            address,
            reason: error.to_string(),
        },
    })
}

/// Accepts until told to stop, and a moment longer. `slots` bounds the connections; `place`
/// returns the runtime that serves the next one; `failed` is called for each that the system
/// does not hand over.
pub(crate) async fn accept<'a, D: Serve>(
    listener: &TcpListener,
    door: Arc<D>,
    slots: Arc<Semaphore>,
    place: impl Fn() -> &'a tokio::runtime::Handle,
    failed: impl Fn(&io::Error),
    stop: watch::Receiver<bool>,
) {
    let start = |stream: TcpStream, peer, slot: OwnedSemaphorePermit| {
        let Ok(stream) = stream.into_std() else {
            return; // only a runtime that is gone refuses
        };
        let (door, stop) = (Arc::clone(&door), stop.clone());
        place().spawn(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                let _ = stream.set_nodelay(true); // a refusal costs speed only
                door.serve(stream, peer, stop).await;
            }
            drop(slot);
        });
    };
    let mut stopped = stop.clone();
    let mut closing = pin!(async {
        let _ = stopped.wait_for(|stop| *stop).await; // an error: who could tell is gone
        sleep(LINGER).await;
    });
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            biased;
            () = &mut closing => break,
            next = next => next,
        };
        let Ok(slot) = slot else {
            return; // the semaphore is closed: nothing may be accepted any more
        };
        match accepted {
            Ok((stream, peer)) => start(stream, peer, slot),
            Err(error) => {
                failed(&error);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Closing resets the connections that still queue in the kernel: take them first.
    let mut queued = Context::from_waker(Waker::noop());
    while let Ok(slot) = Arc::clone(&slots).try_acquire_owned()
        && let Poll::Ready(Ok((stream, peer))) = listener.poll_accept(&mut queued)
    {
        start(stream, peer, slot);
    }
}

/// What the requests of one connection share: one count of references for each connection,
/// so that no request touches a line of memory that another worker writes.
struct Connection<H> {
    door: Arc<Http<H>>,
    peer: SocketAddr,
    pulse: Arc<Pulse>,
    /// The service stops: the next answer is the last.
    last: AtomicBool,
}

/// One request in flight; dropping it ends it, also when its client went away.
struct InFlight<H>(Arc<Connection<H>>);

impl<H> Drop for InFlight<H> {
    fn drop(&mut self) {
        self.0.pulse.end();
    }
}

/// Serves one connection until it closes, falls silent, or the service stops.
async fn serve<H: Handle>(
    stream: TcpStream,
    peer: SocketAddr,
    door: Arc<Http<H>>,
    mut stop: watch::Receiver<bool>,
) {
    let pulse = Arc::new(Pulse::default());
    let shared = Arc::new(Connection {
        door,
        peer,
        pulse: Arc::clone(&pulse),
        last: AtomicBool::new(false),
    });
    let stream = TokioIo::new(Watched {
        stream,
        pulse: Arc::clone(&pulse),
    });
    let service = service_fn(|request| {
        shared.pulse.begin();
        let flight = InFlight(Arc::clone(&shared));
        async move {
            let InFlight(shared) = &flight;
            // HTTP/2 has a frame for it, and no such field.
            let one_by_one = request.version() < Version::HTTP_2;
            let caller = Caller {
                address: shared.peer,
                pulse: &shared.pulse,
            };
            let mut response = shared.door.0.handle(caller, request).await;
            if one_by_one && shared.last.load(Ordering::Relaxed) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = bounded();
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut closing = pin!(async {
        let _ = stop.wait_for(|stop| *stop).await; // an error: who could tell is gone
        shared.last.store(true, Ordering::Relaxed);
        if !pulse.is_h2() {
            sleep(LINGER).await;
        }
    });
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut ticks = Ticks::default();
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            // Before the connection: what is asked after the stop is told that it is the last.
            () = &mut closing, if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            // Errors are the client's: it left, or sent what is no HTTP and was told so.
            _ = connection.as_mut() => return,
            _ = tick.tick() => {
                if pulse.expired(&mut ticks) {
                    return;
                }
            }
        }
    }
}

fn bounded() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None) // `Pulse` bounds it, at no cost per request
        .max_buf_size(MAX_HEAD_BYTES)
        // A client that says it sends no more is answered all the same; and hyper need not
        // get a buffer ready to look for that in the middle of each request.
        .half_close(true)
        .writev(false) // answers are small: one copy costs less than a vectored write
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX));
    builder
}
