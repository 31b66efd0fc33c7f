//! Opening: a door that begins to accept connections, and the threads that serve them.

use std::net::TcpListener as StdListener;
use std::sync::Arc;

use ratekeeper::Clock;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Door;
use crate::connections::Connections;
use crate::context::ServiceContext;
use crate::listener::{ServeConnection, Spans, accept};
use crate::tasks::keep;
use crate::workers::Workers;

/// Where connections are served.
pub(crate) enum ServePlace {
    /// By the thread that accepts them.
    Here(Handle),
    /// By one worker each, in turn.
    Workers(Workers),
}

/// A door that accepts connections.
pub(crate) struct Opened(Option<JoinHandle<()>>);

/// A door that is about to accept connections.
pub(crate) struct Opening<C> {
    pub(crate) shared: Arc<ServiceContext<C>>,
    pub(crate) door: Door,
    pub(crate) connections: Arc<Connections>,
    pub(crate) spans: Spans,
}

impl<C: Clock + 'static> Opening<C> {
    pub(crate) fn start<D: ServeConnection>(
        self,
        listener: Option<StdListener>,
        serve: D,
        place: &Arc<ServePlace>,
        stop: &watch::Receiver<bool>,
    ) -> Opened {
        Opened(listener.and_then(listen_on).map(|listener| {
            let Self {
                shared,
                door,
                connections,
                spans,
            } = self;
            let (listener, serve) = (Arc::new(listener), Arc::new(serve));
            let (place, stop) = (Arc::clone(place), stop.clone());
            let accepts = Arc::clone(&shared);
            keep(&shared, "accept", move || {
                let (listener, serve) = (Arc::clone(&listener), Arc::clone(&serve));
                let (place, stop) = (Arc::clone(&place), stop.clone());
                let (shared, bounds) = (Arc::clone(&accepts), (Arc::clone(&connections), spans));
                async move {
                    let next = || match &*place {
                        ServePlace::Here(here) => here,
                        ServePlace::Workers(workers) => workers.next(),
                    };
                    let failed = |error: &std::io::Error| {
                        let now = shared.keeper.clock().now();
                        shared.metrics.process.accept_failed(door, error, now);
                    };
                    accept(&listener, serve, bounds, next, failed, stop).await;
                }
            })
        }))
    }
}

#[cfg(feature = "proxy")]
impl<C: Clock + 'static> Opening<C> {
    /// Like [`start`](Self::start), if there is a door.
    pub(crate) fn start_some<D: ServeConnection>(
        self,
        listener: Option<StdListener>,
        serve: Option<D>,
        (place, stop): (&Arc<ServePlace>, &watch::Receiver<bool>),
    ) -> Opened {
        match serve {
            Some(serve) => self.start(listener, serve, place, stop),
            None => Opened(None),
        }
    }
}

impl Opened {
    /// Returns when no further connection is accepted.
    pub(crate) async fn closed(self) {
        if let Some(accepting) = self.0 {
            let _ = accepting.await; // an error: it ended by a panic, logged already
        }
    }
}

fn listen_on(listener: StdListener) -> Option<TcpListener> {
    let listener = TcpListener::from_std(listener);
    listener
        .inspect_err(|error| tracing::error!(event = "listen.failed", %error))
        .ok()
}
