//! The key of an entry, in two sizes: a table holds one of them.
//!
//! ```text
//!   short   | length 1 | bytes 15 |              an address, a number, a short name
//!   long    | kind 1 | length 1 | bytes 30 |     or, if longer still, a box on the heap
//! ```
//!
//! Both leave a bit pattern for "no entry", so an empty slot costs nothing beside the slot.

use std::num::NonZeroU8;

/// The longest key kept in place.
const INLINE: usize = 30;

/// A key that a table owns.
pub(super) trait StoredKey: Sized {
    /// A key prepared for comparing.
    type Probe<'a>: Copy;

    fn probe(key: &[u8]) -> Self::Probe<'_>;
    fn is(&self, probe: Self::Probe<'_>) -> bool;
    /// `key` is of a length that this size is for.
    fn new(key: &[u8]) -> Self;
    fn as_bytes(&self) -> &[u8];
    /// Bytes on the heap that a key of this length takes.
    fn heap_bytes(length: usize) -> usize;
}

/// A key of at most 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)] // in this order: a probe is compared with all 16 bytes in one read
pub(super) struct ShortKey {
    /// Length + 1.
    length: NonZeroU8,
    bytes: [u8; Self::MOST],
}

impl ShortKey {
    /// The longest.
    pub(super) const MOST: usize = 15;
}

impl StoredKey for ShortKey {
    /// Length and bytes as one number, as they lie in memory.
    type Probe<'a> = u128;

    /// Made in registers: a key copied to the stack piece by piece and read back whole would
    /// stall every look-up.
    #[inline]
    fn probe(key: &[u8]) -> u128 {
        debug_assert!(key.len() <= Self::MOST);
        let length = key.len().min(Self::MOST);
        // Two reads that overlap hold the same bits where they do.
        let bytes = if let (Some(first), Some(last)) =
            (key.first_chunk::<8>(), key.last_chunk::<8>())
        {
            let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
            u128::from(first) | u128::from(last) << (8 * (length - size_of::<u64>()))
        } else if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u128::from(first) | u128::from(last) << (8 * (length - size_of::<u32>()))
        } else {
            key.iter()
                .rev()
                .fold(0, |bytes, &byte| bytes << 8 | u128::from(byte))
        };
        bytes << 8 | (length as u128 + 1)
    }

    #[inline]
    fn is(&self, probe: u128) -> bool {
        let mut all = [self.length.get(); size_of::<u128>()];
        all[1..].copy_from_slice(&self.bytes);
        u128::from_le_bytes(all) == probe
    }

    fn new(key: &[u8]) -> Self {
        let [length, bytes @ ..] = Self::probe(key).to_le_bytes();
        Self {
            length: NonZeroU8::new(length).unwrap_or(NonZeroU8::MIN),
            bytes,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length.get() - 1)]
    }

    fn heap_bytes(_length: usize) -> usize {
        0
    }
}

/// A key of any length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LongKey {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl StoredKey for LongKey {
    type Probe<'a> = &'a [u8];

    #[inline]
    fn probe(key: &[u8]) -> &[u8] {
        key
    }

    #[inline]
    fn is(&self, probe: &[u8]) -> bool {
        self.as_bytes() == probe
    }

    fn new(key: &[u8]) -> Self {
        match u8::try_from(key.len()) {
            Ok(length) if key.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..key.len()].copy_from_slice(key);
                Self::Inline { length, bytes }
            }
            _ => Self::Heap(key.into()),
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }

    fn heap_bytes(length: usize) -> usize {
        if length <= INLINE { 0 } else { block(length) }
    }
}

/// What an allocator takes for a block of `bytes`: a header and rounding, as in the GNU C
/// library. Allocators with size classes take less for nearly all sizes.
pub(super) fn block(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => (bytes + 8).next_multiple_of(16).max(32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back<K: StoredKey>(lengths: &[usize]) {
        for &length in lengths {
            let key = vec![7; length];
            let stored = K::new(&key);
            assert_eq!(stored.as_bytes(), key);
            assert!(stored.is(K::probe(&key)));
            let zeros = vec![0; length.saturating_sub(1)];
            assert!(length == 0 || !stored.is(K::probe(&zeros)));
        }
    }

    #[test]
    fn keys_come_back() {
        comes_back::<ShortKey>(&[0, 1, 14, 15]);
        comes_back::<LongKey>(&[0, 1, 16, 30, 31, 255, 256, 70_000]);
        assert_ne!(ShortKey::new(b""), ShortKey::new(b"\0"), "length tells");
        assert_eq!(LongKey::heap_bytes(30), 0);
        assert!(LongKey::heap_bytes(31) > 31);
    }

    #[test]
    fn an_empty_slot_costs_nothing_more() {
        assert_eq!(size_of::<Option<(ShortKey, u64)>>(), 24);
        assert_eq!(size_of::<Option<(LongKey, u64)>>(), 40);
    }
}
