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

use smallvec::SmallVec;

use crate::glob::GlobPiece;

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
    starts: SmallVec<[usize; MAX_SEGMENTS + 1]>,
}

impl<'p> FirstSegments<'p> {
    /// Finds the first `depth` segments, at most 16.
    pub(crate) fn new(path: &'p [u8], depth: usize) -> Self {
        let mut starts = SmallVec::new();
        if depth > 0 {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            for (at, _) in slashes.take(depth.min(MAX_SEGMENTS) + 1) {
                starts.push(at + 1);
            }
            if starts.len() <= depth {
                starts.push(path.len() + 1);
            }
        }
        Self { path, starts }
    }

    /// Returns adjacent segments, with the slashes between them.
    fn run(&self, first: usize, length: usize) -> Option<&'p [u8]> {
        let (start, end) = (self.starts.get(first)?, self.starts.get(first + length)?);
        self.path.get(*start..end - 1)
    }
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
