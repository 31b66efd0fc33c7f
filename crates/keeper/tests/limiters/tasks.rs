//! Tasks in virtual time, for tests of waiting.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ratekeeper::core::{Nanos, Time};
use ratekeeper::{Clock, ManualClock, WaitError};

pub(crate) type Clocked = Arc<ManualClock>;
pub(crate) type Waited = Result<Option<Nanos>, WaitError>;

/// Tasks in virtual time, polled when woken and in that order.
pub(crate) struct Tasks<'a> {
    clock: Clocked,
    /// Each has one timer at most.
    lines: usize,
    pub(crate) running: BTreeMap<usize, Pin<Box<dyn Future<Output = Waited> + 'a>>>,
    woken: Arc<Mutex<VecDeque<usize>>>,
    /// Tasks that are done: number, time and result.
    pub(crate) done: Vec<(usize, Time, Waited)>,
}

struct Ring {
    task: usize,
    woken: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push_back(self.task);
    }
}

impl<'a> Tasks<'a> {
    /// No tasks yet; new ones wait in `lines` lines.
    pub(crate) fn new(clock: &Clocked, lines: usize) -> Self {
        Self {
            clock: Arc::clone(clock),
            lines,
            running: BTreeMap::new(),
            woken: Arc::default(),
            done: Vec::new(),
        }
    }

    pub(crate) fn start(
        &mut self,
        task: usize,
        future: impl Future<Output = Result<Option<Duration>, WaitError>> + 'a,
    ) {
        let waited = async { future.await.map(|waited| waited.map(Nanos::from)) };
        self.running.insert(task, Box::pin(waited));
        self.poll(task);
    }

    fn poll(&mut self, task: usize) {
        let Some(future) = self.running.get_mut(&task) else {
            return;
        };
        let woken = Arc::clone(&self.woken);
        let waker = Waker::from(Arc::new(Ring { task, woken }));
        if let Poll::Ready(waited) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.running.remove(&task);
            self.done.push((task, self.clock.now(), waited));
        }
    }

    pub(crate) fn drop_task(&mut self, task: usize) {
        self.running.remove(&task);
    }

    pub(crate) fn settle(&mut self) {
        loop {
            let next = self.woken.lock().unwrap().pop_front();
            match next {
                Some(task) => self.poll(task),
                None => return,
            }
        }
    }

    /// Moves the clock from timer to timer until all are done.
    pub(crate) fn run(&mut self) {
        self.settle();
        while let Some(due) = self.clock.next_wake() {
            assert!(
                self.clock.sleepers() <= self.lines,
                "only the first waiter of a queue has a timer"
            );
            self.clock.set(due);
            self.settle();
        }
        assert!(
            self.running.is_empty(),
            "{} tasks starve",
            self.running.len()
        );
    }

    pub(crate) fn order(&self) -> Vec<usize> {
        self.done.iter().map(|(task, ..)| *task).collect()
    }
}
