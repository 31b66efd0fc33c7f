//! Index over limits on requests: the cost of a request does not grow with their number.
//!
//! ```text
//!   path           /login -> [0, 7]    /api/v1/** -> [2, 3]
//!   host           *.example.com -> [4]
//!   header.x-plan  pro -> [1, 5, 8]
//!   ip             10.1.0.0/16 -> [6]
//!   the rest       [9]
//! ```
//!
//! Of the fields that a limit matches by, it stands under the one that it shares with the fewest
//! others. A field of one limit has no place here, because that is compared faster.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::model::matching::part_index::PartIndex;
use crate::{Field, Pattern, RequestFacts, Rule};

/// Maximum number of values of a field by which one limit is found. Limits with more stand under
/// another field, or are always compared.
const MAX_PLACES: usize = 256;

/// Number of limits that take as long to compare as one takes to look up. Fewer limits make no
/// index of a field, and shorter lists are all as good.
const FEW: u32 = 2;

/// Lists of limits, each in the order of the file.
pub(crate) type CandidateLists<'a> = SmallVec<[&'a [u32]; 4]>;

/// The index.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestIndex {
    fields: Vec<(Field, PartIndex)>,
    rest: Vec<u32>,
}

/// A field by which a limit can be found, and its values, each with a hash of its common part.
type FieldChoice<'r> = (&'r Field, Vec<(&'r Pattern, u64)>);

/// Fields by which limits can be found, with the number of limits at each part of a value.
#[derive(Debug, Default)]
struct Usage<'r> {
    hasher: RandomState,
    fields: HashMap<&'r Field, (u32, HashMap<u64, u32, RandomState>)>,
}

impl RequestIndex {
    /// Indexes limits on requests, each with its number; the numbers rise.
    pub(crate) fn new(limits: &[(u32, &Rule)]) -> Self {
        let mut usage = Usage::default();
        for (_, rule) in limits {
            usage.count(rule);
        }
        let mut rest = Vec::new();
        let mut chosen: HashMap<&Field, Vec<(u32, &Pattern)>> = HashMap::new();
        for (number, rule) in limits {
            match usage.best(rule) {
                Some((field, patterns)) => {
                    let numbered = patterns.into_iter().map(|(pattern, _)| (*number, pattern));
                    chosen.entry(field).or_default().extend(numbered);
                }
                None => rest.push(*number),
            }
        }
        let indexed = chosen.into_iter();
        Self {
            fields: indexed
                .map(|(field, patterns)| (field.clone(), PartIndex::new(patterns)))
                .collect(),
            rest,
        }
    }

    /// Returns lists of all limits that may apply.
    pub(crate) fn find(&self, request: &RequestFacts<'_>) -> CandidateLists<'_> {
        let mut lists = CandidateLists::new();
        lists.extend(Some(&*self.rest).filter(|rest| !rest.is_empty()));
        for (field, index) in &self.fields {
            field.any_reading(request, |spellings| {
                spellings.iter().any(|value| {
                    index.any_near(*value, |list| {
                        lists.push(list);
                        false
                    })
                })
            });
        }
        lists
    }
}

impl<'r> Usage<'r> {
    fn count(&mut self, rule: &'r Rule) {
        for (field, patterns) in choices(rule, &self.hasher) {
            let (limits, parts) = self.fields.entry(field).or_default();
            *limits += 1;
            for (_, part) in patterns {
                *parts.entry(part).or_default() += 1;
            }
        }
    }

    /// Returns the field that a limit shares with the fewest others, if there is a useful one.
    fn best(&self, rule: &'r Rule) -> Option<FieldChoice<'r>> {
        let choices = choices(rule, &self.hasher);
        let useful = choices.filter(|(field, _)| self.fields[field].0 >= FEW);
        useful.min_by_key(|(field, patterns)| {
            let parts = &self.fields[field].1;
            let each = patterns.iter().map(|(_, part)| parts[part]);
            (each.max().max(Some(FEW)), preference(field))
        })
    }
}

/// Returns the fields by which a limit can be found.
fn choices<'r>(rule: &'r Rule, hasher: &RandomState) -> impl Iterator<Item = FieldChoice<'r>> {
    // A look-up of an address is left to limits whose other fields hold.
    let has_others = rule
        .matcher
        .fields
        .iter()
        .any(|(field, _)| !field.is_located());
    rule.matcher
        .fields
        .iter()
        .filter(move |(field, _)| !(has_others && field.is_located()))
        // Looking one up would verify the token of every request.
        .filter(|(field, _)| !matches!(field, Field::Claim(_)))
        .filter_map(move |(field, patterns)| {
            let positive = patterns.iter().filter(|pattern| !pattern.negated);
            let parts = positive.take(MAX_PLACES + 1).map(|pattern| {
                let mut bytes = hasher.build_hasher();
                let part = pattern.common_part(&mut bytes);
                if part.is_none() {
                    bytes.write_u32(*pattern.grams().first()?);
                }
                Some((pattern, hasher.hash_one((part, bytes.finish()))))
            });
            let parts: Vec<_> = parts.collect::<Option<_>>()?;
            let useful = (1..=MAX_PLACES).contains(&parts.len());
            useful.then_some((field, parts))
        })
}

/// Orders fields that leave equally few limits: first those that are looked up fastest.
fn preference(field: &Field) -> u8 {
    match field {
        Field::Path => 0,
        Field::Host => 1,
        Field::Ip => 2,
        _ => 3,
    }
}
