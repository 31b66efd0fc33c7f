//! Index over patterns of one field, by the part that all values of a pattern have in common.
//!
//! ```text
//!   ways                      parts            numbers
//!   whole                     /login       ->  [0, 7]
//!   segments 1, 2             api v1       ->  [2, 3]
//!   last 12 bytes             .example.com ->  [4]
//!   first 16 bits             10.1         ->  [6]
//!   four bytes within         beta         ->  [8]
//!   the rest: *b*                             [5]
//! ```
//!
//! A value costs one look-up for each way, regardless of the number of patterns. Blocks of
//! addresses have at most 33 or 129 ways, one for each length of a prefix.
//!
//! The index only leaves out patterns that do not match; those that are found must be compared
//! in full, which resolves collisions of hashes as well.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::{FoldHasher, RandomState};

use crate::http::path::PathCase;
use crate::model::matching::common_part::{CommonPart, FirstSegments};
use crate::model::matching::gram_index::{GramIndex, GramLists};
use crate::model::matching::matcher::FieldValue;
use crate::{GlobPiece, Pattern};

/// Number of patterns that are compared in the time in which grams are looked up.
const FEW: usize = 8;

/// The index. The patterns come from the policy, so a client cannot cause collisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartIndex {
    hasher: RandomState,
    ways: Vec<PartWay>,
    /// Number of segments of a path that the ways need.
    depth: usize,
    /// Ranges of `numbers`, by way and part.
    lists: HashMap<u64, (u32, u32), RandomState>,
    numbers: Vec<u32>,
    /// Patterns whose values have no common part, or one that many others have, too.
    grams: GramIndex,
    /// Patterns whose values have no common part and no gram.
    rest: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PartWay {
    part: CommonPart,
    /// Hash of `part`.
    hash: u64,
    /// Bytes at the inner edges of the parts, see [`edge`].
    edges: u64,
}

/// A pattern and its number.
struct PlacedPattern<'p> {
    /// Hash of its common part, if it has one.
    place: Option<u64>,
    number: u32,
    pattern: &'p Pattern,
}

impl PartIndex {
    /// Indexes patterns, each with its number.
    pub(crate) fn new<'p>(patterns: impl IntoIterator<Item = (u32, &'p Pattern)>) -> Self {
        let mut index = Self::default();
        let mut placed = Vec::new();
        for (number, pattern) in patterns {
            let mut hasher = index.hasher.build_hasher();
            let part = pattern.common_part(&mut hasher);
            let place = part.map(|part| {
                let fixed = pattern.fixed();
                let edges = fixed.map_or(u64::MAX, |(piece, text)| edge(piece, text));
                index.way(part, edges).wrapping_add(hasher.finish())
            });
            placed.push(PlacedPattern {
                place,
                number,
                pattern,
            });
        }
        placed.sort_unstable_by_key(|placed: &PlacedPattern<'_>| (placed.place, placed.number));
        let uses = gram_uses(&placed);
        let mut by_gram = GramLists::default();
        for list in by_place(&placed) {
            let mut numbers = Vec::new();
            for placed in list {
                match best_gram(placed, list, &uses) {
                    Some(gram) => by_gram.entry(gram).or_default().push(placed.number),
                    None => numbers.push(placed.number),
                }
            }
            numbers.dedup(); // two patterns with one number may share a part
            let Some(place) = list.first().and_then(|placed| placed.place) else {
                index.rest = numbers;
                continue;
            };
            let start = u32::try_from(index.numbers.len()).unwrap_or(u32::MAX);
            index.numbers.extend(numbers);
            let end = u32::try_from(index.numbers.len()).unwrap_or(u32::MAX);
            if start < end {
                index.lists.insert(place, (start, end));
            }
        }
        index.grams = GramIndex::new(by_gram);
        index.lists.shrink_to_fit();
        index
    }

    /// Enters a way, and returns its hash.
    fn way(&mut self, part: CommonPart, edges: u64) -> u64 {
        if let Some(known) = self.ways.iter_mut().find(|way| way.part == part) {
            known.edges |= edges;
            return known.hash;
        }
        let hash = self.hasher.hash_one(part);
        self.depth = self.depth.max(part.depth());
        self.ways.push(PartWay { part, hash, edges });
        hash
    }

    /// Calls `found` with lists of all patterns that may match a value, each list in rising order,
    /// until it returns true; returns true if it did.
    pub(crate) fn any_near<'a>(
        &'a self,
        value: FieldValue<'_>,
        mut found: impl FnMut(&'a [u32]) -> bool,
    ) -> bool {
        if !self.rest.is_empty() && found(&self.rest) {
            return true;
        }
        let text = match value {
            FieldValue::Text(text) => text,
            FieldValue::Path(reading) => reading.path(PathCase::Insensitive),
            FieldValue::Address(_) => &[],
        };
        if self.grams.any_near(text, &mut found) {
            return true;
        }
        let mut ways = self.ways.iter();
        match value {
            FieldValue::Text(text) => ways.any(|way| {
                let CommonPart::Text(piece) = way.part else {
                    return false;
                };
                let part = piece.of(text);
                let part = part.filter(|part| way.edges & edge(piece, part) != 0);
                part.is_some_and(|part| {
                    self.any_at(way, &mut found, |hasher| {
                        hasher.write(part);
                        true
                    })
                })
            }),
            FieldValue::Path(reading) => {
                let path = reading.path(PathCase::Insensitive);
                let path = FirstSegments::new(path, self.depth);
                ways.any(|way| {
                    self.any_at(way, &mut found, |hasher| way.part.of_path(&path, hasher))
                })
            }
            FieldValue::Address(address) => ways.any(|way| {
                self.any_at(way, &mut found, |hasher| {
                    way.part.of_address(address, hasher)
                })
            }),
        }
    }

    /// Calls `found` with the list of the part that `write` writes, if it returns true.
    fn any_at<'a>(
        &'a self,
        way: &PartWay,
        found: &mut impl FnMut(&'a [u32]) -> bool,
        write: impl FnOnce(&mut FoldHasher<'a>) -> bool,
    ) -> bool {
        let mut hasher = self.hasher.build_hasher();
        if !write(&mut hasher) {
            return false;
        }
        let hash = way.hash.wrapping_add(hasher.finish());
        let range = self.lists.get(&hash);
        range.is_some_and(|(start, end)| found(&self.numbers[*start as usize..*end as usize]))
    }
}

/// Returns the patterns by their common part. Those without one come first.
fn by_place<'a, 'p>(
    placed: &'a [PlacedPattern<'p>],
) -> impl Iterator<Item = &'a [PlacedPattern<'p>]> {
    placed.chunk_by(|a, b| a.place == b.place)
}

/// Returns true if grams may find the patterns of a list faster than their common part.
fn is_crowd(list: &[PlacedPattern<'_>]) -> bool {
    list.len() > FEW || list.iter().any(|placed| placed.place.is_none())
}

/// Returns the number of times that patterns of crowds have each gram.
fn gram_uses(placed: &[PlacedPattern<'_>]) -> HashMap<u32, usize, RandomState> {
    let mut uses = HashMap::default();
    for placed in by_place(placed).filter(|list| is_crowd(list)).flatten() {
        for gram in placed.pattern.grams() {
            *uses.entry(gram).or_default() += 1;
        }
    }
    uses
}

/// Returns the gram of a pattern that the fewest have, if it is better than its list.
fn best_gram(
    placed: &PlacedPattern<'_>,
    list: &[PlacedPattern<'_>],
    uses: &HashMap<u32, usize, RandomState>,
) -> Option<u32> {
    if !is_crowd(list) {
        return None;
    }
    let grams = placed.pattern.grams().into_iter();
    let grams = grams.filter_map(|gram| Some((uses.get(&gram)?, gram)));
    let (count, gram) = grams.min()?;
    (placed.place.is_none() || *count < list.len()).then_some(gram)
}

/// Returns one bit for the byte of a piece that is next to the variable part of the value, all
/// bits for a whole value. It leaves most ways out without a look-up: the patterns
/// `*.example.com` of all lengths begin with a dot.
fn edge(piece: GlobPiece, text: &[u8]) -> u64 {
    let byte = match piece {
        GlobPiece::Whole => None,
        GlobPiece::First(_) => text.last(),
        GlobPiece::Last(_) => text.first(),
    };
    byte.map_or(u64::MAX, |byte| 1 << (byte % 64))
}
