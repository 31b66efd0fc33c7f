//! Rules: the rules of one policy, in the order of the file, and an index over them.
//!
//! The cost of a request grows with the rules that could match it, not with all. Each rule that
//! is not off stands in one list, under the first of these that its matcher allows:
//!
//! ```text
//!   every `path` value is one path      by path      "/login"          -> [0, 7]
//!   all begin with a fixed segment      by segment   "api" of /api/**  -> [2, 3]
//!   every `host` value is one host      by host      "a.example.com"   -> [4]
//!   otherwise                           the rest                       -> [1, 5, 6]
//! ```
//!
//! A request looks up its path, segment and host, and merges four short lists; two more for each
//! further reading of its path. Paths stand in the index in lower case, because that leaves out
//! no rule. The index only leaves out rules that cannot match; its candidates are still compared
//! in full.
//!
//! Rules for descriptors are for nothing else, and have an index of their own: they name all
//! entries of a descriptor, where a rule for requests names some of very many fields.

use std::collections::HashMap;
use std::ops::Deref;

use foldhash::fast::RandomState;
use ratekeeper_core::Limit;
use smallvec::SmallVec;

use crate::descriptor_index::DescriptorIndex;
use crate::path::PathCase;
use crate::path_pattern::first_segment;
use crate::pattern::Pattern;
use crate::request::RequestFacts;
use crate::{Descriptor, Field, Rule, RuleMode};

/// The rules of a policy, read as a slice. Only values that the index does not use can change
/// afterwards: the numbers of the limits, and enforce to shadow.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    all: Vec<Rule>,
    by_path: Lists,
    by_segment: Lists,
    by_host: Lists,
    rest: Vec<u32>,
    descriptors: DescriptorIndex,
}

/// Rules by a value of the request; each list in the order of the file. The values come from the
/// policy, so a client cannot cause collisions.
type Lists = HashMap<Box<[u8]>, Vec<u32>, RandomState>;

impl Rules {
    /// Indexes `rules`.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut indexed = Self::default();
        for (index, rule) in (0..).zip(&rules) {
            if rule.mode == RuleMode::Off {
                continue;
            }
            if rule.is_for_descriptors() {
                indexed.descriptors.insert(index, rule);
            } else {
                indexed.insert(index, rule);
            }
        }
        indexed.all = rules;
        indexed
    }

    fn insert(&mut self, index: u32, rule: &Rule) {
        let is_path = |field: &Field| *field == Field::Path;
        let is_host = |field: &Field| *field == Field::Host;
        let (lists, values) = if let Some(paths) = values(rule, is_path, Pattern::exact) {
            (&mut self.by_path, paths)
        } else if let Some(segments) = values(rule, is_path, Pattern::first_segment) {
            (&mut self.by_segment, segments)
        } else if let Some(hosts) = values(rule, is_host, Pattern::exact) {
            (&mut self.by_host, hosts)
        } else {
            self.rest.push(index);
            return;
        };
        for value in values {
            let list = lists.entry(value.into()).or_default();
            // Two values of a rule may share a segment.
            if list.last() != Some(&index) {
                list.push(index);
            }
        }
    }

    /// Returns the rules that may match, in the order of the file, each once.
    pub(crate) fn candidates<'a>(&'a self, request: &RequestFacts<'_>) -> Candidates<'a> {
        // An index without entries costs no look-up.
        let find = |lists: &'a Lists, value: &[u8]| {
            let found = if lists.is_empty() {
                None
            } else {
                lists.get(value)
            };
            found.map_or(&[][..], Vec::as_slice)
        };
        let mut lists = SmallVec::new();
        lists.push(self.rest.as_slice());
        if !self.by_host.is_empty() {
            lists.push(find(&self.by_host, request.host()));
        }
        if !(self.by_path.is_empty() && self.by_segment.is_empty()) {
            for reading in request.readings().iter() {
                let path = reading.path(PathCase::Insensitive);
                lists.push(find(&self.by_path, path));
                lists.push(find(
                    &self.by_segment,
                    first_segment(path).unwrap_or_default(),
                ));
            }
        }
        Candidates {
            rules: &self.all,
            lists,
        }
    }

    /// Returns the rules for descriptors that may match, in the order of the file, each once.
    pub(crate) fn of_descriptor<'a>(
        &'a self,
        descriptor: &Descriptor<'_>,
    ) -> impl Iterator<Item = (u32, &'a Rule)> {
        let found = self.descriptors.find(descriptor).into_iter();
        found.filter_map(|index| Some((index, self.all.get(index as usize)?)))
    }

    /// Turns every rule that enforces to shadow: it decides and counts, and refuses no request.
    /// Rules that are off stay off, so the index stays valid.
    pub fn shadow(&mut self) {
        for rule in &mut self.all {
            if rule.mode == RuleMode::Enforce {
                rule.mode = RuleMode::Shadow;
            }
        }
    }

    /// Returns the limits, so that their ids and version can be set.
    pub fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.all.iter_mut().map(|rule| &mut rule.limit)
    }
}

/// Returns the single meaning of every value without `!` of a field, if each has one.
fn values<'a>(
    rule: &'a Rule,
    wanted: impl Fn(&Field) -> bool,
    stands_for: impl Fn(&'a Pattern) -> Option<&'a [u8]>,
) -> Option<Vec<&'a [u8]>> {
    rule.matcher.positive(wanted)?.map(stands_for).collect()
}

/// Merges sorted lists; an index in several of them comes once.
pub(crate) struct Candidates<'a> {
    rules: &'a [Rule],
    lists: SmallVec<[&'a [u32]; 4]>,
}

impl<'a> Iterator for Candidates<'a> {
    type Item = (u32, &'a Rule);

    fn next(&mut self) -> Option<Self::Item> {
        let heads = self.lists.iter().filter_map(|list| list.first());
        let index = *heads.min()?;
        for list in &mut self.lists {
            if let [first, rest @ ..] = *list
                && *first == index
            {
                *list = rest;
            }
        }
        Some((index, self.rules.get(index as usize)?))
    }
}

impl Deref for Rules {
    type Target = [Rule];
    fn deref(&self) -> &[Rule] {
        &self.all
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;
    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        Self::new(rules)
    }
}
