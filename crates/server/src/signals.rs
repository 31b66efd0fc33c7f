//! Signals: the requests that the system makes of the service.

use std::io;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::Trigger;
use crate::context::ServiceContext;

/// Begins to stop the service by SIGTERM and SIGINT, and to reload its policy by SIGHUP. SIGUSR1 and
/// SIGUSR2, which would end the process, do nothing.
pub(crate) fn obey(
    runtime: &Runtime,
    shared: Arc<ServiceContext>,
    stop: mpsc::Sender<()>,
) -> io::Result<()> {
    let _context = runtime.enter();
    // Taken once, they stay harmless for the life of the process.
    for harmless in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
        drop(signal(harmless)?);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    runtime.spawn(async move {
        let stop = || stop.try_send(()).unwrap_or_default(); // full: asked already
        loop {
            tokio::select! {
                _ = terminate.recv() => stop(),
                _ = interrupt.recv() => stop(),
                _ = hangup.recv() => {
                    let shared = Arc::clone(&shared);
                    tokio::task::spawn_blocking(move || {
                        let _ = shared.reload(Trigger::Signal); // the event has the result
                    });
                }
            }
        }
    });
    Ok(())
}
