//! Address: one address of an upstream, its idle connections, and whether it is left out.
//!
//! ```text
//!   lease --> idle connection, of this thread if there is one --.
//!     '-----> new connection, if there is room ------------------> request --> response
//!                 | refused: left out for a while                                  |
//!                 v                                        idle again <-- end of --'
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
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

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

    /// Returns a connection, idle ones first unless `wanted` is new.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        wanted: Origin,
        (now, patience): (Time, Duration),
    ) -> Result<(SendRequest<UploadBody>, Origin), UpstreamFailure> {
        let found = timeout(patience, async {
            while wanted == Origin::Idle
                && let Some(mut sender) = self.take_idle()
            {
                if sender.ready().await.is_ok() {
                    return Some((sender, Origin::Idle));
                }
            }
            let sender = self.connect().await?;
            Some((sender, Origin::New))
        });
        match found.await {
            Ok(Some(leased)) => {
                if self.out_until.load(Ordering::Relaxed) > 0 {
                    self.out_until.store(0, Ordering::Relaxed);
                }
                Ok(leased)
            }
            failed => {
                let until = (now + LEFT_OUT).as_nanos();
                self.out_until.store(until, Ordering::Relaxed);
                Err(match failed {
                    Ok(_) => UpstreamFailure::Refused,
                    Err(_) => UpstreamFailure::ConnectTimeout,
                })
            }
        }
    }

    /// Connects; `None` if the connection is refused.
    async fn connect(&self) -> Option<SendRequest<UploadBody>> {
        let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let stream = TcpStream::connect(&*self.name).await.ok()?;
        let _ = stream.set_nodelay(true); // a refusal costs speed only
        let mut builder = Builder::new();
        builder.max_buf_size(MAX_HEAD).max_headers(MAX_FIELDS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await; // its request has the error
            drop(room);
        });
        Some(sender)
    }

    /// Takes the idle connection that was used last, of this thread if there is one.
    fn take_idle(&self) -> Option<SendRequest<UploadBody>> {
        let thread = thread::current().id();
        let mut idle = self.idle.lock();
        let own = idle
            .iter()
            .rposition(|it| it.thread == thread && !it.sender.is_closed());
        let at = own.or_else(|| idle.len().checked_sub(1))?;
        Some(idle.remove(at).sender)
    }

    fn put_idle(&self, sender: SendRequest<UploadBody>) {
        let since = Instant::now();
        let mut idle = self.idle.lock();
        let kept = |it: &IdleConnection| since - it.since < IDLE && !it.sender.is_closed();
        if idle.len() >= MAX_IDLE || idle.first().is_some_and(|oldest| !kept(oldest)) {
            idle.retain(kept);
        }
        if idle.len() < MAX_IDLE {
            let thread = thread::current().id();
            idle.push(IdleConnection {
                sender,
                thread,
                since,
            });
        }
    }
}

impl Lease {
    pub(crate) fn new(
        address: &Arc<Address>,
        sender: SendRequest<UploadBody>,
        upload: Option<Arc<Upload>>,
    ) -> Self {
        Self {
            address: Arc::clone(address),
            sender,
            upload,
        }
    }

    /// Makes the connection idle again, after the end of a response. One whose request is still
    /// being sent is closed.
    pub(crate) fn give_back(self) {
        let sent = |upload: &Arc<Upload>| upload.stage() == Stage::Sent;
        if self.upload.as_ref().is_none_or(sent) && !self.sender.is_closed() {
            self.address.put_idle(self.sender);
        }
    }
}
