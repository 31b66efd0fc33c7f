//! The counters of one key: two in place, or as many as it takes on the heap.

use alloc::vec::Vec;
use core::fmt;

/// Keeps the counters of a [`WindowState`](super::WindowState): `[u32; 2]` or `Vec<u32>`.
///
/// Sealed: the two are all there are.
pub trait Counters: Clone + Default + PartialEq + fmt::Debug + sealed::Sealed {
    /// The counters, newest first; what is missing is 0.
    fn as_slice(&self) -> &[u32];
    /// The counters to write to: `count` of them, if that many can be kept.
    fn slots(&mut self, count: usize) -> &mut [u32];
    /// Bytes on the heap for `count` of them.
    fn heap_bytes(count: usize) -> usize;
}

impl Counters for [u32; 2] {
    #[inline]
    fn as_slice(&self) -> &[u32] {
        self
    }
    #[inline]
    fn slots(&mut self, _count: usize) -> &mut [u32] {
        self
    }
    fn heap_bytes(_count: usize) -> usize {
        0
    }
}

/// Empty until the first charge: a key never seen costs no allocation.
impl Counters for Vec<u32> {
    #[inline]
    fn as_slice(&self) -> &[u32] {
        self
    }
    #[inline]
    fn slots(&mut self, count: usize) -> &mut [u32] {
        if self.len() != count {
            self.reserve_exact(count.saturating_sub(self.len()));
            self.resize(count, 0);
        }
        self
    }
    fn heap_bytes(count: usize) -> usize {
        count * size_of::<u32>()
    }
}

mod sealed {
    use alloc::vec::Vec;

    /// Names the two kinds of counters.
    #[expect(unnameable_types, reason = "sealed: nobody else may implement it")]
    pub trait Sealed {}
    impl Sealed for [u32; 2] {}
    impl Sealed for Vec<u32> {}
}

/// Counters as a later moment sees them: `shift` windows on, and `extra` charged to the newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) counts: &'a [u32],
    pub(super) shift: u64,
    pub(super) extra: u64,
}

impl Seen<'_> {
    /// The counter of the window `back` before the current one.
    #[inline]
    pub(super) fn at(self, back: usize) -> u64 {
        let extra = if back == 0 { self.extra } else { 0 };
        let kept = usize::try_from(self.shift)
            .ok()
            .and_then(|shift| back.checked_sub(shift))
            .and_then(|at| self.counts.get(at));
        extra + kept.map_or(0, |&count| u64::from(count))
    }

    /// The sum of the newest `windows`.
    #[inline]
    pub(super) fn sum(self, windows: usize) -> u64 {
        let shift = usize::try_from(self.shift).unwrap_or(usize::MAX);
        let kept = self.counts.iter().take(windows.saturating_sub(shift));
        self.extra + kept.map(|&count| u64::from(count)).sum::<u64>()
    }

    /// The newest of `windows` that counted anything.
    #[inline]
    pub(super) fn newest(self, windows: usize) -> Option<usize> {
        (0..windows).find(|&back| self.at(back) > 0)
    }
}
