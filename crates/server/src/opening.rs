//! Opening: a door that begins to accept connections, and the threads that serve them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::Door;
use crate::addresses::{DoorListener, OpenedBy};
use crate::background::start;
use crate::config::Doors;
use crate::context::ServiceContext;
use crate::serve::accept_queue::AcceptSocket;
use crate::serve::connections::Connections;
use crate::serve::listener::{Accepting, ServeConnection, Spans, StopSignals};
use crate::serve::workers::Workers;

/// A door that is about to accept connections.
pub(crate) struct Opening {
    pub(crate) shared: Arc<ServiceContext>,
    pub(crate) door: Door,
    pub(crate) connections: Arc<Connections>,
    pub(crate) spans: Spans,
}

impl Opening {
    /// Does not linger at a socket of the next process, which waits for the end of this one.
    pub(crate) fn do_not_linger_for(&mut self, doors: &Doors<DoorListener>) {
        let listener = doors.of(self.door);
        if listener.is_some_and(|listener| listener.opened_by == OpenedBy::Parent) {
            self.spans.linger = Duration::ZERO;
        }
    }

    /// Accepts connections, if the door has a listener; the task ends when no further one is
    /// accepted.
    pub(crate) fn start<D: ServeConnection>(
        self,
        doors: &mut Doors<DoorListener>,
        serve: Option<D>,
        workers: &Arc<Workers>,
        stop: &StopSignals,
    ) -> Option<JoinHandle<()>> {
        doors
            .take(self.door)
            .zip(serve)
            .and_then(|(listener, serve)| {
                let socket = AcceptSocket::new(listener.socket);
                let failed = |error: &_| tracing::error!(event = "listen.failed", %error);
                let accepting = Arc::new(Accepting {
                    socket: socket.inspect_err(failed).ok()?,
                    opened_by: listener.opened_by,
                    door: Arc::new(serve),
                    connections: self.connections,
                    spans: self.spans,
                    workers: Arc::clone(workers),
                    stop: stop.clone(),
                });
                let door = self.door;
                Some(start(&self.shared, "accept", move |shared| {
                    let accepting = Arc::clone(&accepting);
                    async move {
                        let failed = |error: &_| {
                            let process = &shared.observers.metrics.process;
                            process.accept_failed(door, error, shared.now());
                        };
                        accepting.run(failed).await;
                    }
                }))
            })
    }
}
