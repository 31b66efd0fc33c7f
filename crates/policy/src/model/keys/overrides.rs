//! Overrides: numbers for single keys of a rule, found by hash.
//!
//! ```text
//!   { api_key = "acme" }                       exact: by hash of those parts of the key
//!   { api_key = "acme", path = "/v1" }         exact, and more parts: looked up first
//!   { attr:tenant = "acme-*" }                 pattern: compared one after the other, the
//!                                              longest first, after all exact ones
//! ```
//!
//! A part that an override does not name may have any value. The keys come from the policy, so a
//! client cannot cause collisions.
//!
//! A look-up reads one line of the table's tags, and of its entries only the one that is found, so
//! a key without an override costs no more than the tags. A processor cannot read bytes that it
//! wrote a moment ago if they come from several writes, until those are done; so the value of a
//! single part, which is one write, is hashed without the length before it.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;
use ratekeeper_core::{Key, KeyBuilder};

use crate::model::keys::value::is_hash;
use crate::model::keys::variants::{Allowance, KeyAsk};
use crate::{Glob, KeyBytes};

/// `[[override]]`: an allowance for one key, or for those of a pattern.
#[derive(Clone, Debug)]
pub struct Override {
    /// The amount.
    pub allowance: Allowance,
    /// End, in nanoseconds since 1970; `None` if it has none.
    pub until_unix_nanos: Option<u64>,
    /// Reason, for the record; may be empty.
    pub reason: Box<str>,
    /// Line of its file, from 1.
    pub line: usize,
    /// True if it stands in the file that `overrides` names, not in the policy.
    pub from_file: bool,
}

impl Override {
    /// Returns true if it has ended.
    pub fn has_ended(&self, unix_nanos: u64) -> bool {
        let until = self.until_unix_nanos;
        until.is_some_and(|until| unix_nanos >= until)
    }
}

/// The key of an override: a value for each part of the rule's key, `None` for any.
pub(crate) type OverrideKey = Vec<Option<PartPattern>>;

/// The value of a key part.
#[derive(Clone, Debug)]
pub(crate) enum PartPattern {
    /// As it stands in a key.
    Exact(Box<[u8]>),
    /// A pattern; its text is as in a request.
    Glob(Glob),
}

/// The overrides of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// In the order of the file.
    pub(crate) all: Vec<Override>,
    /// Those with the most parts first.
    exact: Vec<ExactOverrides>,
    /// The longest first.
    patterns: Vec<PatternOverride>,
}

/// Overrides that name the same parts of the key, each with one value.
#[derive(Clone, Debug)]
struct ExactOverrides {
    /// Bit `n` is set for part `n` of the key.
    parts: u32,
    /// By the value, if they name one part; by a key of the parts, if they name several.
    by_key: HashSet<ExactOverride, RandomState>,
}

/// Maximum length of a key that stands beside its override, in bytes: that of a UUID. A longer one
/// costs a decision another read of memory.
const SHORT: usize = 38;

/// The bytes of a key.
#[derive(Clone, Debug)]
enum OverriddenKey {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

/// An override, with copies of the values that a decision needs: equal to others of its key, and
/// read as one line of the cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct ExactOverride {
    key: OverriddenKey,
    index: u32,
    allowance: Allowance,
    /// `u64::MAX` if it has no end.
    until_unix_nanos: u64,
}

#[derive(Clone, Debug)]
struct PatternOverride {
    key: OverrideKey,
    length: usize,
    index: u32,
}

impl Overrides {
    pub(crate) fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Adds an override.
    ///
    /// # Errors
    /// An earlier one with the same exact key, which hides it.
    pub(crate) fn add(&mut self, key: OverrideKey, new: Override) -> Result<(), &Override> {
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let mut named = KeyBytes::default();
        let (mut parts, mut is_exact, mut one) = (0, true, &[][..]);
        let mut builder = KeyBuilder::new(&mut named);
        for (bit, part) in key.iter().enumerate() {
            match part {
                Some(PartPattern::Exact(value)) => {
                    builder.part(value);
                    parts |= 1 << bit;
                    one = value;
                }
                Some(PartPattern::Glob(_)) => is_exact = false,
                None => {}
            }
        }
        if is_exact {
            let exact = if names_one(parts) { one } else { &*named };
            let by_key = self.exact_of(parts);
            if let Some(first) = by_key.get(exact) {
                let first = first.index as usize;
                return Err(&self.all[first]);
            }
            by_key.insert(ExactOverride {
                key: OverriddenKey::new(exact),
                index,
                allowance: new.allowance,
                until_unix_nanos: new.until_unix_nanos.unwrap_or(u64::MAX),
            });
        } else {
            let length = key.iter().flatten().map(PartPattern::length).sum();
            // After those of the same length, so that the first of them in the file holds.
            let at = self
                .patterns
                .partition_point(|known| known.length >= length);
            let pattern = PatternOverride { key, length, index };
            self.patterns.insert(at, pattern);
        }
        self.all.push(new);
        Ok(())
    }

    fn exact_of(&mut self, parts: u32) -> &mut HashSet<ExactOverride, RandomState> {
        let rank = |parts: u32| (std::cmp::Reverse(parts.count_ones()), parts);
        let found = self
            .exact
            .binary_search_by_key(&rank(parts), |of| rank(of.parts));
        let at = found.unwrap_or_else(|at| {
            let by_key = HashSet::default();
            self.exact.insert(at, ExactOverrides { parts, by_key });
            at
        });
        &mut self.exact[at].by_key
    }

    /// Returns the overrides that may be those of a key: the exact ones, and all patterns.
    pub(crate) fn of_key(&self, key: Key<'_>) -> impl Iterator<Item = &Override> {
        let exact = self.exact.iter().filter_map(|of| of.find(key));
        let exact: Vec<_> = exact.map(|found| found.index).collect();
        let patterns = self.patterns.iter().map(|of| of.index);
        let each = exact.into_iter().chain(patterns);
        each.filter_map(|index| self.all.get(index as usize))
    }

    /// Returns the allowance of a key by the override in force.
    pub(crate) fn find(&self, ask: &KeyAsk<'_, '_>) -> Option<(Allowance, &Override)> {
        let mut exact = self.exact.iter().filter_map(|of| of.find(ask.key));
        if let Some(found) = exact.find(|of| ask.unix_nanos < of.until_unix_nanos) {
            return Some((found.allowance, self.all.get(found.index as usize)?));
        }
        let patterns = self.patterns.iter().filter(|of| of.matches(ask));
        let mut patterns = patterns.filter_map(|of| self.all.get(of.index as usize));
        let found = patterns.find(|found| !found.has_ended(ask.unix_nanos))?;
        Some((found.allowance, found))
    }
}

impl OverriddenKey {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match (u8::try_from(key.len()), bytes.get_mut(..key.len())) {
            (Ok(length), Some(place)) => {
                place.copy_from_slice(key);
                Self::Short { length, bytes }
            }
            _ => Self::Long(key.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => bytes.get(..(*length).into()).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for ExactOverride {
    fn borrow(&self) -> &[u8] {
        self.key.bytes()
    }
}

impl Hash for ExactOverride {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.bytes().hash(state);
    }
}

impl PartialEq for ExactOverride {
    fn eq(&self, other: &Self) -> bool {
        self.key.bytes() == other.key.bytes()
    }
}

impl Eq for ExactOverride {}

impl ExactOverrides {
    fn find(&self, key: Key<'_>) -> Option<&ExactOverride> {
        if names_one(self.parts) {
            let value = key.parts().nth(self.parts.trailing_zeros() as usize)?;
            return self.by_key.get(value);
        }
        if self.parts.count_ones() as usize == key.parts().count() {
            return self.by_key.get(key.as_bytes());
        }
        let mut named = KeyBytes::default();
        let mut builder = KeyBuilder::new(&mut named);
        for (bit, value) in key.parts().enumerate() {
            if self.parts & (1 << bit) != 0 {
                builder.part(value);
            }
        }
        self.by_key.get(&*named)
    }
}

/// Returns true if only one of the bits is set.
fn names_one(parts: u32) -> bool {
    parts.is_power_of_two()
}

impl PatternOverride {
    fn matches(&self, ask: &KeyAsk<'_, '_>) -> bool {
        let values = ask.key.parts().zip(ask.parts);
        self.key.iter().zip(values).all(|(wanted, (value, part))| {
            match wanted {
                None => true,
                Some(PartPattern::Exact(wanted)) => **wanted == *value,
                Some(PartPattern::Glob(_)) if value.starts_with(b"~") => false, // a stand-in
                Some(PartPattern::Glob(glob)) if is_hash(value) => {
                    let value = part.unhashed(value, ask.request, ask.around);
                    value.is_some_and(|value| glob.matches(&value))
                }
                Some(PartPattern::Glob(glob)) => glob.matches(value),
            }
        })
    }
}

impl PartPattern {
    /// Returns the number of bytes that are not `*`.
    fn length(&self) -> usize {
        match self {
            Self::Exact(value) => value.len(),
            Self::Glob(glob) => glob.length(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::keys::key_part::Around;
    use crate::model::matching::request::RequestFacts;
    use crate::{Facts, KeyPart, Matcher};

    #[test]
    fn a_short_key_and_its_override_fill_a_line_of_the_cache() {
        assert_eq!(size_of::<ExactOverride>(), 64);
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 512] {
            let key = vec![b'a'; length];
            let stored = OverriddenKey::new(&key);
            assert_eq!(stored.bytes(), key);
            let is_short = matches!(stored, OverriddenKey::Short { .. });
            assert_eq!(is_short, length <= SHORT, "{length}");
        }
    }

    fn exact(values: &[Option<Vec<u8>>]) -> OverrideKey {
        let part = |value: &Vec<u8>| PartPattern::Exact(value.as_slice().into());
        values
            .iter()
            .map(|value| value.as_ref().map(part))
            .collect()
    }

    /// Returns an override that its line number identifies.
    fn override_in(line: usize, until_unix_nanos: Option<u64>) -> Override {
        Override {
            allowance: Allowance::Variant(u32::try_from(line % 3).unwrap()),
            until_unix_nanos,
            reason: "".into(),
            line,
            from_file: false,
        }
    }

    fn found(overrides: &Overrides, values: &[Vec<u8>], unix_nanos: u64) -> Option<usize> {
        let mut bytes = KeyBytes::default();
        let mut builder = KeyBuilder::new(&mut bytes);
        for value in values {
            builder.part(value);
        }
        let facts = Facts::default();
        let ask = KeyAsk {
            key: Key::from_bytes(&bytes),
            parts: &vec![KeyPart::Host; values.len()],
            request: &RequestFacts::new(&facts),
            around: Around {
                matcher: &Matcher::default(),
                ipv6_prefix: 64,
            },
            unix_nanos,
        };
        let (allowance, found) = overrides.find(&ask)?;
        assert_eq!(allowance, found.allowance);
        Some(found.line)
    }

    /// Values of few bytes, so that keys differ by their lengths or by where one part ends, and
    /// values around the length that still stands beside its override.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let few = prop::collection::vec(0..3_u8, 0..4);
        let long = (SHORT - 3..SHORT + 3, 0..3_u8).prop_map(|(length, byte)| vec![byte; length]);
        prop_oneof![few, long, Just(vec![1; 300])]
    }

    proptest! {
        /// The answer is that of maps from whole keys, asked in the order of the table: keys with
        /// more parts first, and of two that name equally many, the one with the earlier parts.
        #[test]
        fn the_table_and_maps_of_whole_keys_agree(
            added in prop::collection::vec(
                (prop::collection::vec(prop::option::of(value()), 3), prop::option::of(0..4_u64)),
                1..60,
            ),
            asked in prop::collection::vec((prop::collection::vec(value(), 3), 0..4_u64), 60),
        ) {
            let (mut overrides, mut model) = (Overrides::default(), HashMap::new());
            let mut names = Vec::new();
            for (line, (key, until)) in added.into_iter().enumerate() {
                if key.iter().all(Option::is_none) {
                    continue; // refused by the reader
                }
                let new = override_in(line, until);
                let first = model.get(&key).map(|(first, _)| *first);
                let hidden = overrides.add(exact(&key), new).err().map(|first| first.line);
                prop_assert_eq!(hidden, first);
                names.push(key.iter().map(Option::is_some).collect::<Vec<_>>());
                model.entry(key).or_insert((line, until));
            }
            names.sort_by_key(|named| {
                let bits = named.iter().zip(0..).map(|(named, bit)| u32::from(*named) << bit);
                let bits: u32 = bits.sum();
                (std::cmp::Reverse(bits.count_ones()), bits)
            });
            // Whole keys that were added are asked for as well, so that many are found.
            let known: Vec<_> = model.keys().cloned().collect();
            let known = known.into_iter().zip(asked.clone()).map(|(key, (rest, now))| {
                let values = key.into_iter().zip(rest);
                let values = values.map(|(value, rest)| value.unwrap_or(rest));
                (values.collect::<Vec<_>>(), now)
            });
            for (values, now) in known.chain(asked) {
                let expected = names.iter().find_map(|named| {
                    let key = values.iter().zip(named);
                    let key: Vec<_> = key.map(|(value, named)| named.then(|| value.clone())).collect();
                    let (line, until) = model.get(&key)?;
                    until.is_none_or(|until| now < until).then_some(*line)
                });
                prop_assert_eq!(found(&overrides, &values, now), expected, "{:?}", values);
            }
        }
    }
}
