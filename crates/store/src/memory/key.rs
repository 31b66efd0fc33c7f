//! The key of an entry: in place up to 30 bytes, else on the heap.
//!
//! ```text
//!   | kind 1 | length 1 | bytes 30 |     32 bytes: an address, a 28-character name
//!   | kind 1 | ......   | box   16 |     longer
//! ```

/// The longest key kept in place: an address or a short identity with its length bytes.
const INLINE: usize = 30;

/// A key that the table owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StoredKey {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl StoredKey {
    pub(super) fn new(key: &[u8]) -> Self {
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
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }

    /// Bytes on the heap that a key of this length takes.
    pub(super) fn heap_bytes(length: usize) -> usize {
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

    #[test]
    fn keys_come_back() {
        assert_eq!(size_of::<StoredKey>(), 32);
        for length in [0, 1, 29, 30, 31, 255, 256, 70_000] {
            let key = vec![7; length];
            assert_eq!(StoredKey::new(&key).as_bytes(), key);
            assert_eq!(StoredKey::heap_bytes(length) > 0, length > INLINE);
        }
    }
}
