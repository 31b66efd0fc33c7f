//! Key: the values that a limiter counts by.
//!
//! ```text
//!   "ann"              61 6e 6e
//!   42_u64             2a 00 00 00 00 00 00 00
//!   192.0.2.1          c0 00 02 01
//!   ("ann", 42_u8)     03 61 6e 6e 01 2a          each part after its length
//! ```
//!
//! A limiter holds the bytes of a key, eight of them in the place of a number, so that numbers and
//! addresses are found without a copy on the heap.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use smallvec::SmallVec;

/// A value that a [`KeyedLimiter`](crate::KeyedLimiter) counts by: a text, bytes, an integer, an
/// address, a tuple of these, or a type of your own: as [`ByHash`](crate::ByHash)`(&value)` if it
/// is `Hash + Eq`, or by this trait, if it is to have the bytes that you choose.
///
/// Values of one type have the same bytes only if they are equal, tuples too: `("ab", "c")` and
/// `("a", "bc")` are different keys. (An [`IpAddr`] that is an IPv4 address mapped into IPv6, or
/// translated by NAT64, is the IPv4 address.) Use one type of key with a limiter, because values of
/// different types may have the same bytes.
///
/// ```
/// use ratekeeper::{KeyedLimiter, LimitKey};
/// use std::net::IpAddr;
///
/// let limiter = KeyedLimiter::per("1/1h")?;
/// let address: IpAddr = [192, 0, 2, 1].into();
/// assert!(limiter.check((address, "/login")).is_ok());
/// assert!(limiter.check((address, "/login")).is_err());
/// assert!(limiter.check((address, "/search")).is_ok());
///
/// struct User { tenant: u32, number: u64 } // numbers are below 2^32
/// impl LimitKey for User {
///     fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
///         (self.number << 32 | u64::from(self.tenant)).to_le_bytes()
///     }
/// }
/// assert!(limiter.check(User { tenant: 7, number: 1 }).is_ok());
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key of a limit",
    note = "if it is `Hash + Eq`, write `ByHash(&key)`"
)]
pub trait LimitKey {
    /// Returns the bytes of the key, the same for equal values only.
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send;
}

/// Bytes of a tuple; most need no place on the heap.
type TupleBytes = SmallVec<[u8; 64]>;

/// Passes a number to `push`, seven bits a byte, the lowest first: a small one takes one byte.
#[expect(clippy::cast_possible_truncation, reason = "a byte takes seven bits")]
#[inline]
pub(crate) fn push_varint(mut number: u64, mut push: impl FnMut(u8)) {
    while number > 127 {
        push((number & 127) as u8 | 128);
        number >>= 7;
    }
    push(number as u8);
}

/// Appends a part after its length.
fn push_part(bytes: &mut TupleBytes, part: &impl LimitKey) {
    let part = part.key_bytes();
    let part = part.as_ref();
    push_varint(part.len() as u64, |byte| bytes.push(byte));
    bytes.extend_from_slice(part);
}

impl<K: LimitKey + ?Sized> LimitKey for &K {
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        (**self).key_bytes()
    }
}

/// Implements [`LimitKey`] by the bytes of an expression.
macro_rules! limit_keys {
    ($($(#[$doc:meta])* $of:ty: |$key:ident| $bytes:expr;)*) => {$(
        $(#[$doc])*
        impl LimitKey for $of {
            #[inline]
            fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
                let $key = self;
                $bytes
            }
        }
    )*};
}

limit_keys! {
    str: |key| key.as_bytes();
    String: |key| key.as_bytes();
    Box<str>: |key| key.as_bytes();
    Arc<str>: |key| key.as_bytes();
    std::borrow::Cow<'_, str>: |key| key.as_bytes();
    [u8]: |key| key;
    Vec<u8>: |key| key;
    Box<[u8]>: |key| key;
    Arc<[u8]>: |key| key;
    Ipv4Addr: |key| key.octets();
    Ipv6Addr: |key| key.octets();
    /// One count for all requests together.
    (): |_key| [];
}

macro_rules! numbers {
    ($($number:ty)*) => {
        limit_keys! { $($number: |key| key.to_le_bytes();)* }
    };
}

numbers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

impl<const LENGTH: usize> LimitKey for [u8; LENGTH] {
    #[inline]
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        self
    }
}

/// Converts IPv6 that stands for IPv4: `::ffff:0:0/96`, and `64:ff9b::/96`, by which clients come
/// that a NAT64 translates (RFC 6052).
pub(crate) fn one_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        other => other,
    }
}

/// An IPv4 address has four bytes, also where it is mapped into IPv6.
impl LimitKey for IpAddr {
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        match one_address(*self) {
            Self::V4(address) => SmallVec::<[u8; 16]>::from_slice(&address.octets()),
            Self::V6(address) => SmallVec::from(address.octets()),
        }
    }
}

impl<A: LimitKey, B: LimitKey> LimitKey for (A, B) {
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        let mut bytes = TupleBytes::new();
        push_part(&mut bytes, &self.0);
        push_part(&mut bytes, &self.1);
        bytes
    }
}

impl<A: LimitKey, B: LimitKey, C: LimitKey> LimitKey for (A, B, C) {
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        let mut bytes = TupleBytes::new();
        push_part(&mut bytes, &self.0);
        push_part(&mut bytes, &self.1);
        push_part(&mut bytes, &self.2);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(key: impl LimitKey) -> Vec<u8> {
        key.key_bytes().as_ref().to_vec()
    }

    #[test]
    fn keys_have_the_bytes_of_the_figure() {
        assert_eq!(bytes("ann"), b"ann");
        assert_eq!(bytes(42_u64), [42, 0, 0, 0, 0, 0, 0, 0]);
        let address: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(bytes(address), [192, 0, 2, 1]);
        assert_eq!(bytes(("ann", 42_u8)), [3, b'a', b'n', b'n', 1, 42]);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(bytes(mapped), bytes(address), "one client");
        let translated: IpAddr = "64:ff9b::192.0.2.1".parse().unwrap();
        assert_eq!(bytes(translated), bytes(address), "one client");
    }

    proptest! {
        /// Strings of up to 300 letters have lengths of one and of two bytes.
        #[test]
        fn tuples_have_equal_bytes_only_if_they_are_equal(
            one in ("[ab]{0,3}|[ab]{126,130}|a{300}", "[ab]{0,3}", "[ab]{0,3}"),
            other in ("[ab]{0,3}|[ab]{126,130}|a{300}", "[ab]{0,3}", "[ab]{0,3}"),
        ) {
            prop_assert_eq!(bytes(&one) == bytes(&other), one == other);
            let pairs = ((one.0, one.1), (other.0, other.1));
            prop_assert_eq!(bytes(&pairs.0) == bytes(&pairs.1), pairs.0 == pairs.1);
        }
    }
}
