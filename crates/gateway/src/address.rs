//! Address: one address of an upstream, with its connections; it is skipped while it fails.
//!
//! ```text
//!   lease --> room --> HTTP/2 connection of this thread with a free stream -------.
//!                '---> idle connection of this thread ---------------------------.|
//!                '---> idle connection of another, if there is no room for more -.|
//!                '---> new connection --------------------------------------------> request
//!                        | refused: left out (absence.rs)                            |
//!                        v                idle again, or a free stream <-- end of body
//! ```
//!
//! A connection is served by the thread that opened it. A request of another thread would have to
//! wake that thread, and be woken by it, so each thread opens its own connections until the maximum
//! number is open.
//!
//! An HTTP/2 connection serves the requests of the thread that opened it, up to the number of
//! streams that its peer allows. Requests that arrive while one is being opened wait for it, so
//! that they share it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use http::HeaderMap;
use hyper::client::conn::http2;
use parking_lot::Mutex;
use ratekeeper_core::Time;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use crate::absence::{Absence, AddressFailure};
use crate::connection::{Http1Sender, Sender, StreamCount, Transport, UpstreamAddress, Wanted};
use crate::counts::CountedAddress;
use crate::error::{ForwardError, UpstreamFailure};
use crate::idle::{IDLE, IdleConnection, MAX_IDLE, QUIET, kept_open};
use crate::outgoing::Form;
use crate::room::Room;
use crate::upload::{Stage, Upload, UploadBody};

const LATE: ForwardError = ForwardError::Upstream(UpstreamFailure::ConnectTimeout);

#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) upstream: UpstreamAddress,
    idle: Mutex<Vec<IdleConnection>>,
    shared: Mutex<Vec<SharedConnection>>,
    /// True if connections serve one request at a time: without TLS, or if the last one did.
    alone: AtomicBool,
    /// One for each thread, held while it opens a connection that its requests share.
    opening: Mutex<HashMap<ThreadId, Arc<AsyncMutex<()>>>>,
    pub(crate) room: Room,
    pub(crate) counted: Arc<CountedAddress>,
    /// True if it did not pass its last check.
    is_down: AtomicBool,
}

/// A connection of HTTP/2.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    sender: http2::SendRequest<UploadBody>,
    streams: Arc<StreamCount>,
    thread: ThreadId,
    /// When its last stream began.
    used: Instant,
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionOrigin {
    Idle,
    New,
}

/// A connection for one request.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    address: Arc<Address>,
    pub(crate) sender: Sender,
    pub(crate) upload: Option<Arc<Upload>>,
    /// The thread whose runtime serves the connection.
    thread: ThreadId,
    /// How long the connection may be idle afterwards.
    idle: Duration,
    /// When the request could be sent.
    pub(crate) since: Instant,
    /// Held to the end of the request.
    pub(crate) room: OwnedSemaphorePermit,
}

impl Address {
    pub(crate) fn new(
        upstream: UpstreamAddress,
        most: usize,
        counted: Arc<CountedAddress>,
    ) -> Arc<Self> {
        Arc::new(Self {
            alone: AtomicBool::new(upstream.is_alone()),
            upstream,
            idle: Mutex::default(),
            shared: Mutex::default(),
            opening: Mutex::default(),
            room: Room::new(most),
            counted,
            is_down: AtomicBool::new(false),
        })
    }

    /// Returns true if it did not pass its last check, or is left out, also while a request tries it.
    pub(crate) fn is_left_out(&self) -> bool {
        !self.is_up() || self.counted.absence.is_absent()
    }

    /// Returns the number of open connections, idle ones included.
    pub(crate) fn connections(&self) -> usize {
        let shared = self.shared.lock().len();
        if !self.alone.load(Ordering::Relaxed) {
            return shared;
        }
        self.room.in_use() + self.idle.lock().len()
    }

    /// Returns true if a request may use it; see [`Absence::admits`].
    pub(crate) fn admits(&self, now: Time) -> bool {
        self.is_up() && self.counted.absence.admits(now)
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    /// Notes that it passed its last check.
    pub(crate) fn pass_check(&self) {
        self.is_down.store(false, Ordering::Relaxed);
    }

    /// Notes that it did not pass its last check.
    pub(crate) fn fail_check(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    /// Returns a connection: an open one if possible, unless `origin` is `New`. `start` and `now` are
    /// this moment. If the maximum number of connections is in use, waits for one. The address is
    /// left out from then on only if it cannot be connected to.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        origin: ConnectionOrigin,
        wanted: Wanted,
        mut start: Instant,
        now: Time,
        patience: Duration,
    ) -> Result<(ConnectionLease, ConnectionOrigin), ForwardError> {
        let wanted = match self.upstream.transport {
            Transport::Http2 => Wanted::Any, // it has no other
            _ => wanted,
        };
        let (end, late) = (start + patience, |_| LATE);
        let room = self.room.enter(&mut start, end).await.ok_or(LATE)?;
        let lease = |(sender, thread), since| ConnectionLease {
            address: Arc::clone(self),
            sender,
            upload: None,
            thread,
            idle: IDLE,
            since,
            room,
        };
        if origin == ConnectionOrigin::Idle {
            if self.is_quiet(start, QUIET) {
                yield_now().await; // the end of a connection is read first
            }
            let open = match self.open_now(wanted, start) {
                Some((Sender::Http1(sender), thread)) if !sender.sender.is_ready() => {
                    let ready = self.open_one(sender, thread, start);
                    let open = timeout_at(end, ready).await.map_err(late)?;
                    start = Instant::now();
                    open
                }
                open => open,
            };
            if let Some(open) = open {
                return Ok((lease(open, start), ConnectionOrigin::Idle));
            }
        }
        let mut opening = None;
        if wanted == Wanted::Any && !self.alone.load(Ordering::Relaxed) {
            let thread = thread::current().id();
            let own = self.opening.lock().entry(thread).or_default().clone();
            opening = Some(timeout_at(end, own.lock_owned()).await.map_err(late)?);
            // Another request may have opened one meanwhile.
            if let Some(open) = self.take_shared() {
                return Ok((lease(open, Instant::now()), origin));
            }
            if self.alone.load(Ordering::Relaxed) {
                opening = None; // the upstream speaks HTTP/1.1
            }
        }
        // Apart: the futures of all requests would be larger by a handshake that hardly any makes.
        let connecting = Box::pin(self.connect(wanted));
        let opened = timeout(patience, connecting).await.map_err(late);
        drop(opening);
        match opened.and_then(|opened| opened) {
            Ok(sender) => Ok((
                lease((sender, thread::current().id()), Instant::now()),
                ConnectionOrigin::New,
            )),
            Err(error) => {
                // An upstream that speaks HTTP/2 alone serves all requests but those for WebSocket.
                if wanted == Wanted::Any {
                    self.counted.absence.fail(AddressFailure::Connection, now);
                }
                Err(error)
            }
        }
    }

    /// Returns true if the idle connection of this thread has had no request for that time.
    pub(crate) fn is_quiet(&self, now: Instant, span: Duration) -> bool {
        let thread = thread::current().id();
        let idle = self.idle.lock();
        let own = idle.iter().rfind(|it| it.thread == thread);
        own.is_some_and(|it| now.saturating_duration_since(it.since) >= span)
    }

    /// Returns a connection that is open, if there is one; one of HTTP/1.1 may not be ready.
    fn open_now(&self, wanted: Wanted, now: Instant) -> Option<(Sender, ThreadId)> {
        let shared = (wanted == Wanted::Any).then(|| self.take_shared());
        shared.flatten().or_else(|| {
            let idle = self.take_idle(now)?;
            Some((Sender::Http1(idle.sender), idle.thread))
        })
    }

    /// Waits until this connection is ready, or returns another if it is closed.
    async fn open_one(
        &self,
        mut sender: Http1Sender,
        mut thread: ThreadId,
        now: Instant,
    ) -> Option<(Sender, ThreadId)> {
        while sender.sender.ready().await.is_err() {
            IdleConnection { sender, thread, .. } = self.take_idle(now)?;
        }
        Some((Sender::Http1(sender), thread))
    }

    async fn connect(&self, wanted: Wanted) -> Result<Sender, ForwardError> {
        self.make_room();
        let sender = self.upstream.open(wanted).await?;
        if wanted == Wanted::Any {
            let is_alone = matches!(sender, Sender::Http1(_));
            self.alone.store(is_alone, Ordering::Relaxed);
        }
        if let Sender::Http2(sender, stream) = &sender {
            self.shared.lock().push(SharedConnection {
                sender: sender.clone(),
                streams: Arc::clone(&stream.0),
                thread: thread::current().id(),
                used: Instant::now(),
            });
        }
        Ok(sender)
    }

    /// Closes the oldest idle connections, so that all connections stay within the bound.
    fn make_room(&self) {
        let free = self.room.free();
        let mut idle = self.idle.lock();
        let surplus = idle.len().saturating_sub(free);
        idle.drain(..surplus);
        drop(idle);
        let mut shared = self.shared.lock();
        if shared.len() > free {
            shared.retain(|it| !it.streams.is_idle());
        }
    }

    /// Takes a stream of an HTTP/2 connection of this thread, if one is free. Connections that were
    /// not used for `IDLE` are closed.
    fn take_shared(&self) -> Option<(Sender, ThreadId)> {
        if self.upstream.is_alone() {
            return None;
        }
        let (thread, now) = (thread::current().id(), Instant::now());
        let mut shared = self.shared.lock();
        shared.retain(|it| {
            let is_old = it.streams.is_idle() && now - it.used >= IDLE;
            !is_old && !it.sender.is_closed()
        });
        let own = shared.iter_mut().filter(|it| it.thread == thread);
        let (it, stream) = own
            .map(|it| (it.streams.take(), it))
            .find_map(|(stream, it)| Some((it, stream?)))?;
        it.used = now;
        Some((Sender::Http2(it.sender.clone(), stream), thread))
    }

    /// Takes the idle connection of this thread that was used last; another thread's only if no
    /// more may be opened. Those whose time is over are closed.
    fn take_idle(&self, now: Instant) -> Option<IdleConnection> {
        let thread = thread::current().id();
        let mut idle = self.idle.lock();
        if idle.first().is_some_and(|oldest| !oldest.is_usable(now)) {
            idle.retain(|it| it.is_usable(now));
        }
        let own = idle
            .iter()
            .rposition(|it| it.thread == thread && it.is_usable(now));
        // The permit of this request is taken already, and is for the connection to be opened.
        let is_full = idle.len() > self.room.free() || idle.len() >= MAX_IDLE;
        let any = || idle.iter().rposition(|it| is_full && it.is_usable(now));
        let at = own.or_else(any)?;
        Some(idle.remove(at))
    }

    fn put_idle(&self, it: IdleConnection) {
        let mut idle = self.idle.lock();
        let now = it.since;
        if idle.len() >= MAX_IDLE || idle.first().is_some_and(|oldest| !oldest.is_usable(now)) {
            idle.retain(|it| it.is_usable(now));
        }
        if idle.len() < MAX_IDLE {
            idle.push(it);
        }
    }
}

impl ConnectionLease {
    /// Returns the form of requests on the connection.
    pub(crate) fn form(&self) -> Form {
        self.address.upstream.form(&self.sender)
    }

    /// Notes how long the server keeps the connection open (RFC 9112, appendix C.2.2).
    pub(crate) fn keep(&mut self, headers: &HeaderMap) {
        self.idle = kept_open(headers);
    }

    /// Returns the failures of the address.
    pub(crate) fn absence(&self) -> &Absence {
        &self.address.counted.absence
    }

    /// Gives the connection no further requests; those on it go on.
    pub(crate) fn retire(&self) {
        if let Sender::Http2(_, stream) = &self.sender {
            let mut shared = self.address.shared.lock();
            shared.retain(|it| !Arc::ptr_eq(&it.streams, &stream.0));
        }
    }

    /// Makes the connection idle again, after the end of a response. If its request is still being
    /// sent, one of HTTP/1.1 is closed, and a stream of HTTP/2 keeps its place until that ends.
    pub(crate) fn give_back(self) {
        let sending = self.upload.filter(|upload| upload.stage() != Stage::Sent);
        match (self.sender, sending) {
            (Sender::Http1(sender), None) if !sender.sender.is_closed() => {
                let since = Instant::now();
                self.address.put_idle(IdleConnection {
                    sender,
                    thread: self.thread,
                    since,
                    until: since + self.idle,
                });
            }
            (Sender::Http2(_, stream), Some(upload)) => return upload.keep(stream, self.room),
            _ => {}
        }
        drop(self.room); // after that, so that a request that waits for room finds the connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use tokio::net::TcpListener;

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(20);
    const IDLE_FIRST: ConnectionOrigin = ConnectionOrigin::Idle;

    async fn leased(address: &Arc<Address>) -> (ConnectionLease, ConnectionOrigin) {
        let lease = address.lease(IDLE_FIRST, Wanted::Any, Instant::now(), Time::ZERO, LONG);
        lease.await.unwrap()
    }

    async fn listening() -> (TcpListener, UpstreamAddress) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let transport = Transport::Http1;
        (listener, UpstreamAddress { name, transport })
    }

    #[tokio::test]
    async fn a_full_address_is_not_left_out_and_serves_those_that_wait() {
        let (_listener, name) = listening().await;
        let address = Address::new(name, 1, Arc::default());
        let (held, origin) = leased(&address).await;
        assert_eq!(origin, ConnectionOrigin::New);
        let full = address
            .lease(IDLE_FIRST, Wanted::Any, Instant::now(), Time::ZERO, SHORT)
            .await;
        assert_eq!(full.err(), Some(UpstreamFailure::ConnectTimeout.into()));
        assert!(!address.is_left_out());
        let give_back = async {
            tokio::task::yield_now().await;
            held.give_back();
        };
        let (waiting, ()) = tokio::join!(
            address.lease(IDLE_FIRST, Wanted::Any, Instant::now(), Time::ZERO, LONG),
            give_back
        );
        assert_eq!(waiting.unwrap().1, ConnectionOrigin::Idle);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_left_out() {
        let (listener, name) = listening().await;
        drop(listener);
        let address = Address::new(name, 1, Arc::default());
        let refused = address
            .lease(IDLE_FIRST, Wanted::Any, Instant::now(), Time::ZERO, LONG)
            .await;
        assert_eq!(refused.err(), Some(UpstreamFailure::Refused.into()));
        assert!(address.is_left_out());
    }

    #[tokio::test]
    async fn connections_keep_their_thread_and_within_the_bound() {
        let (_listener, name) = listening().await;
        let address = Address::new(name, 2, Arc::default());
        let (one, _) = leased(&address).await;
        let (two, _) = leased(&address).await;
        let own = thread::current().id();
        let give_back = move || {
            one.give_back();
            two.give_back();
        };
        thread::spawn(give_back).join().unwrap();
        assert!(address.idle.lock().iter().all(|it| it.thread == own));
        let (_new, origin) = address
            .lease(
                ConnectionOrigin::New,
                Wanted::Any,
                Instant::now(),
                Time::ZERO,
                LONG,
            )
            .await
            .unwrap();
        assert_eq!(
            (origin, address.idle.lock().len()),
            (ConnectionOrigin::New, 1)
        );
    }

    #[tokio::test]
    async fn a_thread_borrows_only_when_no_more_connections_may_be_opened() {
        let (_listener, name) = listening().await;
        let address = Address::new(name, 3, Arc::default());
        let own = thread::current().id();
        let (one, _) = leased(&address).await;
        let (two, _) = leased(&address).await;
        one.give_back();
        two.give_back();
        let other = Arc::clone(&address);
        let lease_three = async move {
            let mut leases = Vec::new();
            for _ in 0..3 {
                leases.push(leased(&other).await);
            }
            let borrowed = leases.iter().filter(|(lease, _)| lease.thread == own);
            (borrowed.count(), leases[0].1)
        };
        let runtime = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(lease_three)
        };
        let waits = tokio::task::spawn_blocking(runtime).await.unwrap();
        assert_eq!(waits, (2, ConnectionOrigin::New));
    }

    #[tokio::test]
    async fn the_maximum_changes_while_connections_are_in_use() {
        let (_listener, name) = listening().await;
        let address = Address::new(name, 1, Arc::default());
        let (one, _) = leased(&address).await;
        address.room.resize(2);
        let (two, _) = leased(&address).await;
        assert_eq!((address.connections(), address.room.free()), (2, 0));
        address.room.resize(1); // both are in use
        assert_eq!(address.connections(), 2);
        one.give_back();
        let more = address
            .lease(IDLE_FIRST, Wanted::Any, Instant::now(), Time::ZERO, SHORT)
            .await;
        assert_eq!(more.err(), Some(UpstreamFailure::ConnectTimeout.into()));
        two.give_back();
        let (three, _) = leased(&address).await;
        assert_eq!(address.room.free(), 0);
        address.room.resize(0);
        address.room.resize(1);
        three.give_back();
        assert_eq!(address.room.free(), 1, "no other went");
    }

    #[tokio::test]
    async fn old_connections_are_not_used() {
        let (_listener, name) = listening().await;
        let address = Address::new(name, 1, Arc::default());
        let (lease, _) = leased(&address).await;
        lease.give_back();
        for it in address.idle.lock().iter_mut() {
            it.until -= IDLE;
        }
        let (_lease, origin) = leased(&address).await;
        assert_eq!(origin, ConnectionOrigin::New);
    }

    #[tokio::test]
    async fn an_idle_connection_is_used_for_less_than_its_server_keeps_it() {
        let (_listener, name) = listening().await;
        let address = Address::new(name, 1, Arc::default());
        for (keep_alive, seconds) in [
            ("timeout=5", 4.0),
            ("timeout=5, max=100", 4.0),
            ("max=100, timeout=2", 1.0),
            ("timeout=1", 0.5),
            ("timeout=0", 0.0),
            ("timeout=3600", 30.0),
            ("timeout=x", 30.0),
        ] {
            let (mut lease, _) = leased(&address).await;
            let value = HeaderValue::from_static(keep_alive);
            lease.keep(&HeaderMap::from_iter([(
                HeaderName::from_static("keep-alive"),
                value,
            )]));
            lease.give_back();
            let idle = address.idle.lock().pop().unwrap();
            let kept = (idle.until - idle.since).as_secs_f64();
            assert_eq!(kept.to_bits(), f64::to_bits(seconds), "{keep_alive}");
        }
    }
}
