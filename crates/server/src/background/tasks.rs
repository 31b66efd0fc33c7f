//! Tasks: work that must go on as long as the service, begun again after a panic.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::context::ServiceContext;

/// How long a task that panicked stays down; the service is not ready meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `begin()` to its end, and again after each panic.
pub(crate) fn keep<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<ServiceContext>,
    name: &'static str,
    begin: impl Fn() -> F + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        // The other error is the end of the runtime.
        while tokio::spawn(begin())
            .await
            .is_err_and(|error| error.is_panic())
        {
            tracing::error!(event = "task.failed", task = name);
            shared.observers.metrics.process.task_failures.add(1);
            shared.readiness.note_down();
            sleep(PAUSE).await;
            shared.readiness.note_up();
        }
    })
}
