//! Key share: the part of a limit's keys for which it is enforced.
//!
//! ```text
//!   percent = 10     0        10                                    100
//!                    |enforced|          as in shadow mode            |
//!   places of keys   ----x-------------------x------------------------
//! ```
//!
//! The place of a key is a hash of the limit's name and the key, so each process gives the same
//! answer, after a restart as well; limits with other names choose other keys. A larger share
//! holds all keys of a smaller one.
//!
//! The hash is FNV-1a of 64 bits over the name, a zero byte and the key, mixed by the last step of
//! `MurmurHash3`, because FNV-1a alone spreads short keys badly over the upper bits. It has no
//! secret: a client that chooses its keys can choose some that are not enforced.
//!
//! * Sources: G. Fowler, L. C. Noll, K.-P. Vo, "FNV hash" (1991); A. Appleby, `MurmurHash3`,
//!   `fmix64` (2011).

use std::fmt;

use ratekeeper_core::Key;

/// A share of all keys, in whole percents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyShare(u8);

/// All keys.
const WHOLE: u8 = 100;

impl KeyShare {
    /// Creates a share of 0 to 100 percent; `None` above that.
    ///
    /// ```
    /// use ratekeeper_policy::KeyShare;
    /// assert_eq!(KeyShare::from_percent(10).unwrap().to_string(), "10%");
    /// assert_eq!(KeyShare::from_percent(101), None);
    /// ```
    pub fn from_percent(percent: u8) -> Option<Self> {
        (percent <= WHOLE).then_some(Self(percent))
    }

    /// Returns true if all keys are in the share.
    pub const fn is_whole(self) -> bool {
        self.0 == WHOLE
    }

    /// Returns the share in percent.
    pub const fn percent(self) -> u8 {
        self.0
    }

    /// Returns true if a key of the limit `name` is in the share.
    pub fn holds(self, name: &str, key: Key<'_>) -> bool {
        place(name, key) < u64::from(self.0)
    }
}

impl fmt::Display for KeyShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// Returns the place of a key, from 0 to 99.
fn place(name: &str, key: Key<'_>) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = name
        .bytes()
        .chain([0])
        .chain(key.as_bytes().iter().copied());
    let mut hash = bytes.fold(BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    // The upper half, scaled to the range: the probabilities of places differ by 100 / 2^32.
    ((hash >> 32) * u64::from(WHOLE)) >> 32
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::KeyBuilder;

    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        KeyBuilder::new(&mut bytes).part(text.as_bytes());
        bytes
    }

    /// Counts the keys `u0` to `u9999` in a share.
    fn count(name: &str, percent: u8) -> usize {
        let share = KeyShare::from_percent(percent).unwrap();
        let keys = (0..10_000).map(|number| key(&format!("u{number}")));
        keys.filter(|bytes| share.holds(name, Key::from_bytes(bytes)))
            .count()
    }

    /// A change of these places would enforce a limit for other keys after an update.
    #[test]
    fn places_are_the_same_in_every_version() {
        let places = ["", "u1", "u2", "192.0.2.1"].map(|text| {
            let bytes = key(text);
            place("api", Key::from_bytes(&bytes))
        });
        assert_eq!(places, [27, 70, 88, 50]);
        assert_eq!(place("api", Key::ALL), 34);
    }

    #[test]
    fn a_share_holds_its_part_of_the_keys() {
        for (percent, least, most) in [
            (0, 0, 0),
            (1, 60, 140),
            (10, 900, 1_100),
            (50, 4_800, 5_200),
            (100, 10_000, 10_000),
        ] {
            for name in ["api", "login"] {
                let count = count(name, percent);
                assert!((least..=most).contains(&count), "{name} {percent}: {count}");
            }
        }
    }

    #[test]
    fn a_larger_share_holds_a_smaller_one_and_names_choose_other_keys() {
        let (ten, twenty) = (KeyShare::from_percent(10), KeyShare::from_percent(20));
        let (ten, twenty) = (ten.unwrap(), twenty.unwrap());
        let mut in_both = 0;
        for number in 0..10_000 {
            let bytes = key(&format!("u{number}"));
            let key = Key::from_bytes(&bytes);
            assert!(!ten.holds("api", key) || twenty.holds("api", key));
            in_both += usize::from(ten.holds("api", key) && ten.holds("login", key));
        }
        assert!((60..140).contains(&in_both), "1% expected: {in_both}");
    }
}
