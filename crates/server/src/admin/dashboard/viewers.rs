//! Viewers: the open pages, and the last state that was made for them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::doors::problem::{Problem, TOO_MANY_STREAMS};

/// Maximum number of streams.
const MAX_STREAMS: usize = 32;

/// The open streams, and the state they show.
#[derive(Debug)]
pub(crate) struct Streams {
    most: usize,
    /// `None` once the service stops.
    viewers: Mutex<Option<Vec<Viewer>>>,
    /// The last state, and the second in which it was made.
    pub(super) last: Mutex<Option<(u64, Bytes)>>,
}

#[derive(Debug)]
struct Viewer {
    /// Name of the limit that it shows; `None` for the first.
    limit: Option<Arc<str>>,
    states: mpsc::Sender<Bytes>,
}

impl Streams {
    /// Allows streams beside the other calls of that many connections.
    pub(crate) fn beside(connections: u32) -> Self {
        let half = usize::try_from(connections / 2).unwrap_or(MAX_STREAMS);
        Self {
            most: half.clamp(1, MAX_STREAMS),
            viewers: Mutex::new(Some(Vec::new())),
            last: Mutex::default(),
        }
    }

    /// Ends all streams, for good.
    pub(crate) fn end(&self) {
        *self.viewers.lock() = None;
    }

    /// Returns the number of streams.
    pub(super) fn count(&self) -> usize {
        let viewers = self.viewers.lock();
        let each = viewers.iter().flatten();
        each.filter(|viewer| !viewer.states.is_closed()).count()
    }

    /// Adds a stream, which begins with a state.
    pub(super) fn add(
        &self,
        limit: Option<Arc<str>>,
        first: Bytes,
    ) -> Result<mpsc::Receiver<Bytes>, Problem> {
        let mut viewers = self.viewers.lock();
        let Some(viewers) = viewers.as_mut() else {
            let detail = "the service is stopping; call the one that takes its place";
            return Err(Problem::new(TOO_MANY_STREAMS, detail));
        };
        viewers.retain(|viewer| !viewer.states.is_closed());
        let (open, most) = (viewers.len(), self.most);
        if open >= most {
            let detail =
                format!("{open} dashboards are open, and {most} may be at once; close one of them");
            return Err(Problem::new(TOO_MANY_STREAMS, detail));
        }
        let (states, reader) = mpsc::channel(1);
        let _ = states.try_send(first); // it has room for one
        viewers.push(Viewer { limit, states });
        Ok(reader)
    }

    /// Sends each viewer the state that `make` returns for its limit.
    pub(super) fn send(&self, make: impl Fn(Option<&str>) -> Bytes) {
        let limits = match self.viewers.lock().as_mut() {
            None => return,
            Some(viewers) => {
                viewers.retain(|viewer| !viewer.states.is_closed());
                let limits = viewers.iter().map(|viewer| viewer.limit.clone());
                let mut limits: Vec<_> = limits.collect();
                limits.sort();
                limits.dedup();
                limits
            }
        };
        for limit in limits {
            let state = make(limit.as_deref());
            let viewers = self.viewers.lock();
            let each = viewers.iter().flatten();
            for viewer in each.filter(|viewer| viewer.limit == limit) {
                let _ = viewer.states.try_send(state.clone()); // full: a slow reader loses it
            }
        }
    }
}
