//! Common part: the bytes that all values which match a pattern have in common.
//!
//! ```text
//!   "beta", "beta-*", "*.example.com"   all of it, its first or its last bytes
//!   "/login"                            all of it
//!   "/api/{version}/users/**"           its segments 1 and 3
//!   "10.1.0.0/16"                       its first 16 bits
//! ```
//!
//! A value without this part does not match; one with it must still be compared in full. Both
//! sides write the bytes to a hasher: the pattern once, and each request. Adjacent segments are
//! written at once, with the slashes between them.

use std::hash::Hasher;
use std::net::IpAddr;

use crate::model::matching::glob::GlobPiece;

/// Maximum number of segments of a path that are looked at: `/api/v1/users/{id}/orders` has 5.
pub(crate) const MAX_SEGMENTS: usize = 16;

/// Position of the common part in a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CommonPart {
    /// A piece of a text, or a whole path.
    Text(GlobPiece),
    /// Segments of a path: bit `n` for the segment with `n` before it.
    Segments(u16),
    /// This number of first bits of an IPv4 address.
    V4(u8),
    /// This number of first bits of an IPv6 address.
    V6(u8),
}

/// A normal path, and where its first segments are.
pub(crate) struct FirstSegments<'p> {
    path: &'p [u8],
    /// One behind each slash; behind the last segment, one behind the end of the path.
    starts: [usize; MAX_SEGMENTS + 1],
    count: usize,
}

impl<'p> FirstSegments<'p> {
    /// Finds the first `depth` segments, at most 16.
    #[inline]
    pub(crate) fn new(path: &'p [u8], depth: usize) -> Self {
        let mut found = Self {
            path,
            starts: [0; MAX_SEGMENTS + 1],
            count: 0,
        };
        if depth > 0 {
            found.find(depth.min(MAX_SEGMENTS) + 1);
        }
        found
    }

    /// Notes the first `wanted` places behind slashes. Eight bytes are compared at once.
    fn find(&mut self, wanted: usize) {
        let (words, tail) = self.path.as_chunks();
        for (index, word) in words.iter().enumerate() {
            let mut slashes = slashes(u64::from_le_bytes(*word));
            while slashes != 0 {
                self.note(index * 8 + slashes.trailing_zeros() as usize / 8 + 1);
                if self.count == wanted {
                    return;
                }
                slashes &= slashes - 1; // clears the lowest bit
            }
        }
        for (index, byte) in tail.iter().enumerate() {
            if *byte == b'/' && self.count < wanted {
                self.note(words.len() * 8 + index + 1);
            }
        }
        if self.count < wanted {
            self.note(self.path.len() + 1);
        }
    }

    fn note(&mut self, start: usize) {
        if let Some(place) = self.starts.get_mut(self.count) {
            *place = start;
            self.count += 1;
        }
    }

    /// Returns adjacent segments, with the slashes between them.
    fn run(&self, first: usize, length: usize) -> Option<&'p [u8]> {
        let starts = self.starts.get(..self.count)?;
        let (start, end) = (starts.get(first)?, starts.get(first + length)?);
        self.path.get(*start..end - 1)
    }
}

/// Returns a word with the highest bit of each byte that is a slash in `word`, and no other.
fn slashes(word: u64) -> u64 {
    const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    let differs = word ^ SLASHES;
    // The sum of a byte carries into its highest bit, and not into the next byte.
    !(((differs & LOW) + LOW) | differs | LOW)
}

impl CommonPart {
    /// Returns the number of segments of a path up to the last one in the part.
    pub(crate) fn depth(self) -> usize {
        match self {
            Self::Segments(fixed) => (u16::BITS - fixed.leading_zeros()) as usize,
            Self::Text(_) | Self::V4(_) | Self::V6(_) => 0,
        }
    }

    /// Writes this part of a path. Returns false if the path has no such part.
    #[inline]
    pub(crate) fn of_path(self, path: &FirstSegments<'_>, to: &mut impl Hasher) -> bool {
        let mut fixed = match self {
            Self::Text(_) => {
                to.write(path.path);
                return true;
            }
            Self::Segments(fixed) => fixed,
            Self::V4(_) | Self::V6(_) => return false,
        };
        let mut at = 0;
        while fixed != 0 {
            at += fixed.trailing_zeros();
            fixed >>= fixed.trailing_zeros();
            let length = fixed.trailing_ones();
            let Some(run) = path.run(at as usize, length as usize) else {
                return false;
            };
            to.write(run);
            at += length;
            fixed = fixed.checked_shr(length).unwrap_or(0);
        }
        true
    }

    /// Writes this part of an address. Returns false if the address has no such part.
    pub(crate) fn of_address(self, address: IpAddr, to: &mut impl Hasher) -> bool {
        match (self, address) {
            (Self::V4(bits), IpAddr::V4(_)) | (Self::V6(bits), IpAddr::V6(_)) => {
                to.write_u128(leading_bits(address, bits));
                true
            }
            _ => false,
        }
    }
}

/// Returns the first `bits` bits of an address as a number.
pub(crate) fn leading_bits(address: IpAddr, bits: u8) -> u128 {
    let (number, width) = match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    // No bit of an address is the number 0.
    number
        .checked_shr(width - u32::from(bits).min(width))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The definition: a split at the slashes.
        #[test]
        fn segments_are_those_between_slashes(
            path in "/[a/.\u{af}]{0,40}",
            depth in 0..=MAX_SEGMENTS,
        ) {
            let found = FirstSegments::new(path.as_bytes(), depth);
            let segments: Vec<_> = path.split('/').skip(1).take(depth).collect();
            for first in 0..=depth {
                for length in 1..=depth - first {
                    let expected = segments.get(first..first + length);
                    let expected = expected.map(|run| run.join("/").into_bytes());
                    let run = found.run(first, length);
                    prop_assert_eq!(run.map(<[u8]>::to_vec), expected);
                }
            }
        }
    }
}
