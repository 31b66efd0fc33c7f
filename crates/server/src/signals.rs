//! Signals: the requests that the system makes of the service.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::Trigger;
use crate::context::ServiceContext;

/// The request of a signal.
enum SignalAction {
    Stop,
    Reload,
}

/// SIGTERM, SIGINT, SIGHUP; SIGUSR1 and SIGUSR2, which would end the process, do nothing.
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn listen(runtime: &Runtime) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let _context = runtime.enter();
        // Taken once, they stay harmless for the life of the process.
        for harmless in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(harmless)?);
        }
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(signals: &mut Option<Self>) -> SignalAction {
        let Some(signals) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = signals.terminate.recv() => SignalAction::Stop,
            _ = signals.interrupt.recv() => SignalAction::Stop,
            _ = signals.hangup.recv() => SignalAction::Reload,
        }
    }
}

/// Returns when the service must stop; reloads meanwhile when asked by signal.
pub(crate) async fn wait_for_the_end(
    shared: &Arc<ServiceContext>,
    signals: &mut Option<Signals>,
    stopped: &mut mpsc::Receiver<()>,
) {
    loop {
        tokio::select! {
            _ = stopped.recv() => return,
            asked = Signals::next(signals) => match asked {
                SignalAction::Stop => return,
                SignalAction::Reload => {
                    let shared = Arc::clone(shared);
                    tokio::task::spawn_blocking(move || {
                        let _ = shared.reload(Trigger::Signal); // the event has the result
                    });
                }
            }
        }
    }
}
