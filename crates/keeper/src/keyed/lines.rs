//! Lines: the waiters of each key that has some.
//!
//! ```text
//!   "ann" --> first | second      an entry as long as a caller waits for the key, or is about
//!   "bob" --> first               to: nothing for all the others
//! ```
//!
//! A caller that does not wait reads one counter here: a single load, while there are no waiters.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;

use ratekeeper_store::Lock;

use crate::limiter::line::WaitLine;

/// Number of maps of lines, because threads that wait for different keys seldom use the same map.
const PARTS: usize = 16;

type Part = Lock<HashMap<Box<[u8]>, KeyLine, RandomState>>;

/// The line of one key.
#[derive(Debug, Default)]
struct KeyLine {
    line: Arc<WaitLine>,
    /// Number of callers in it, or about to join it; never zero.
    standing: usize,
}

/// The lines of all keys.
#[derive(Debug)]
pub(super) struct KeyLines {
    /// Number of waiters of all keys, or about to be; a hint for callers that do not wait.
    present: AtomicUsize,
    parts: Box<[Part]>,
    hasher: RandomState,
}

impl KeyLines {
    pub(super) fn new() -> Self {
        Self {
            present: AtomicUsize::new(0),
            parts: (0..PARTS).map(|_| Part::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    /// Returns the number of waiters, or callers about to wait.
    #[inline]
    pub(super) fn present(&self) -> usize {
        self.present.load(Ordering::Relaxed)
    }

    /// Returns the line of a key, if it may have waiters.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Option<Arc<WaitLine>> {
        if self.present() == 0 {
            return None;
        }
        self.find_among(key)
    }

    #[cold]
    fn find_among(&self, key: &[u8]) -> Option<Arc<WaitLine>> {
        let part = self.part(key).lock();
        let line = &part.get(key)?.line;
        (line.length() > 0).then(|| Arc::clone(line))
    }

    /// Enters the line of a key, and creates it if needed.
    pub(super) fn enter(&self, key: &[u8]) -> Standing<'_> {
        self.present.fetch_add(1, Ordering::Relaxed);
        let mut part = self.part(key).lock();
        let entry = part.entry(key.into()).or_default();
        entry.standing += 1;
        Standing {
            lines: self,
            key: key.into(),
            line: Arc::clone(&entry.line),
        }
    }

    /// Wakes the first waiter of a key.
    pub(super) fn wake(&self, key: &[u8]) {
        if let Some(line) = self.find(key) {
            line.wake_first();
        }
    }

    /// Wakes the first waiter of every key.
    pub(super) fn wake_all(&self) {
        for part in &self.parts {
            let part = part.lock();
            let lines: Vec<_> = part.values().map(|entry| Arc::clone(&entry.line)).collect();
            drop(part);
            for line in lines {
                line.wake_first();
            }
        }
    }

    fn part(&self, key: &[u8]) -> &Part {
        let part = self.hasher.hash_one(key) % PARTS as u64;
        &self.parts[usize::try_from(part).unwrap_or_default()]
    }
}

/// A caller in the line of a key, or about to join it.
pub(super) struct Standing<'a> {
    lines: &'a KeyLines,
    pub(super) key: Box<[u8]>,
    pub(super) line: Arc<WaitLine>,
}

impl Drop for Standing<'_> {
    /// Removes the line when the last caller leaves.
    fn drop(&mut self) {
        let mut part = self.lines.part(&self.key).lock();
        if let Some(entry) = part.get_mut(&self.key) {
            entry.standing -= 1;
            if entry.standing == 0 {
                part.remove(&self.key);
            }
        }
        drop(part);
        self.lines.present.fetch_sub(1, Ordering::Relaxed);
    }
}
