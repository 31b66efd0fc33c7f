//! By hash: any value that is `Hash + Eq` as a key, by the bytes that its `Hash` feeds to a hasher.
//!
//! ```text
//!   Caller::User(42)                01 2a 00 00 00 00 00 00 00        the variant, then its fields
//!   Caller::Guest("ann")            02 61 6e 6e ff                    a text ends with ff
//!   (7_u8, vec!["a", "bc"])         07 02 61 ff 62 63 ff              a list begins with its length
//! ```
//!
//! Nothing is hashed: the bytes themselves are the key, so two keys never share a count by chance.

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::LimitKey;
use super::key::push_varint;

/// Any value that is `Hash + Eq` as a key: an enum, a struct, a tuple of these, a type of another
/// crate.
///
/// The bytes of the key are those that the value's `Hash` feeds to a hasher. A derived `Hash` and
/// those of integers, texts, addresses, tuples, lists, options and maps of the standard library
/// feed different bytes for different values, and never bytes that begin with those of another
/// value, so that parts cannot be taken for one another: `("ab", "c")` and `("a", "bc")` are
/// different keys. A `Hash` written by hand must do the same. Values share one count if it feeds
/// the same bytes for both: if it leaves a field out, or joins two texts without an end between
/// them, as that of [`Path`](std::path::Path) does.
///
/// Up to 64 bytes need no place on the heap. The bytes are the same on all machines, except that
/// lists of integers are fed as the machine holds them. The standard library may feed other bytes
/// in its next version: for a store that different builds share, use a tuple, or implement
/// [`LimitKey`].
///
/// ```
/// use ratekeeper::{ByHash, KeyedLimiter};
///
/// #[derive(Hash, PartialEq, Eq)]
/// enum Caller {
///     User { tenant: u32, number: u64 },
///     Guest(std::net::IpAddr),
/// }
///
/// let limiter = KeyedLimiter::per("1/1h")?;
/// let ann = Caller::User { tenant: 7, number: 1 };
/// assert!(limiter.check(ByHash(&ann)).is_ok());
/// assert!(limiter.check(ByHash(&ann)).is_err());
/// assert!(limiter.check(ByHash(&Caller::Guest([192, 0, 2, 1].into()))).is_ok());
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByHash<K>(pub K);

impl<K: Hash + Eq> LimitKey for ByHash<K> {
    #[inline]
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        let mut collected = Collected(SmallVec::new());
        self.0.hash(&mut collected);
        collected.0
    }
}

/// A hasher that collects the bytes instead of hashing them.
struct Collected(SmallVec<[u8; 64]>);

macro_rules! little_endian {
    ($($write:ident($number:ty);)*) => {$(
        #[inline]
        fn $write(&mut self, number: $number) {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    )*};
}

impl Hasher for Collected {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    little_endian! {
        write_u16(u16);
        write_u32(u32);
        write_u64(u64);
        write_u128(u128);
    }

    /// Lengths are written by this method, variants of enums by the next.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        push_varint(number as u64, |byte| self.0.push(byte));
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        push_varint((number as i64).cast_unsigned(), |byte| self.0.push(byte));
    }

    /// Returns FNV-1a of the bytes, for a `Hash` that asks: no key is found by it.
    fn finish(&self) -> u64 {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, fold)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::IpAddr;

    use proptest::collection::{btree_map, vec};
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::KeyedLimiter;

    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    enum Caller {
        Unknown,
        User(u64),
        Guest(String),
        Member {
            tenant: Option<u32>,
            names: (String, Vec<String>),
        },
        Sizes(usize, isize),
        Address(IpAddr, i64),
        Map(BTreeMap<String, Vec<u8>>),
    }

    fn bytes(key: impl Hash + Eq) -> Vec<u8> {
        ByHash(key).key_bytes().as_ref().to_vec()
    }

    #[test]
    fn keys_have_the_bytes_of_the_figure() {
        assert_eq!(bytes(Caller::User(42)), [1, 42, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(Caller::Guest("ann".into())), b"\x02ann\xff");
        assert_eq!(bytes((7_u8, vec!["a", "bc"])), b"\x07\x02a\xffbc\xff");
    }

    #[test]
    fn words_of_the_machine_have_the_bytes_of_their_number() {
        assert_eq!(bytes(300_usize), [0b1010_1100, 2]);
        assert_eq!(bytes(-1_isize), [[255; 9].as_slice(), &[1]].concat());
        assert_eq!(bytes(usize::MAX).len(), 10);
        assert_eq!(bytes(0x0102_u16), [2, 1]);
        assert_eq!(bytes(0x0102_i128), [[2, 1].as_slice(), &[0; 14]].concat());
    }

    #[test]
    fn different_keys_have_different_counts() {
        let limiter = KeyedLimiter::per("1/1h").unwrap();
        let member = |tenant, name: &str, others: &[&str]| Caller::Member {
            tenant,
            names: (name.into(), others.iter().map(|&it| it.into()).collect()),
        };
        let keys = BTreeSet::from([
            Caller::Unknown,
            Caller::User(0),
            Caller::User(1),
            Caller::Guest(String::new()),
            Caller::Guest("1".into()),
            member(None, "ab", &["c"]),
            member(None, "a", &["bc"]),
            member(None, "a", &["b", "c"]),
            member(Some(0), "a", &["b", "c"]),
            member(None, "abc", &[]),
        ]);
        assert_eq!(keys.len(), 10);
        for key in &keys {
            assert!(limiter.check(ByHash(key)).is_ok(), "{key:?}");
        }
        for key in keys {
            assert!(limiter.key(ByHash(&key)).check().is_err(), "{key:?}");
        }
        for nested in [("a", ("b", "c")), ("ab", ("", "c")), ("", ("ab", "c"))] {
            let text = ByHash(nested); // other types of key, other bytes
            assert!(limiter.check(text).is_ok() && limiter.check(text).is_err());
        }
    }

    #[test]
    fn short_keys_allocate_nothing() {
        let key = (7_u32, "a user with a name of usual length", [1_u64, 2]);
        let counted = allocation_counter::measure(|| {
            let key = ByHash(&key);
            assert_eq!(key.key_bytes().as_ref().len(), 56);
        });
        assert_eq!(counted.count_total, 0);
    }

    /// A small choice of parts, so that the same parts occur in other places.
    fn text() -> impl Strategy<Value = String> {
        "[a\u{1}\u{ff}]{0,2}|a{127,129}"
    }

    fn caller() -> impl Strategy<Value = Caller> {
        let number = || prop_oneof![Just(0), Just(1), Just(127), Just(128), any::<u64>()];
        let address = || {
            prop_oneof![
                any::<[u8; 4]>().prop_map(IpAddr::from),
                any::<[u8; 16]>().prop_map(IpAddr::from)
            ]
        };
        prop_oneof![
            Just(Caller::Unknown),
            number().prop_map(Caller::User),
            text().prop_map(Caller::Guest),
            (option::of(0_u32..3), text(), vec(text(), 0..3)).prop_map(|(tenant, name, others)| {
                Caller::Member {
                    tenant,
                    names: (name, others),
                }
            }),
            (0_usize..300, -2_isize..3).prop_map(|(one, other)| Caller::Sizes(one, other)),
            (address(), any::<i64>())
                .prop_map(|(address, number)| Caller::Address(address, number)),
            btree_map(text(), vec(any::<u8>(), 0..3), 0..3).prop_map(Caller::Map),
        ]
    }

    proptest! {
        #[test]
        fn keys_have_equal_bytes_only_if_they_are_equal(
            one in vec(caller(), 0..3),
            other in vec(caller(), 0..3),
        ) {
            let (left, right) = (bytes(&one), bytes(&other));
            prop_assert_eq!(left == right, one == other);
            prop_assert!(one == other || !left.starts_with(&right), "bytes that go on");
            let pairs = ((one.first(), &other), (other.first(), &one));
            prop_assert_eq!(bytes(pairs.0) == bytes(pairs.1), pairs.0 == pairs.1);
        }
    }
}
