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
//! sides write the bytes to a hasher: the pattern once, and each request.

use std::hash::Hasher;
use std::net::IpAddr;

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

impl CommonPart {
    /// Returns the number of segments of a path up to the last one in the part.
    pub(crate) fn depth(self) -> usize {
        match self {
            Self::Segments(fixed) => (u16::BITS - fixed.leading_zeros()) as usize,
            Self::Text(_) | Self::V4(_) | Self::V6(_) => 0,
        }
    }

    /// Writes this part of a path. Returns false if the path has no such part.
    pub(crate) fn of_path(self, path: &[u8], segments: &[&[u8]], to: &mut impl Hasher) -> bool {
        let mut fixed = match self {
            Self::Text(_) => {
                to.write(path);
                return true;
            }
            Self::Segments(fixed) => fixed,
            Self::V4(_) | Self::V6(_) => return false,
        };
        while fixed != 0 {
            let Some(segment) = segments.get(fixed.trailing_zeros() as usize) else {
                return false;
            };
            to.write(segment);
            fixed &= fixed - 1; // clears the lowest bit
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
