//! Opening: a door that begins to accept connections, and the threads that serve them.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::Door;
use crate::addresses::{DoorListener, OpenedBy};
use crate::background::tasks::keep;
use crate::context::ServiceContext;
use crate::serve::accept_queue::AcceptSocket;
use crate::serve::connections::Connections;
use crate::serve::listener::{ServeConnection, Spans, accept};
use crate::serve::stop_signals::StopSignals;
use crate::serve::workers::Workers;

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
pub(crate) struct Opening {
    pub(crate) shared: Arc<ServiceContext>,
    pub(crate) door: Door,
    pub(crate) connections: Arc<Connections>,
    pub(crate) spans: Spans,
}

impl Opening {
    /// Does not linger at a socket of the next process, which waits for the end of this one.
    pub(crate) fn do_not_linger_for(&mut self, listener: Option<&DoorListener>) {
        if listener.is_some_and(|listener| listener.opened_by == OpenedBy::Parent) {
            self.spans.linger = Duration::ZERO;
        }
    }

    pub(crate) fn start<D: ServeConnection>(
        self,
        listener: Option<DoorListener>,
        serve: D,
        place: &Arc<ServePlace>,
        stop: &StopSignals,
    ) -> Opened {
        Opened(listener.and_then(listen_on).map(|(listener, opened_by)| {
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
                        let now = shared.now();
                        let process = &shared.observers.metrics.process;
                        process.accept_failed(door, error, now);
                    };
                    accept(&listener, opened_by, serve, bounds, next, failed, stop).await;
                }
            })
        }))
    }

    /// Like [`start`](Self::start), if there is a door.
    pub(crate) fn start_some<D: ServeConnection>(
        self,
        listener: Option<DoorListener>,
        serve: Option<D>,
        place: &Arc<ServePlace>,
        stop: &StopSignals,
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

fn listen_on(listener: DoorListener) -> Option<(AcceptSocket, OpenedBy)> {
    let socket = AcceptSocket::new(listener.socket);
    let socket = socket.inspect_err(|error| tracing::error!(event = "listen.failed", %error));
    Some((socket.ok()?, listener.opened_by))
}
