//! Signals: the requests that the system makes of the service.

use tokio::runtime::Runtime;

/// The request of a signal.
pub(crate) enum SignalAction {
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

    pub(crate) async fn next(signals: &mut Option<Self>) -> SignalAction {
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
