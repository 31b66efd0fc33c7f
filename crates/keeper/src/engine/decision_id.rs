//! Decision id: the charges of a request that a report may correct, as a text.
//!
//! ```text
//!   base64url:  | 5 | time 4 | flags 1, paid after 8, owed 8, length 1, limit, cost 4 or 8,
//!                            |   length 2, key             one for each charge | made 8, nonce 16
//! ```
//!
//! The text contains all that is needed to correct the charges, so any node that shares the store
//! can do it, and a restart loses nothing. No part of it can be forged: the store keeps a record
//! under the hash of the whole, and an id without a record corrects nothing. The nonce is random,
//! so that an id cannot be guessed. The id holds the keys, readable by its holder.
//!
//! The flag `WIDE` marks a cost of 8 bytes. The flag `MADE` is missing if the charge was not made,
//! because a limit in shadow mode denied it, or another one of a chain was made.
//!
//! * Source of the encoding: as of [`Permit`](crate::Permit).

use std::fmt;
use std::str::FromStr;

use ratekeeper_core::{Algorithm as _, Key, KeyBuilder, LeaseId, Limit, Nanos, Permits, Time};
use ratekeeper_policy::{Charges, Correction, Entry, Policy, Rule};
use sha2::{Digest as _, Sha256};

use crate::permit::{decoded, encoded};

/// Version of the layout.
const VERSION: u8 = 5;
const MADE: u8 = 1;
const WIDE: u8 = 2;
/// Maximum number of bytes. Charges of further limits are left out, so they stay.
const MAX_BYTES: usize = 3_072;
/// Maximum number of characters: fits into a header field.
const MAX_CHARS: usize = MAX_BYTES / 3 * 4;

/// The charges of a request that a report may correct; see
/// [`Answer::decision`](crate::Answer::decision).
///
/// Its text is the id that `POST /v1/report` takes.
///
/// ```
/// use ratekeeper::core::LeaseId;
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{DecisionId, Keeper, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "logins"
///     key   = ["all"]
///     limit = "2/1h"
///     count = { status = [401] }
///     "#,
/// )?;
/// let nonce = LeaseId::from_bytes([7; 16]); // to be random
/// let facts = Facts::default();
/// let asking = keeper.check_for_report(&facts, Scope::All, || Some(nonce));
/// let answer = at_once(asking).unwrap();
/// let id = answer.decision().expect("the limit is corrected by reports");
/// assert_eq!(id.to_string().parse::<DecisionId>().as_ref(), Ok(id));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionId {
    within: Nanos,
    pub(crate) charges: Vec<MadeCharge>,
    /// The moment of the charges, by the clock of the store.
    pub(crate) made: Time,
    nonce: LeaseId,
}

/// One charge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MadeCharge {
    /// Name of the limit, or of its variant.
    pub(crate) limit: Box<str>,
    pub(crate) key: Box<[u8]>,
    pub(crate) cost: Permits,
    /// False if the limit denied it in shadow mode, or if another charge of its chain was made.
    pub(crate) is_made: bool,
    /// How long after the charge time has paid for it, see
    /// [`Receipt::paid`](ratekeeper_core::Receipt::paid).
    pub(crate) paid_after: Nanos,
    /// The permits that its bucket is refilled with until then, rounded up; zero without a bucket.
    pub(crate) owed: Permits,
}

/// The error for a text that is not the id of a decision.
///
/// ```
/// use ratekeeper::{DecisionId, NoDecisionId};
/// assert_eq!("4711".parse::<DecisionId>(), Err(NoDecisionId));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a decision id that a check returned")]
pub struct NoDecisionId;

impl DecisionId {
    /// Returns the id of `charges`, made at `made`, and the limit of its record, the one with the
    /// shortest time; `None` if there are none, or no nonce. A nonce is drawn only if there are
    /// some.
    pub(crate) fn new<'p>(
        charges: impl Iterator<Item = (MadeCharge, &'p Correction)>,
        made: Time,
        nonce: impl FnOnce() -> Option<LeaseId>,
    ) -> Option<(Self, &'p Correction)> {
        let mut charges = charges.peekable();
        charges.peek()?;
        let mut id = Self {
            within: Nanos::ZERO,
            charges: Vec::new(),
            made,
            nonce: nonce()?,
        };
        let mut shortest: Option<&Correction> = None;
        let mut bytes = id.bytes().len();
        for (charge, correction) in charges {
            bytes += charge.length();
            if bytes > MAX_BYTES {
                break;
            }
            id.charges.push(charge);
            if shortest.is_none_or(|shortest| correction.within < shortest.within) {
                shortest = Some(correction);
            }
        }
        let shortest = shortest?;
        id.within = shortest.within;
        Some((id, shortest))
    }

    /// Returns the time within which a report corrects the charges.
    pub const fn within(&self) -> Nanos {
        self.within
    }

    /// Returns the names of the limits.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        self.charges.iter().map(MadeCharge::rule)
    }

    /// Appends the key of its record.
    pub(crate) fn put_record_key(&self, key: &mut Vec<u8>) {
        let sum = Sha256::digest(self.bytes());
        KeyBuilder::new(key).part(&sum[..16]);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        bytes.push(VERSION);
        let millis = u32::try_from(self.within.as_millis_ceil()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&millis.to_le_bytes());
        for charge in &self.charges {
            let cost = charge.cost.get().to_le_bytes();
            let (cost, wide) = match u32::try_from(charge.cost.get()) {
                Ok(_) => (&cost[..4], 0),
                Err(_) => (&cost[..], WIDE),
            };
            bytes.push(if charge.is_made { MADE | wide } else { wide });
            bytes.extend_from_slice(&charge.paid_after.as_nanos().to_le_bytes());
            bytes.extend_from_slice(&charge.owed.get().to_le_bytes());
            // The name of a variant and a key are far shorter.
            bytes.push(u8::try_from(charge.limit.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(charge.limit.as_bytes());
            bytes.extend_from_slice(cost);
            let length = u16::try_from(charge.key.len()).unwrap_or(u16::MAX);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&charge.key);
        }
        bytes.extend_from_slice(&self.made.as_nanos().to_le_bytes());
        bytes.extend_from_slice(self.nonce.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&[VERSION], rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let (millis, rest) = rest.split_first_chunk::<4>()?;
        let (rest, nonce) = rest.split_last_chunk::<16>()?;
        let (mut rest, made) = rest.split_last_chunk::<8>()?;
        let mut charges = Vec::new();
        while !rest.is_empty() {
            let charge;
            (charge, rest) = MadeCharge::read(rest)?;
            charges.push(charge);
        }
        Some(Self {
            within: Nanos::from_millis(u32::from_le_bytes(*millis).into()),
            charges,
            made: Time::from_nanos(u64::from_le_bytes(*made)),
            nonce: LeaseId::from_bytes(*nonce),
        })
    }
}

/// Returns the entries under limits that reports correct, with their indexes and rules. Charges by
/// numbers of the caller are left out, because no report knows their counters.
pub(crate) fn corrected_entries<'a>(
    policy: &'a Policy,
    charges: &'a Charges,
) -> impl Iterator<Item = (usize, &'a Entry, &'a Rule)> {
    let entries = charges.entries.iter().enumerate();
    let entries = entries.filter(|(_, entry)| entry.replaced.is_none() && entry.is_shown());
    entries.filter_map(|(index, entry)| {
        let rule = policy.rules.get(entry.rule as usize)?;
        rule.correction.as_ref()?;
        Some((index, entry, rule))
    })
}

/// Returns the permits that the bucket of a limit is refilled with in `span`, rounded up; zero
/// without a bucket.
pub(crate) fn refilled_in(span: Nanos, limit: &Limit) -> Permits {
    let refill = refill_of(limit);
    let owed = refill.map(|(permits, nanos)| scaled(span.as_nanos(), permits, nanos).1);
    Permits::new(owed.unwrap_or_default())
}

/// Returns the permits of a full bucket, and the nanoseconds that refill it.
fn refill_of(limit: &Limit) -> Option<(u64, u64)> {
    let bucket = Some(&limit.algorithm).filter(|it| it.is_paid_in_order())?;
    Some((bucket.capacity().get(), bucket.window()?.as_nanos()))
}

/// Returns `number * by / of`, rounded down and up.
fn scaled(number: u64, by: u64, of: u64) -> (u64, u64) {
    let (product, of) = (u128::from(number) * u128::from(by), u128::from(of.max(1)));
    let whole = |scaled: u128| u64::try_from(scaled).unwrap_or(u64::MAX);
    (whole(product / of), whole(product.div_ceil(of)))
}

impl MadeCharge {
    /// Returns the name of the limit in the policy, without that of a variant.
    pub(crate) fn rule(&self) -> &str {
        self.limit.split('=').next().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key::from_bytes(&self.key)
    }

    /// Returns how long after the charge time has paid for it, also by the numbers that `limit` has
    /// now: if they are faster, a part of a permit counts as paid.
    pub(crate) fn paid_under(&self, limit: &Limit) -> Nanos {
        let Some((permits, nanos)) = refill_of(limit).filter(|_| self.owed > Permits::ZERO) else {
            return self.paid_after;
        };
        let time_of = |owed: u64| Nanos::from_nanos(scaled(owed, nanos, permits).0);
        if time_of(self.owed.get()) >= self.paid_after {
            return self.paid_after;
        }
        time_of(self.owed.get() - 1)
    }

    /// Returns its number of bytes.
    fn length(&self) -> usize {
        let cost = u32::try_from(self.cost.get()).map_or(8, |_| 4);
        1 + 8 + 8 + 1 + self.limit.len() + cost + 2 + self.key.len()
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&flags, rest) = bytes.split_first()?;
        let (&paid_after, rest) = rest.split_first_chunk()?;
        let (&owed, rest) = rest.split_first_chunk()?;
        let (&length, rest) = rest.split_first()?;
        let (limit, rest) = rest.split_at_checked(length.into())?;
        let (cost, rest) = match flags & WIDE {
            0 => rest.split_at_checked(4)?,
            _ => rest.split_at_checked(8)?,
        };
        let cost = cost.iter().rev();
        let cost = cost.fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let is_key = Key::from_bytes(key).is_whole();
        if flags > MADE | WIDE || limit.is_empty() || !limit.is_ascii() || !is_key {
            return None;
        }
        let charge = Self {
            limit: String::from_utf8_lossy(limit).into(),
            key: key.into(),
            cost: Permits::new(cost),
            is_made: flags & MADE > 0,
            paid_after: Nanos::from_nanos(u64::from_le_bytes(paid_after)),
            owed: Permits::new(u64::from_le_bytes(owed)),
        };
        Some((charge, rest))
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoded(&self.bytes()))
    }
}

impl FromStr for DecisionId {
    type Err = NoDecisionId;

    /// # Errors
    /// If the text is not exactly the output of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Self, NoDecisionId> {
        let bytes = decoded(text, MAX_CHARS).ok_or(NoDecisionId)?;
        Self::read(&bytes).ok_or(NoDecisionId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(charges: &[(&str, u64, &[u8])]) -> DecisionId {
        let charges = charges.iter().map(|&(limit, cost, value)| {
            let mut key = Vec::new();
            KeyBuilder::new(&mut key).part(value);
            MadeCharge {
                limit: limit.into(),
                key: key.into(),
                cost: Permits::new(cost),
                is_made: cost != 9,
                paid_after: Nanos::from_secs(cost),
                owed: Permits::new(cost),
            }
        });
        DecisionId {
            within: Nanos::from_secs(120),
            charges: charges.collect(),
            made: Time::from_nanos(7),
            nonce: LeaseId::from_bytes([0xfb; 16]),
        }
    }

    #[test]
    fn ids_are_parsed_back_from_their_text() {
        for id in [
            id(&[]),
            id(&[("a", 1, b"192.0.2.1")]),
            id(&[
                ("a", 9, b""),
                ("api=20/1m+burst+40", u32::MAX.into(), &[7; 300]),
            ]),
            id(&[
                ("a", 1 << 32, b""),
                ("b", 1, b""),
                ("c", Permits::MAX.get(), b""),
            ]),
        ] {
            let text = id.to_string();
            assert_eq!(text.parse(), Ok(id.clone()));
            for end in 0..text.len() {
                assert!(text[..end].parse::<DecisionId>() != Ok(id.clone()));
            }
            for wrong in [format!("{text}="), format!(" {text}"), format!("{text}A")] {
                assert!(wrong.parse::<DecisionId>() != Ok(id.clone()), "{wrong}");
            }
        }
    }

    #[test]
    fn texts_that_are_not_ids_are_refused() {
        let header = |version: u8| [&[version][..], &[1; 4]].concat();
        let with = |flags: u8, tail: &[u8]| {
            encoded(&[&header(5)[..], &[flags], &[7; 16], tail, &[9; 24]].concat())
        };
        for text in [
            String::new(),
            "A".into(),
            "\u{e9}".into(),
            "x".repeat(MAX_CHARS + 1),
            "A".repeat(1 << 20),
            encoded(&[&header(4)[..], &[9; 24]].concat()),
            encoded(&header(5)),
            with(2, b"\x01a\0\0\0\0\0\0"),
            with(1, b"\x00\0\0\0\0\0\0"),
            with(1, b"\x02a"),
            with(1, b"\x01\xff\0\0\0\0\0\0"),
            with(1, b"\x01a\0\0\0\0\xff\xff"),
            with(1, b"\x01a\0\0\0\0\x02\0\x05x"), // a key cut short
        ] {
            assert_eq!(text.parse::<DecisionId>(), Err(NoDecisionId), "{text}");
        }
        assert!(with(1, b"\x01a\0\0\0\0\0\0").parse::<DecisionId>().is_ok());
    }

    #[test]
    fn a_change_of_any_part_has_another_record() {
        let key = |id: &DecisionId| {
            let mut key = Vec::new();
            id.put_record_key(&mut key);
            key
        };
        let whole = id(&[("a", 1, b"k"), ("b", 2, b"l")]);
        let with = |change: fn(&mut MadeCharge)| {
            let mut id = whole.clone();
            change(&mut id.charges[1]);
            id
        };
        for other in [
            id(&[("a", 1, b"k")]),
            id(&[("a", 1, b"k"), ("b", 3, b"l")]),
            id(&[("a", 1, b"k"), ("b", 2, b"m")]),
            id(&[("a", 1, b"k"), ("c", 2, b"l")]),
            with(|charge| charge.is_made = false),
            with(|charge| charge.paid_after = Nanos::MAX),
            with(|charge| charge.owed = Permits::MAX),
            DecisionId {
                within: Nanos::from_secs(121),
                ..whole.clone()
            },
            DecisionId {
                made: Time::from_nanos(8),
                ..whole.clone()
            },
            DecisionId {
                nonce: LeaseId::from_bytes([0xfc; 16]),
                ..whole.clone()
            },
        ] {
            assert_ne!(key(&other), key(&whole), "{other:?}");
        }
    }
}
