//! The counters of one key: two in place, or as many as it takes on the heap.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// Keeps the counters of a [`WindowState`](super::WindowState): `[u64; 2]` or [`Buckets`].
///
/// Sealed: there are no others.
pub trait Counters: Clone + Default + PartialEq + fmt::Debug + sealed::Sealed {
    /// The counters, newest first; missing ones are 0.
    fn as_slice(&self) -> &[u64];
    /// The sum of all but the last, which is the one that slides out of sight.
    fn whole(&self) -> u64;
    /// Adds to the newest, if there is one.
    fn charge(&mut self, cost: u64);
    /// Calls `write` with the counters: `count` of them, if that many can be kept.
    fn change(&mut self, count: usize, write: impl FnOnce(&mut [u64]));
    /// Bytes on the heap for `count` of them.
    fn heap_bytes(count: usize) -> usize;
}

impl Counters for [u64; 2] {
    #[inline]
    fn as_slice(&self) -> &[u64] {
        self
    }
    #[inline]
    fn whole(&self) -> u64 {
        self[0]
    }
    #[inline]
    fn charge(&mut self, cost: u64) {
        self[0] += cost;
    }
    #[inline]
    fn change(&mut self, _count: usize, write: impl FnOnce(&mut [u64])) {
        write(self);
    }
    fn heap_bytes(_count: usize) -> usize {
        0
    }
}

/// As many counters as it takes, on the heap. Their sum is kept beside them, so that a
/// decision need not look through them.
///
/// Empty until the first charge: a key never seen costs no allocation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Buckets {
    counts: Box<[u64]>,
    /// The sum of all but the last.
    whole: u64,
}

impl Counters for Buckets {
    #[inline]
    fn as_slice(&self) -> &[u64] {
        &self.counts
    }
    #[inline]
    fn whole(&self) -> u64 {
        self.whole
    }
    #[inline]
    fn charge(&mut self, cost: u64) {
        if let Some(newest) = self.counts.first_mut() {
            *newest += cost;
            self.whole += cost;
        }
    }
    fn change(&mut self, count: usize, write: impl FnOnce(&mut [u64])) {
        if self.counts.len() != count {
            let mut counts = vec![0; count].into_boxed_slice();
            for (count, kept) in counts.iter_mut().zip(&self.counts) {
                *count = *kept;
            }
            self.counts = counts;
        }
        write(&mut self.counts);
        let (_, whole) = self.counts.split_last().unwrap_or((&0, &[]));
        self.whole = whole.iter().sum();
    }
    fn heap_bytes(count: usize) -> usize {
        count * size_of::<u64>()
    }
}

mod sealed {
    use super::Buckets;

    /// Names the two kinds of counters.
    #[expect(unnameable_types, reason = "sealed: no other crate may implement it")]
    pub trait Sealed {}
    impl Sealed for [u64; 2] {}
    impl Sealed for Buckets {}
}

/// Counters as seen `shift` windows later.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleCounts<'a> {
    counts: &'a [u64],
    shift: u64,
    /// The counter of the current window, with the charge to it.
    pub(super) newest: u64,
}

impl<'a> VisibleCounts<'a> {
    #[inline]
    pub(super) fn new(counts: &'a [u64], shift: u64) -> Self {
        let newest = match (shift, counts) {
            (0, [newest, ..]) => *newest,
            _ => 0,
        };
        Self {
            counts,
            shift,
            newest,
        }
    }

    /// The counter of the window `back` before the current one.
    #[inline]
    pub(super) fn at(self, back: usize) -> u64 {
        if back == 0 {
            return self.newest;
        }
        let kept = usize::try_from(self.shift)
            .ok()
            .and_then(|shift| back.checked_sub(shift))
            .and_then(|at| self.counts.get(at));
        kept.copied().unwrap_or(0)
    }

    /// The sum of the newest `windows`.
    pub(super) fn sum(self, windows: usize) -> u64 {
        (0..windows).map(|back| self.at(back)).sum()
    }

    /// The newest of `windows` with a count above 0, as a number of windows back.
    #[inline]
    pub(super) fn newest_of(self, windows: usize) -> Option<usize> {
        (0..windows).find(|&back| self.at(back) > 0)
    }
}
