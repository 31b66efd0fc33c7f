//! Key bytes: the keys of a request, one after the other.

use std::ops::{Deref, Range};

use ratekeeper_core::KeySink;
use smallvec::SmallVec;

/// Key bytes of a request; the first 128 need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBytes(pub(crate) SmallVec<[u8; 128]>);

impl KeyBytes {
    /// Returns the position of the next key.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Appends bytes that it already holds.
    pub(crate) fn repeat(&mut self, range: Range<usize>) {
        let copy: SmallVec<[u8; 64]> = SmallVec::from_slice(&self.0[range]);
        self.0.extend_from_slice(&copy);
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }
}

impl KeySink for KeyBytes {
    fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl Deref for KeyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
