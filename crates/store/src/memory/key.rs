//! Keys: as a request brings them, and as an entry keeps them, in three sizes: a table holds
//! one of them.
//!
//! ```text
//!   word    | bytes 7 | fe |                     seven bytes
//!           | bytes 6 | length 1 | ff |          fewer: an address
//!           | bytes 8 |                          eight, if the last is less than fe: a number
//!   short   | length 1 | bytes 15 |              up to fifteen: a short name
//!   long    | kind 1 | length 1 | bytes 30 |     or, if longer still, a box on the heap
//! ```
//!
//! All leave a bit pattern for "no entry", so an empty slot costs nothing beside the slot.
//!
//! A request's key is read once, into a *probe* that is hashed and compared in registers. The reads
//! have the sizes that the writes just before most likely had: a number as a whole; other keys by
//! their first byte, which is the length of the first part, and the rest. The reason is store
//! forwarding: a read that spans several recent writes waits until all of them, and everything
//! before them, have left the processor, including the previous decision.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;

/// Hashes keys: seeded for each store, so that clients cannot aim for one shard, or for long probes.
#[cfg(not(test))]
pub(super) use foldhash::quality::RandomState as KeyHasher;

#[cfg(test)]
pub(super) use foldhash::quality::FixedState as KeyHasher; // the same hashes on every run

/// The last byte of a word that is a key of seven bytes.
const SEVEN: u8 = 0xFE;
/// The last byte of a word that is a key of fewer.
const FEWER: u8 = 0xFF;
/// The longest short key.
const SHORT: usize = 15;
/// The longest key kept in place.
const INLINE: usize = 30;
/// Bytes of a long key that its head holds.
const HEAD: usize = 16;

/// How a key is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SizeClass {
    /// As a [`WordKey`].
    Word,
    /// As a [`ShortKey`].
    Short,
    /// As a [`LongKey`].
    Long,
}

impl SizeClass {
    #[inline]
    pub(super) fn of(key: &[u8]) -> Self {
        match <[u8; 8]>::try_from(key) {
            // The word is read whole, as it was written.
            Ok(word) if u64::from_le_bytes(word) < u64::from(SEVEN) << 56 => Self::Word,
            Err(_) if key.len() < 8 => Self::Word,
            _ if key.len() <= SHORT => Self::Short,
            _ => Self::Long,
        }
    }
}

#[inline]
pub(super) fn hash_of(hasher: &KeyHasher, key: &[u8]) -> u64 {
    match SizeClass::of(key) {
        SizeClass::Word => WordKey::hash(hasher, &WordKey::probe(key)),
        SizeClass::Short => ShortKey::hash(hasher, &ShortKey::probe(key)),
        SizeClass::Long => LongKey::hash(hasher, &LongKey::probe(key)),
    }
}

/// A key that a table owns.
pub(super) trait StoredKey: Sized + 'static {
    const SIZE: SizeClass;
    /// A key prepared for hashing and comparing.
    type Probe<'a>: Copy;

    /// Prepares `key`, which must have a length for this size.
    fn probe(key: &[u8]) -> Self::Probe<'_>;
    fn hash(hasher: &KeyHasher, probe: &Self::Probe<'_>) -> u64;
    fn is(&self, probe: &Self::Probe<'_>) -> bool;
    fn new(key: &[u8]) -> Self;
    /// Calls `to` with the bytes of the key.
    fn show(&self, to: &mut dyn FnMut(&[u8]));
    /// Returns the hash of this key.
    fn rehash(&self, hasher: &KeyHasher) -> u64;
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Heap bytes of a key of this length.
pub(super) fn key_heap(length: usize) -> usize {
    if length <= INLINE { 0 } else { block(length) }
}

/// A key of at most 8 bytes, as one number; see the [module](self). Kept inverted: no key is
/// eight times `ff`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WordKey(NonZeroU64);

impl StoredKey for WordKey {
    const SIZE: SizeClass = SizeClass::Word;
    type Probe<'a> = Self;

    #[expect(clippy::inline_always, reason = "keys are compared in registers")]
    #[inline(always)]
    fn probe(key: &[u8]) -> Self {
        debug_assert_eq!(SizeClass::of(key), SizeClass::Word);
        let last = |byte: u8| u64::from(byte) << 56;
        let word = if let Ok(number) = <[u8; 8]>::try_from(key) {
            u64::from_le_bytes(number)
        } else if let Ok(number) = <[u8; 4]>::try_from(key) {
            u64::from(u32::from_le_bytes(number)) | 4 << 48 | last(FEWER)
        } else if let Some((&first, rest)) = key.split_first() {
            // The first byte is the length of the first part, written by itself.
            let bytes = u64::from(first) | padded(rest).0 << 8;
            match key.len() as u64 {
                7 => bytes | last(SEVEN),
                length => bytes | length << 48 | last(FEWER),
            }
        } else {
            last(FEWER)
        };
        Self(NonZeroU64::new(!word).unwrap_or(NonZeroU64::MIN))
    }

    #[inline]
    fn hash(hasher: &KeyHasher, probe: &Self) -> u64 {
        hasher.hash_one(probe.0.get())
    }

    #[inline]
    fn is(&self, probe: &Self) -> bool {
        self == probe
    }

    fn new(key: &[u8]) -> Self {
        Self::probe(key)
    }

    fn show(&self, to: &mut dyn FnMut(&[u8])) {
        let bytes = (!self.0.get()).to_le_bytes();
        let length = match bytes {
            [.., length, FEWER] => usize::from(length),
            [.., SEVEN] => 7,
            _ => 8,
        };
        to(&bytes[..length]);
    }

    fn rehash(&self, hasher: &KeyHasher) -> u64 {
        Self::hash(hasher, self)
    }
}

/// A key of at most 15 bytes, in its form in memory: length + 1, then the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ShortKey {
    low: NonZeroU64,
    high: u64,
}

impl StoredKey for ShortKey {
    const SIZE: SizeClass = SizeClass::Short;
    type Probe<'a> = Self;

    #[expect(clippy::inline_always, reason = "keys are compared in registers")]
    #[inline(always)]
    fn probe(key: &[u8]) -> Self {
        debug_assert_eq!(SizeClass::of(key), SizeClass::Short);
        let length = key.len() as u64 + 1;
        if let Ok(number) = <[u8; 8]>::try_from(key) {
            let number = u64::from_le_bytes(number);
            return Self {
                low: NonZeroU64::new(number << 8 | length).unwrap_or(NonZeroU64::MIN),
                high: number >> 56,
            };
        }
        let (&first, rest) = key.split_first().unwrap_or((&0, &[]));
        // The first byte is the length of the first part, written by itself.
        let (low, high) = padded(rest);
        let low_end = length | u64::from(first) << 8;
        Self {
            low: NonZeroU64::new(low << 16 | low_end).unwrap_or(NonZeroU64::MIN),
            high: high << 16 | low >> 48,
        }
    }

    #[inline]
    fn hash(hasher: &KeyHasher, probe: &Self) -> u64 {
        let mut hasher = hasher.build_hasher();
        hasher.write_u128(u128::from(probe.high) << 64 | u128::from(probe.low.get()));
        hasher.finish()
    }

    #[inline]
    fn is(&self, probe: &Self) -> bool {
        (self.low.get() ^ probe.low.get()) | (self.high ^ probe.high) == 0
    }

    fn new(key: &[u8]) -> Self {
        Self::probe(key)
    }

    fn show(&self, to: &mut dyn FnMut(&[u8])) {
        let all = u128::from(self.high) << 64 | u128::from(self.low.get());
        let [length, bytes @ ..] = all.to_le_bytes();
        to(&bytes[..usize::from(length - 1)]);
    }

    fn rehash(&self, hasher: &KeyHasher) -> u64 {
        Self::hash(hasher, self)
    }
}

/// A key of more than 15 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LongKey {
    /// Bytes behind the end are 0.
    Inline {
        length: u8,
        tail: [u8; INLINE - HEAD],
        head: [u64; 2],
    },
    Heap(Box<[u8]>),
}

/// A long key as it is looked for.
#[derive(Clone, Copy)]
pub(super) struct LongProbe<'a> {
    key: &'a [u8],
    /// The first 16 bytes of a key that is kept in place.
    head: [u64; 2],
    /// Its other bytes, at most 14.
    tail: [u64; 2],
}

impl StoredKey for LongKey {
    const SIZE: SizeClass = SizeClass::Long;
    type Probe<'a> = LongProbe<'a>;

    #[expect(clippy::inline_always, reason = "keys are compared in registers")]
    #[inline(always)]
    fn probe(key: &[u8]) -> LongProbe<'_> {
        let [mut head, mut tail] = [[0; 2]; 2];
        if let Some((first, rest)) = key.split_first_chunk::<HEAD>()
            && key.len() <= INLINE
        {
            let first = u128::from_le_bytes(*first);
            head = [low(first), low(first >> 64)];
            tail = padded(rest).into();
        }
        LongProbe { key, head, tail }
    }

    #[inline]
    fn hash(hasher: &KeyHasher, probe: &LongProbe<'_>) -> u64 {
        if probe.key.len() <= INLINE {
            return hash_inline(hasher, probe.key.len() as u64, probe.head, probe.tail);
        }
        let mut hasher = hasher.build_hasher();
        hasher.write(probe.key);
        hasher.finish()
    }

    #[inline]
    fn is(&self, probe: &LongProbe<'_>) -> bool {
        match self {
            Self::Inline { length, tail, head } => {
                let differ = |a: u64, b: u64| a ^ b;
                let (start, end) = ends(tail);
                let other_end = probe.tail[1] << 16 | probe.tail[0] >> 48;
                usize::from(*length) == probe.key.len()
                    && differ(head[0], probe.head[0])
                        | differ(head[1], probe.head[1])
                        | differ(start, probe.tail[0])
                        | differ(end, other_end)
                        == 0
            }
            Self::Heap(bytes) => **bytes == *probe.key,
        }
    }

    fn new(key: &[u8]) -> Self {
        let LongProbe { head, tail, .. } = Self::probe(key);
        match u8::try_from(key.len()) {
            Ok(length) if key.len() <= INLINE => {
                let all = u128::from(tail[1]) << 64 | u128::from(tail[0]);
                let [tail @ .., _, _] = all.to_le_bytes();
                Self::Inline { length, tail, head }
            }
            _ => Self::Heap(key.into()),
        }
    }

    fn show(&self, to: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Inline { length, tail, head } => {
                let mut bytes = [0; INLINE];
                bytes[..8].copy_from_slice(&head[0].to_le_bytes());
                bytes[8..HEAD].copy_from_slice(&head[1].to_le_bytes());
                bytes[HEAD..].copy_from_slice(tail);
                to(&bytes[..usize::from(*length)]);
            }
            Self::Heap(bytes) => to(bytes),
        }
    }

    fn rehash(&self, hasher: &KeyHasher) -> u64 {
        match self {
            Self::Inline { length, tail, head } => {
                let (start, end) = ends(tail);
                hash_inline(hasher, u64::from(*length), *head, [start, end >> 16])
            }
            Self::Heap(bytes) => Self::hash(hasher, &Self::probe(bytes)),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(bytes) => key_heap(bytes.len()),
        }
    }
}

/// Returns the hash of a long key that is kept in place.
#[inline]
fn hash_inline(hasher: &KeyHasher, length: u64, head: [u64; 2], tail: [u64; 2]) -> u64 {
    let mut hasher = hasher.build_hasher();
    let end = tail[1] | length << 48; // it fits above the 14 bytes of the tail
    hasher.write_u128(u128::from(head[1]) << 64 | u128::from(head[0]));
    hasher.write_u128(u128::from(end) << 64 | u128::from(tail[0]));
    hasher.finish()
}

/// Up to 14 bytes, then zeros, as two numbers.
#[expect(clippy::inline_always, reason = "keys are built in registers")]
#[inline(always)]
fn padded(bytes: &[u8]) -> (u64, u64) {
    // Two reads that overlap; the second is shifted until only the new bytes are left.
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        let half = 4 * (16 - bytes.len()); // by halves: 64 at once is not a shift
        let last = u64::from_le_bytes(*last);
        (u64::from_le_bytes(*first), last >> half >> half)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        let last = u64::from(last) << (8 * (bytes.len() - 4));
        (u64::from(first) | last, 0)
    } else {
        let bytes = bytes.iter().rev();
        (bytes.fold(0, |all, &byte| all << 8 | u64::from(byte)), 0)
    }
}

/// The first and the last 8 bytes of a tail.
#[inline]
fn ends(tail: &[u8; INLINE - HEAD]) -> (u64, u64) {
    let [first @ .., _, _, _, _, _, _] = *tail;
    let [_, _, _, _, _, _, last @ ..] = *tail;
    (u64::from_le_bytes(first), u64::from_le_bytes(last))
}

#[expect(clippy::cast_possible_truncation, reason = "only the low half is used")]
#[inline]
fn low(number: u128) -> u64 {
    number as u64
}

/// Bytes that an allocator takes for a block of `bytes`: a header and rounding, as in the GNU C
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

    fn check_key_is_read_back<K: StoredKey>(lengths: impl IntoIterator<Item = usize>) {
        let hasher = KeyHasher::default();
        for length in lengths {
            let key: Vec<u8> = (1..=length).map(|at| at.to_le_bytes()[0]).collect();
            let stored = K::new(&key);
            stored.show(&mut |bytes| assert_eq!(bytes, key));
            assert_eq!(stored.heap_bytes(), key_heap(length));
            assert!(stored.is(&K::probe(&key)));
            assert_eq!(stored.rehash(&hasher), hash_of(&hasher, &key));
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert!(!stored.is(&K::probe(&other)), "byte {at} of {length}");
                let (hash, other) = (hash_of(&hasher, &key), hash_of(&hasher, &other));
                assert_ne!(hash, other, "byte {at} of {length}");
            }
        }
    }

    #[test]
    fn keys_are_read_back_as_they_were_stored() {
        check_key_is_read_back::<WordKey>(0..=8);
        check_key_is_read_back::<ShortKey>(9..=15);
        check_key_is_read_back::<LongKey>((16..=40).chain([255, 256, 70_000]));
        assert_eq!(key_heap(30), 0);
        assert!(key_heap(31) > 31);
    }

    /// Words for keys of up to seven bytes are taken from those for eight.
    #[test]
    fn no_two_keys_share_a_word() {
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for byte in [0, 1, 2, 3, 4, 5, 6, 7, 8, 0xFD, SEVEN, FEWER] {
            for length in 0..=8 {
                keys.push(vec![byte; length]);
                for last in [0, 4, 6, 7, 0xFD, SEVEN, FEWER] {
                    keys.push([&vec![byte; length][..], &[last]].concat());
                }
            }
        }
        keys.sort();
        keys.dedup();
        keys.retain(|key| SizeClass::of(key) == SizeClass::Word);
        let mut words: Vec<u64> = Vec::new();
        for key in &keys {
            let word = WordKey::new(key);
            word.show(&mut |shown| assert_eq!(shown, key));
            words.push(word.0.get());
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), keys.len());
        assert!(keys.len() > 300, "{}", keys.len());
    }

    #[test]
    fn eight_bytes_without_a_word_are_stored_as_short_keys() {
        for last in [SEVEN, FEWER] {
            let key = [9, 8, 7, 6, 5, 4, 3, last];
            assert_eq!(SizeClass::of(&key), SizeClass::Short);
            ShortKey::new(&key).show(&mut |shown| assert_eq!(shown, key));
            assert!(ShortKey::new(&key).is(&ShortKey::probe(&key)));
        }
        assert_eq!(
            SizeClass::of(&[0xFF, 0, 0, 0, 0, 0, 0, 0xFD]),
            SizeClass::Word
        );
    }

    #[test]
    fn keys_of_different_lengths_differ() {
        fn check<K: StoredKey>(lengths: impl Iterator<Item = usize>) {
            for length in lengths {
                let (shorter, longer) = (vec![0; length], vec![0; length + 1]);
                assert!(!K::new(&shorter).is(&K::probe(&longer)), "{length}");
                assert!(!K::new(&longer).is(&K::probe(&shorter)), "{length}");
            }
        }
        check::<WordKey>(0..8);
        check::<ShortKey>(9..15);
        check::<LongKey>(16..40);
    }

    #[test]
    fn an_empty_slot_takes_no_extra_space() {
        assert_eq!(size_of::<Option<(WordKey, u64)>>(), 16);
        assert_eq!(size_of::<Option<(ShortKey, u64)>>(), 24);
        assert_eq!(size_of::<Option<(LongKey, u64)>>(), 40);
    }
}
