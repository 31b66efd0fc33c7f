//! Workers: the threads that decide, one runtime each.
//!
//! A connection is given to one worker, in turn, and stays there, so no decision waits for
//! another thread, and no queue is shared.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::StartError;

/// Maximum number of worker threads, whatever the machine or the operator asks for.
const MAX_WORKERS: usize = 256;

/// Number of tasks that run between two looks at the sockets of a thread: streams of HTTP/2 are
/// tasks, and a connection may have a hundred that never wait.
const TASKS_BETWEEN_LOOKS: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Workers {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicUsize,
    stop: watch::Sender<bool>,
}

impl Workers {
    pub(crate) fn start(count: Option<NonZeroUsize>) -> Result<Self, StartError> {
        let count = count
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get)
            .min(MAX_WORKERS);
        let mut workers = Self::default();
        for index in 0..count {
            workers.add(index)?;
        }
        Ok(workers)
    }

    /// Returns the calling thread as the only worker.
    pub(crate) fn here() -> Self {
        Self {
            handles: vec![Handle::current()],
            ..Self::default()
        }
    }

    fn add(&mut self, index: usize) -> Result<(), StartError> {
        let failed = |error: std::io::Error| StartError::Thread(error.to_string());
        let runtime = Builder::new_current_thread()
            .enable_all()
            .event_interval(TASKS_BETWEEN_LOOKS)
            .build()
            .map_err(failed)?;
        self.handles.push(runtime.handle().clone());
        let mut stop = self.stop.subscribe();
        let run = move || {
            // An error means that the sender is gone: time to stop too.
            let _ = runtime.block_on(stop.wait_for(|stop| *stop));
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new()
            .name(format!("decide-{index}"))
            .spawn(run)
            .map_err(failed)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Returns the next worker in turn.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % self.handles.len()]
    }

    /// Ends the threads; connections still open are dropped.
    pub(crate) fn stop(self) {
        self.stop.send_replace(true);
        for thread in self.threads {
            let _ = thread.join(); // a worker that panicked has nothing left to clean up
        }
    }
}
