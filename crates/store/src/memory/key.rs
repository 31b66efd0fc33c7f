//! Keys: as a request brings them, and as an entry keeps them, in two sizes: a table holds
//! one of them.
//!
//! ```text
//!   short   | length 1 | bytes 15 |              an address, a number, a short name
//!   long    | kind 1 | length 1 | bytes 30 |     or, if longer still, a box on the heap
//! ```
//!
//! Both leave a bit pattern for "no entry", so an empty slot costs nothing beside the slot.
//!
//! A request's key is read once, into a [`Probe`] that is hashed and compared in registers.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU8;

use foldhash::quality::RandomState;

/// The longest short key.
const SHORT: usize = 15;
/// The longest key kept in place.
const INLINE: usize = 30;

/// A key as it is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe<'a> {
    pub(super) bytes: &'a [u8],
    /// A short key: length + 1, then all bytes. Else the first 16 bytes.
    head: u128,
    /// The other bytes and the length of a key that is kept in place; else 0.
    tail: u128,
}

impl<'a> Probe<'a> {
    /// Reads a key.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (head, tail) = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) if bytes.len() <= INLINE => {
                let (first, last) = (u128::from_le_bytes(*first), u128::from_le_bytes(*last));
                let twice = 2 * size_of::<u128>() - bytes.len(); // bytes that are in both
                let rest = last.checked_shr(8 * u32::try_from(twice).unwrap_or(0));
                let length = (bytes.len() as u128) << (8 * (INLINE - size_of::<u128>()));
                (first, rest.unwrap_or(0) | length)
            }
            (Some(_), _) => (0, 0),
            _ => (short(bytes), 0),
        };
        Self { bytes, head, tail }
    }

    /// Whether it is kept as a [`ShortKey`]; else as a [`LongKey`].
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.bytes.len() <= SHORT
    }

    /// Seeded for each store: a stranger cannot aim for one shard, or for long probes.
    #[inline]
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        let mut hasher = hasher.build_hasher();
        if self.is_short() {
            hasher.write_u128(self.head);
        } else if self.bytes.len() <= INLINE {
            hasher.write_u128(self.head);
            hasher.write_u128(self.tail);
        } else {
            hasher.write(self.bytes);
        }
        hasher.finish()
    }
}

/// Length + 1 and the bytes of a short key as one number, as they lie in memory.
///
/// The first byte is read alone. It is the length of the first part, written by itself just
/// before, and a read that spans two fresh writes waits until both have left the processor,
/// and with them all that the processor did before.
#[inline]
fn short(key: &[u8]) -> u128 {
    let Some((&first, rest)) = key.split_first() else {
        return 1;
    };
    // Two reads that overlap hold the same bits where they do.
    let rest = if let (Some(first), Some(last)) = (rest.first_chunk::<8>(), rest.last_chunk::<8>())
    {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        u128::from(first) | u128::from(last) << (8 * (rest.len() - size_of::<u64>()))
    } else if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        u128::from(first) | u128::from(last) << (8 * (rest.len() - size_of::<u32>()))
    } else {
        let bytes = rest.iter().rev();
        bytes.fold(0, |bytes, &byte| bytes << 8 | u128::from(byte))
    };
    rest << 16 | u128::from(first) << 8 | (key.len() as u128 + 1)
}

/// A key that a table owns.
pub(super) trait StoredKey: Sized {
    fn is(&self, probe: &Probe<'_>) -> bool;
    /// A copy of a key that is of a length that this size is for.
    fn new(probe: &Probe<'_>) -> Self;
    fn as_bytes(&self) -> &[u8];
    /// Bytes on the heap that a key of this length takes.
    fn heap_bytes(length: usize) -> usize;

    fn hash(&self, hasher: &RandomState) -> u64 {
        Probe::new(self.as_bytes()).hash(hasher)
    }
}

/// A key of at most 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)] // in this order: a probe is compared with all 16 bytes in one read
pub(super) struct ShortKey {
    /// Length + 1.
    length: NonZeroU8,
    bytes: [u8; SHORT],
}

impl StoredKey for ShortKey {
    #[inline]
    fn is(&self, probe: &Probe<'_>) -> bool {
        let mut all = [self.length.get(); size_of::<u128>()];
        all[1..].copy_from_slice(&self.bytes);
        u128::from_le_bytes(all) == probe.head
    }

    fn new(probe: &Probe<'_>) -> Self {
        debug_assert!(probe.is_short());
        let [length, bytes @ ..] = probe.head.to_le_bytes();
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

/// A key of more than 15 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LongKey {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl StoredKey for LongKey {
    #[inline]
    fn is(&self, probe: &Probe<'_>) -> bool {
        match self {
            Self::Inline { length, bytes } => {
                let (mut head, mut tail) = ([0; size_of::<u128>()], [*length; size_of::<u128>()]);
                head.copy_from_slice(&bytes[..size_of::<u128>()]);
                let rest = INLINE - size_of::<u128>();
                tail[..rest].copy_from_slice(&bytes[size_of::<u128>()..]);
                tail[rest + 1] = 0;
                u128::from_le_bytes(head) == probe.head && u128::from_le_bytes(tail) == probe.tail
            }
            Self::Heap(bytes) => **bytes == *probe.bytes,
        }
    }

    fn new(probe: &Probe<'_>) -> Self {
        let key = probe.bytes;
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

    fn comes_back<K: StoredKey>(lengths: impl IntoIterator<Item = usize>) {
        let hasher = RandomState::default();
        for length in lengths {
            let key: Vec<u8> = (1..=length).map(|at| at.to_le_bytes()[0]).collect();
            let stored = K::new(&Probe::new(&key));
            assert_eq!(stored.as_bytes(), key);
            assert!(stored.is(&Probe::new(&key)));
            assert_eq!(stored.hash(&hasher), Probe::new(&key).hash(&hasher));
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 0x80;
                let other = Probe::new(&other);
                assert!(!stored.is(&other), "byte {at} of {length}");
                assert_ne!(
                    stored.hash(&hasher),
                    other.hash(&hasher),
                    "byte {at} of {length}"
                );
            }
        }
    }

    #[test]
    fn keys_come_back() {
        comes_back::<ShortKey>(0..=15);
        comes_back::<LongKey>((16..=40).chain([255, 256, 70_000]));
        assert_eq!(LongKey::heap_bytes(30), 0);
        assert!(LongKey::heap_bytes(31) > 31);
    }

    #[test]
    fn the_length_tells() {
        for length in 0..40 {
            let (shorter, longer) = (vec![0; length], vec![0; length + 1]);
            let (shorter, longer) = (Probe::new(&shorter), Probe::new(&longer));
            if longer.is_short() {
                assert!(!ShortKey::new(&shorter).is(&longer), "{length}");
                assert!(!ShortKey::new(&longer).is(&shorter), "{length}");
            } else if !shorter.is_short() {
                assert!(!LongKey::new(&shorter).is(&longer), "{length}");
                assert!(!LongKey::new(&longer).is(&shorter), "{length}");
            }
        }
    }

    #[test]
    fn an_empty_slot_costs_nothing_more() {
        assert_eq!(size_of::<Option<(ShortKey, u64)>>(), 24);
        assert_eq!(size_of::<Option<(LongKey, u64)>>(), 40);
    }
}
