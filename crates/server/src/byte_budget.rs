//! Byte budget: bytes that several owners share, with a bound.
//!
//! One is that of requests that are held back, of all connections together; a second one that of
//! responses: those copied to find their costs, and answers to batches until they are sent. A body
//! that came with its head is decided at once. A body that has to be waited for is held, and
//! thousands of clients can cause that at once: beyond the budget a request is refused, and its
//! client may try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Maximum number of bytes of bodies held at once: sixty-four of the largest batches.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 20;

/// A budget, and the bytes held of it.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    most: usize,
    held: AtomicUsize,
}

/// Bytes that one owner holds; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl ByteBudget {
    /// Creates a budget of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let held = AtomicUsize::new(0);
        Arc::new(Self { most, held })
    }

    /// Returns the number of bytes held now.
    pub(crate) fn bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Starts the account of one owner, which holds nothing yet.
    pub(crate) fn hold(self: &Arc<Self>) -> HeldBytes {
        HeldBytes {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Holds `bytes`; `None` if that exceeds the budget.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<HeldBytes> {
        let mut held = self.hold();
        held.resize(bytes).then_some(held)
    }
}

impl HeldBytes {
    /// Holds `bytes` in total from now on. Returns false, and holds no more than before, if that
    /// exceeds the budget.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let ByteBudget { most, held } = &*self.budget;
        let before = self.bytes;
        let fits = |held: usize| {
            let held = (held - before).saturating_add(bytes);
            (held <= *most || bytes <= before).then_some(held)
        };
        let updated = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if updated.is_ok() {
            self.bytes = bytes;
        }
        updated.is_ok()
    }

    /// Holds more bytes; returns false, and holds no more, if that exceeds the budget.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Returns `bytes`, which stay held until they are dropped.
    pub(crate) fn keep(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(KeptBytes { bytes, _held: self })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes with their share of the budget.
struct KeptBytes {
    bytes: Bytes,
    _held: HeldBytes,
}

impl AsRef<[u8]> for KeptBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_are_bounded_and_returned() {
        let budget = ByteBudget::new(MAX_BODY_BYTES);
        let (mut first, mut second) = (budget.hold(), budget.hold());
        assert!(first.resize(MAX_BODY_BYTES - 10));
        assert!(second.resize(10));
        assert!(!second.resize(11), "one byte too many");
        assert_eq!(budget.bytes(), MAX_BODY_BYTES);
        assert!(second.resize(5) && first.resize(1));
        assert_eq!(budget.bytes(), 6);
        let kept = first.keep(Bytes::from_static(b"x"));
        drop(second);
        let clone = kept.clone();
        drop(kept);
        assert_eq!(budget.bytes(), 1);
        assert_eq!(&clone[..], b"x");
        drop(clone);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn shares_never_exceed_the_budget_and_come_back() {
        let budget = ByteBudget::new(10);
        let mut first = budget.take(6).unwrap();
        assert!(budget.take(5).is_none());
        assert!(!first.grow(5));
        assert!(first.grow(4));
        assert!(budget.take(1).is_none());
        drop(first);
        assert!(budget.take(10).is_some());
    }
}
