//! Run: the main thread of a service, from open doors to the last snapshot.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::Nanos;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Open;
use crate::addresses::OpenedBy;
use crate::admin::AdminDoor;
use crate::background::exports::Exports;
use crate::background::start_tasks;
use crate::doors::HttpDoor;
use crate::opening::Opening;
use crate::serve::connections::{Connections, all_ended};
use crate::serve::listener::{Http, StopSignals};
use crate::serve::workers::Workers;
use crate::source::watch::Watcher;
use crate::store::secrets;
use crate::{Door, Event, state, store};

/// How long the end of a service waits for the reader of its access log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The state that the main thread needs.
pub(super) struct ServiceRun {
    pub(super) open: Open,
    pub(super) workers: Workers,
    pub(super) stopped: mpsc::Receiver<()>,
    pub(super) watcher: Option<Watcher>,
}

impl ServiceRun {
    /// Serves until the end: see the [module above](super).
    pub(super) async fn run(mut self) {
        let (leave, _) = watch::channel(false);
        let (close, closes) = StopSignals::before(&leave);
        let (close_admin, admin_closes) = StopSignals::before(&leave);
        let here = Arc::new(Workers::here());
        let workers = Arc::new(self.workers);
        let shared = self.open.shared;
        let mut doors = self.open.doors;
        let is_passed_on = doors
            .open()
            .any(|(_, open)| open.opened_by == OpenedBy::Parent);

        let door = Http(HttpDoor(Arc::clone(&shared)));
        let capacity = self.open.capacity;
        let process = &shared.observers.metrics.process;
        let callers = Connections::new(capacity.callers, Arc::clone(&process.callers));
        let operators = Connections::new(capacity.admin, Arc::clone(&process.admin));
        let opening = |door, connections: &Arc<Connections>| Opening {
            shared: Arc::clone(&shared),
            door,
            connections: Arc::clone(connections),
            spans: capacity.spans(door),
        };
        let http = opening(Door::Http, &callers);
        let http = http.start(&mut doors, Some(door), &workers, &closes);
        let proxy = opening(Door::Proxy, &callers);
        let proxy = proxy.start(&mut doors, self.open.proxy.map(Http), &workers, &closes);
        let grpc = opening(Door::Grpc, &callers);
        let grpc = grpc.start(&mut doors, Some(self.open.grpc), &workers, &closes);
        let door = Http(AdminDoor(Arc::clone(&shared)));
        let mut admin = opening(Door::Admin, &operators);
        admin.do_not_linger_for(&doors);
        let admin = admin.start(&mut doors, Some(door), &here, &admin_closes);
        store::tend_once(&shared).await; // whether it is there decides whether this is ready
        store::by_hand::refresh(&shared).await.ok(); // a key that is banned finds no new process open
        start_tasks(&shared);
        let mut exports = Exports::start(&shared);
        let secrets = secrets::keep_fresh(Arc::clone(&shared), self.open.store_secrets);
        tokio::spawn(secrets);
        shared.readiness.open();

        self.stopped.recv().await;
        shared.readiness.close();
        shared.streams.end();
        let grace = Nanos::from(capacity.grace);
        shared.hold.close(shared.now() + grace);
        let before = callers.open();
        close.send_replace(true);
        // With the others, so that a new process can take all ports while requests end here.
        close_admin.send_replace(true);
        shared.sink.emit(&Event::Stopping);
        let patience = Instant::now() + capacity.drain + capacity.grace;
        let mut grace = pin!(sleep_until(patience));
        let ended = async {
            tokio::select! {
                () = all_ended(&before) => {}
                () = &mut grace => {}
            }
            if is_passed_on {
                // Before the sockets are left, where connections wait for the end of this process.
                exports.end(&shared).await;
            }
            leave.send_replace(true);
            for accepting in [http, proxy, grpc].into_iter().flatten() {
                let _ = accepting.await; // an error: it ended by a panic, logged already
            }
            let since = callers.open_since(&before);
            tokio::select! {
                () = all_ended(&since) => {}
                // The last ones began a moment ago.
                () = async { grace.await; sleep(capacity.drain).await } => {}
            }
            if !is_passed_on {
                exports.end(&shared).await;
            }
            let admin_ended = async {
                if let Some(accepting) = admin {
                    let _ = accepting.await; // likewise
                }
                operators.ended().await;
            };
            let _ = timeout_at(patience, admin_ended).await;
        };
        tokio::select! {
            () = ended => {}
            _ = self.stopped.recv() => {} // asked twice: stop waiting
        }
        leave.send_replace(true);
        if let Some(watcher) = self.watcher.take() {
            watcher.stop();
        }
        exports.stop(&shared);
        state::saving::save(&shared).await;
        if let Some(workers) = Arc::into_inner(workers) {
            workers.stop();
        }
        let access_log = shared.observers.metrics.process.access_log.lock().take();
        if let Some(log) = access_log {
            log.flush_within(LAST_LINES); // lines that are not read by then are lost
        }
        shared.sink.emit(&Event::Stopped);
    }
}
