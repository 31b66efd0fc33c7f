//! Index over limits on descriptors: the cost of a descriptor does not grow with their number.
//!
//! ```text
//!   domain + names of the entries  -->  shape:  the ways in which its limits look at values
//!     edge  {plan, user}                  1. plan whole                 plan=pro
//!                                         2. plan whole, user from 2    plan=pro, user=a-*
//!
//!   shape + way + those values     -->  limits      [3, 17]
//! ```
//!
//! A limit is for descriptors with exactly the entries it names, so the names find all limits
//! that could apply at once. Each value is then compared whole, or, for a pattern with `*`, by
//! its fixed first or last bytes. Limits that compare the same pieces share one look-up,
//! regardless of their number. So a descriptor costs one look-up for its names and one for each
//! different way; limits with patterns that are fixed nowhere (`*x*`) share a list with all
//! others of that kind. Every limit that is found is compared in full.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};

use crate::model::matching::descriptor::MAX_ENTRIES;
use crate::{Descriptor, EntryName, Field, GlobPiece, Pattern, Rule};

/// Maximum number of places of one rule that names several values of several entries. Beyond it,
/// the longest lists of values are left to the comparison.
const MAX_PLACES: usize = 64;

/// Hash of the names of a limit that names a domain alone.
const NO_NAMES: u64 = 0;

/// Limits that a descriptor must be compared with.
pub(crate) type CandidateLimits = SmallVec<[u32; 4]>;

/// The index.
#[derive(Clone, Debug, Default)]
pub(crate) struct DescriptorIndex {
    hasher: RandomState,
    shapes: HashMap<u64, Vec<ShapeWay>, RandomState>,
    /// By shape, way and values; each in the order of the file. Collisions are resolved by the
    /// comparison.
    rules: HashMap<u64, Vec<u32>, RandomState>,
    /// True if some rule names no domain, or none that is fixed.
    has_any_domain: bool,
}

/// The fixed pieces of the values of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShapeWay(Box<[(EntryName, GlobPiece)]>);

/// Place of a rule in the index: the pieces it fixes, in the order of names.
type ShapePlace<'a> = SmallVec<[(&'a EntryName, GlobPiece, &'a [u8]); 4]>;

impl DescriptorIndex {
    /// Enters a rule for descriptors.
    pub(crate) fn insert(&mut self, index: u32, rule: &Rule) {
        let names: BTreeSet<&EntryName> = rule.entry_names().collect();
        let domains = fixed_values(rule, &Field::Domain);
        let is_whole = |(piece, _): &(GlobPiece, _)| *piece == GlobPiece::Whole;
        let domains = domains.filter(|values| values.iter().all(is_whole));
        self.has_any_domain |= domains.is_none();
        let domains = domains.map_or_else(
            || vec![None],
            |values| values.into_iter().map(|(_, value)| Some(value)).collect(),
        );
        let each_name = names.iter();
        let each_name = each_name.map(|name| self.name(name.key(), name.number()));
        let hash_of_names = each_name.fold(NO_NAMES, u64::wrapping_add);
        for domain in domains {
            let shape = self.shape(domain, hash_of_names);
            if names.is_empty() {
                self.enter(shape, index);
                continue;
            }
            for place in places(rule, &names) {
                let pieces = place.iter();
                let pieces = pieces.map(|(name, piece, _)| ((*name).clone(), *piece));
                let way = ShapeWay(pieces.collect());
                let ways = self.shapes.entry(shape).or_default();
                let known = ways.iter().position(|known| *known == way);
                let number = known.unwrap_or(ways.len());
                if known.is_none() {
                    ways.push(way);
                }
                let mut hasher = self.way(shape, number);
                for (_, _, value) in place {
                    value.hash(&mut hasher);
                }
                self.enter(hasher.finish(), index);
            }
        }
    }

    fn enter(&mut self, hash: u64, index: u32) {
        let list = self.rules.entry(hash).or_default();
        // Two values of a rule may be fixed alike.
        if list.last() != Some(&index) {
            list.push(index);
        }
    }

    /// Returns the rules that may apply, in the order of the file, without duplicates.
    pub(crate) fn find(&self, descriptor: &Descriptor<'_>) -> CandidateLimits {
        let mut found = CandidateLimits::new();
        if self.rules.is_empty() {
            return found;
        }
        let names = self.names(descriptor);
        let domain = descriptor.domain.as_bytes();
        self.find_in(Some(domain), names, descriptor, &mut found);
        if self.has_any_domain {
            self.find_in(None, names, descriptor, &mut found);
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// Adds the rules that name this domain; with `None`, those that name none.
    fn find_in(
        &self,
        domain: Option<&[u8]>,
        names: Option<u64>,
        descriptor: &Descriptor<'_>,
        found: &mut CandidateLimits,
    ) {
        let mut add = |hash| found.extend(self.rules.get(&hash).into_iter().flatten().copied());
        add(self.shape(domain, NO_NAMES));
        let Some(names) = names else { return };
        let shape = self.shape(domain, names);
        let ways = self.shapes.get(&shape).into_iter().flatten();
        for (number, way) in ways.enumerate() {
            let mut hasher = self.way(shape, number);
            let mut pieces = way
                .0
                .iter()
                .map(|(name, piece)| piece.of(name.of(descriptor)?.as_bytes()));
            let mut add_to_hash = |value: &&[u8]| value.hash(&mut hasher);
            if pieces.all(|value| value.inspect(&mut add_to_hash).is_some()) {
                add(hasher.finish());
            }
        }
    }

    /// Returns a hash of the names in any order; `None` for more than a limit can name.
    fn names(&self, descriptor: &Descriptor<'_>) -> Option<u64> {
        let entries = descriptor.entries;
        if entries.len() > MAX_ENTRIES {
            return None;
        }
        let names = entries.iter().enumerate().map(|(index, (key, _))| {
            let before = entries[..index].iter().filter(|(k, _)| k == key).count();
            self.name(key, before + 1)
        });
        Some(names.fold(NO_NAMES, u64::wrapping_add))
    }

    fn name(&self, key: &str, number: usize) -> u64 {
        self.hasher.hash_one((number, key))
    }

    fn shape(&self, domain: Option<&[u8]>, names: u64) -> u64 {
        self.hasher.hash_one((names, domain))
    }

    fn way(&self, shape: u64, number: usize) -> impl Hasher + use<> {
        let mut hasher = self.hasher.build_hasher();
        (shape, number).hash(&mut hasher);
        hasher
    }
}

/// Returns the fixed pieces of the values without `!` of a field, if each has one.
fn fixed_values<'a>(rule: &'a Rule, field: &Field) -> Option<Vec<(GlobPiece, &'a [u8])>> {
    let mut fields = rule.matcher.fields.iter();
    let (_, patterns) = fields.find(|(known, _)| known == field)?;
    let values = patterns.iter().filter(|pattern| !pattern.negated);
    let fixed: Option<Vec<_>> = values.map(Pattern::fixed).collect();
    fixed.filter(|fixed| !fixed.is_empty())
}

/// Returns all combinations of the pieces that a rule fixes of its entries.
fn places<'a>(rule: &'a Rule, names: &BTreeSet<&'a EntryName>) -> Vec<ShapePlace<'a>> {
    let fixed = names.iter().filter_map(|name| {
        let values = fixed_values(rule, &Field::Descriptor((*name).clone()))?;
        Some((*name, values))
    });
    let mut fixed: Vec<_> = fixed.collect();
    let combinations = |fixed: &[(_, Vec<_>)]| {
        let lengths = fixed.iter().map(|(_, values): &(_, Vec<_>)| values.len());
        lengths.fold(1, usize::saturating_mul)
    };
    while fixed.len() > 1 && combinations(&fixed) > MAX_PLACES {
        let longest = (0..fixed.len()).max_by_key(|at| fixed[*at].1.len());
        fixed.remove(longest.unwrap_or(0));
    }
    let mut places: Vec<ShapePlace<'_>> = vec![smallvec![]];
    for (name, values) in fixed {
        let extended = places.iter().flat_map(|place| {
            values.iter().map(move |(piece, value)| {
                let mut place = place.clone();
                place.push((name, *piece, *value));
                place
            })
        });
        places = extended.collect();
    }
    places
}
