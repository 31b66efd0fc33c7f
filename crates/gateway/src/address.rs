//! Address: one address of an upstream, its idle connections, and whether it is left out.
//!
//! ```text
//!   lease --> room --> idle connection, of this thread if there is one --.
//!                '---> new connection -----------------------------------> request --> response
//!                        | refused: left out for a while                              |
//!                        v                             idle again <-- end of body <---'
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ratekeeper_core::{Nanos, Time};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::UpstreamFailure;
use crate::upload::{Stage, Upload, UploadBody};

/// How long an address that refuses connections is left out.
const LEFT_OUT: Nanos = Nanos::from_secs(10);
/// Maximum number of idle connections to an address.
const MAX_IDLE: usize = 256;
/// How long a connection may be idle. Servers close idle connections too, and a connection that is
/// about to be closed costs a retry.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum number of bytes of a response's head.
const MAX_HEAD: usize = 64 << 10;
/// Maximum number of fields of a response.
const MAX_FIELDS: usize = 256;

#[derive(Debug)]
pub(crate) struct Address {
    /// `HOST:PORT`
    name: String,
    idle: Mutex<Vec<IdleConnection>>,
    /// A permit for each request.
    room: Arc<Semaphore>,
    out_until: AtomicU64,
}

#[derive(Debug)]
struct IdleConnection {
    sender: SendRequest<UploadBody>,
    /// The thread whose runtime serves it: no other needs to be woken for its requests.
    thread: ThreadId,
    since: Instant,
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Idle,
    New,
}

/// A connection for one request.
#[derive(Debug)]
pub(crate) struct Lease {
    address: Arc<Address>,
    pub(crate) sender: SendRequest<UploadBody>,
    pub(crate) upload: Option<Arc<Upload>>,
    /// The thread whose runtime serves the connection.
    thread: ThreadId,
    /// Held to the end of the request.
    room: OwnedSemaphorePermit,
}

impl Address {
    pub(crate) fn new(name: &str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            idle: Mutex::default(),
            room: Arc::new(Semaphore::new(most)),
            out_until: AtomicU64::new(0),
        })
    }

    /// Returns true if it refused connections a short time ago.
    pub(crate) fn is_out(&self, now: Time) -> bool {
        now.as_nanos() < self.out_until.load(Ordering::Relaxed)
    }

    /// Returns a connection, idle ones first unless `wanted` is new. Waits for room if there are as
    /// many requests as connections are allowed; only an address that cannot be connected to is left
    /// out.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        wanted: Origin,
        (now, patience): (Time, Duration),
    ) -> Result<(Lease, Origin), UpstreamFailure> {
        let end = Instant::now() + patience;
        let room = timeout_at(end, Arc::clone(&self.room).acquire_owned()).await;
        let Ok(Ok(room)) = room else {
            return Err(UpstreamFailure::ConnectTimeout);
        };
        let mut found = None;
        while wanted == Origin::Idle
            && found.is_none()
            && let Some(mut idle) = self.take_idle()
        {
            match timeout_at(end, idle.sender.ready()).await {
                Ok(Ok(())) => found = Some((idle.sender, idle.thread, Origin::Idle)),
                Ok(Err(_)) => {} // closed
                Err(_) => return Err(UpstreamFailure::ConnectTimeout),
            }
        }
        let (sender, thread, origin) = match found {
            Some(found) => found,
            None => match timeout(patience, self.connect()).await {
                Ok(Some(sender)) => (sender, thread::current().id(), Origin::New),
                failed => {
                    let until = (now + LEFT_OUT).as_nanos();
                    self.out_until.store(until, Ordering::Relaxed);
                    return Err(match failed {
                        Ok(_) => UpstreamFailure::Refused,
                        Err(_) => UpstreamFailure::ConnectTimeout,
                    });
                }
            },
        };
        if self.out_until.load(Ordering::Relaxed) > 0 {
            self.out_until.store(0, Ordering::Relaxed);
        }
        let lease = Lease {
            address: Arc::clone(self),
            sender,
            upload: None,
            thread,
            room,
        };
        Ok((lease, origin))
    }

    /// Connects; `None` if the connection is refused.
    async fn connect(&self) -> Option<SendRequest<UploadBody>> {
        self.make_room();
        let stream = TcpStream::connect(&*self.name).await.ok()?;
        let _ = stream.set_nodelay(true); // a refusal costs speed only
        let mut builder = Builder::new();
        builder.max_buf_size(MAX_HEAD).max_headers(MAX_FIELDS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await; // its request has the error
        });
        Some(sender)
    }

    /// Closes the oldest idle connections, so that they and those of requests stay within the bound.
    fn make_room(&self) {
        let mut idle = self.idle.lock();
        let surplus = idle.len().saturating_sub(self.room.available_permits());
        idle.drain(..surplus);
    }

    /// Takes the idle connection that was used last, of this thread if there is one. Older ones than
    /// `IDLE` are closed.
    fn take_idle(&self) -> Option<IdleConnection> {
        let (thread, now) = (thread::current().id(), Instant::now());
        let mut idle = self.idle.lock();
        // They are in the order of their times.
        let old = idle.partition_point(|it| now - it.since >= IDLE);
        idle.drain(..old);
        let own = idle
            .iter()
            .rposition(|it| it.thread == thread && !it.sender.is_closed());
        let at = own.or_else(|| idle.len().checked_sub(1))?;
        Some(idle.remove(at))
    }

    fn put_idle(&self, sender: SendRequest<UploadBody>, thread: ThreadId) {
        let mut idle = self.idle.lock();
        let since = Instant::now();
        let kept = |it: &IdleConnection| since - it.since < IDLE && !it.sender.is_closed();
        if idle.len() >= MAX_IDLE || idle.first().is_some_and(|oldest| !kept(oldest)) {
            idle.retain(kept);
        }
        if idle.len() < MAX_IDLE {
            idle.push(IdleConnection {
                sender,
                thread,
                since,
            });
        }
    }
}

impl Lease {
    /// Returns the permit alone, for a connection that serves no further request.
    pub(crate) fn into_room(self) -> OwnedSemaphorePermit {
        self.room
    }

    /// Makes the connection idle again, after the end of a response. One whose request is still
    /// being sent is closed.
    pub(crate) fn give_back(self) {
        let sent = |upload: &Arc<Upload>| upload.stage() == Stage::Sent;
        if self.upload.as_ref().is_none_or(sent) && !self.sender.is_closed() {
            self.address.put_idle(self.sender, self.thread);
        }
        drop(self.room); // after that, so that a request that waits for room finds the connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const LONG: (Time, Duration) = (Time::ZERO, Duration::from_secs(30));
    const SHORT: (Time, Duration) = (Time::ZERO, Duration::from_millis(20));

    async fn listening() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        (listener, name)
    }

    #[tokio::test]
    async fn a_full_address_is_not_left_out_and_serves_those_that_wait() {
        let (_listener, name) = listening().await;
        let address = Address::new(&name, 1);
        let (held, origin) = address.lease(Origin::Idle, LONG).await.unwrap();
        assert_eq!(origin, Origin::New);
        let full = address.lease(Origin::Idle, SHORT).await;
        assert_eq!(full.err(), Some(UpstreamFailure::ConnectTimeout));
        assert!(!address.is_out(Time::ZERO));
        let give_back = async {
            tokio::task::yield_now().await;
            held.give_back();
        };
        let (waiting, ()) = tokio::join!(address.lease(Origin::Idle, LONG), give_back);
        assert_eq!(waiting.unwrap().1, Origin::Idle);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_left_out() {
        let (listener, name) = listening().await;
        drop(listener);
        let address = Address::new(&name, 1);
        let refused = address.lease(Origin::Idle, LONG).await;
        assert_eq!(refused.err(), Some(UpstreamFailure::Refused));
        assert!(address.is_out(Time::ZERO));
    }

    #[tokio::test]
    async fn connections_keep_their_thread_and_within_the_bound() {
        let (_listener, name) = listening().await;
        let address = Address::new(&name, 2);
        let (one, _) = address.lease(Origin::Idle, LONG).await.unwrap();
        let (two, _) = address.lease(Origin::Idle, LONG).await.unwrap();
        let own = thread::current().id();
        let give_back = move || {
            one.give_back();
            two.give_back();
        };
        thread::spawn(give_back).join().unwrap();
        assert!(address.idle.lock().iter().all(|it| it.thread == own));
        let (_new, origin) = address.lease(Origin::New, LONG).await.unwrap();
        assert_eq!((origin, address.idle.lock().len()), (Origin::New, 1));
    }

    #[tokio::test]
    async fn old_connections_are_not_used() {
        let (_listener, name) = listening().await;
        let address = Address::new(&name, 1);
        let (lease, _) = address.lease(Origin::Idle, LONG).await.unwrap();
        lease.give_back();
        for it in address.idle.lock().iter_mut() {
            it.since -= IDLE;
        }
        let (_lease, origin) = address.lease(Origin::Idle, LONG).await.unwrap();
        assert_eq!(origin, Origin::New);
    }
}
