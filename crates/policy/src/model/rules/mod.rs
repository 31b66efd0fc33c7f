//! Rules: the rules of one policy, in the order of the file, and the indexes over them.
//!
//! The cost of a request grows with the rules that could match it, not with all. Rules for
//! descriptors are for nothing else, and have an index of their own: they name all entries of a
//! descriptor, where a rule for requests names some of very many fields. Candidates of either are
//! compared in full, in the order of the file, each once.

pub(crate) mod active;
pub(crate) mod alert;
pub mod calendar;
pub(crate) mod chain;
pub(crate) mod correction;
pub(crate) mod cost;
pub(crate) mod describe;
pub(crate) mod priority;
pub(crate) mod rule;
pub(crate) mod signal;
pub(crate) mod zone;

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use ratekeeper_core::Limit;
use serde_json::Value;

use crate::model::matching::descriptor_index::DescriptorIndex;
use crate::model::matching::request_index::RequestIndex;
use crate::{BodyField, Descriptor, Field, Gate, KeyPart, RequestFacts, Role, Rule, RuleMode};

/// The rules of a policy, read as a slice. Only values that the indexes do not use can change
/// afterwards: the numbers of the limits, and enforce to shadow.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    all: Vec<Rule>,
    requests: RequestIndex,
    descriptors: DescriptorIndex,
    are_corrected: bool,
    body_fields: Vec<BodyField>,
    header_names: BTreeSet<Box<str>>,
    /// Rules made for others, each with that rule, by their indices.
    owners: HashMap<u32, u32>,
    /// Empty until they are asked for, and after a change.
    pub(crate) descriptions: OnceLock<Arc<[Value]>>,
}

impl Rules {
    /// Indexes `rules`.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut descriptors = DescriptorIndex::default();
        let mut on_requests = Vec::new();
        for (index, rule) in (0..).zip(&rules) {
            if rule.mode == RuleMode::Off || !matches!(rule.role, Role::Limit) {
                continue;
            }
            if rule.is_for_descriptors() {
                descriptors.insert(index, rule);
            } else {
                on_requests.push((index, rule));
            }
        }
        Self {
            requests: RequestIndex::new(&on_requests),
            descriptors,
            are_corrected: rules.iter().any(|rule| rule.correction.is_some()),
            body_fields: body_fields(&rules),
            header_names: rules.iter().flat_map(names_of).map(Into::into).collect(),
            owners: owners(&rules),
            descriptions: OnceLock::new(),
            all: rules,
        }
    }

    /// Returns true if reports correct the charges of a rule.
    pub fn are_corrected(&self) -> bool {
        self.are_corrected
    }

    /// Returns the fields of bodies that its keys and costs need, each once.
    pub fn body_fields(&self) -> &[BodyField] {
        &self.body_fields
    }

    /// Returns true if a rule reads the header field of this name.
    pub(crate) fn reads_header(&self, name: &str) -> bool {
        self.header_names.contains(name)
    }

    /// Returns true if a rule, or one that is asked beside it, needs the body of its requests.
    pub(crate) fn reads_body(&self, rule: &Rule) -> bool {
        let beside = rule
            .beside()
            .filter_map(|index| self.all.get(*index as usize));
        let mut rules = std::iter::once(rule).chain(beside);
        rules.any(|rule| rule.body_fields().next().is_some())
    }

    /// Returns the limit for which the rule of an index was made; `None` for a limit of the file.
    pub fn owner(&self, index: u32) -> Option<&Rule> {
        self.all.get(*self.owners.get(&index)? as usize)
    }

    /// Returns true if the rule of an index has a name, or is the candidate of the limit with it.
    pub fn is_named(&self, index: u32, name: &str) -> bool {
        let is_candidate = |rule: &Rule| matches!(rule.role, Role::Candidate);
        let rule = self.all.get(index as usize);
        let owner = rule
            .filter(|rule| is_candidate(rule))
            .and(self.owner(index));
        rule.into_iter()
            .chain(owner)
            .any(|rule| *rule.limit.name == *name)
    }

    /// Returns the rules that may match, in the order of the file, each once.
    pub(crate) fn candidates<'a>(
        &'a self,
        request: &RequestFacts<'_>,
    ) -> impl Iterator<Item = (u32, &'a Rule)> {
        let mut lists = self.requests.find(request);
        // Merges the lists; an index in several of them comes once.
        std::iter::from_fn(move || {
            let index = *lists.iter().filter_map(|list| list.first()).min()?;
            lists.retain(|list| {
                if let [first, rest @ ..] = *list
                    && *first == index
                {
                    *list = rest;
                }
                !list.is_empty()
            });
            Some((index, self.all.get(index as usize)?))
        })
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
        self.descriptions.take();
        for rule in &mut self.all {
            if rule.mode == RuleMode::Enforce {
                rule.mode = RuleMode::Shadow;
            }
        }
    }

    /// Returns the gates of elastic limits.
    pub(crate) fn gates_mut(&mut self) -> impl Iterator<Item = &mut Gate> {
        self.all.iter_mut().filter_map(|rule| match &mut rule.role {
            Role::Elastic(gate) => Some(gate),
            Role::Limit | Role::Soft | Role::Allowance | Role::Candidate | Role::Seen => None,
        })
    }

    /// Returns the limits, their variants and their records of requests, so that their ids and
    /// version can be set.
    pub fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.descriptions.take();
        self.all.iter_mut().flat_map(|rule| {
            let variants = rule.variants.numbers.iter_mut();
            let others = variants.map(|variant| &mut variant.limit);
            let records = rule.correction.iter_mut().map(|it| &mut it.record);
            std::iter::once(&mut rule.limit)
                .chain(others)
                .chain(records)
        })
    }

    /// Tells each limit which keys have its numbers; those of an extra are the keys of its owner.
    /// The ids of the limits must be set.
    pub fn relate_limits(&mut self) {
        let overrides = |rule: &Rule| Arc::clone(&rule.variants.overrides);
        let overrides: Vec<_> = self.all.iter().map(overrides).collect();
        for (index, rule) in (0..).zip(&mut self.all) {
            let owner = self.owners.get(&index).unwrap_or(&index);
            if let Some(overrides) = overrides.get(*owner as usize) {
                rule.variants.relate(&rule.limit, overrides);
            }
        }
    }
}

/// Returns the rules that were made for others, each with that rule.
fn owners(rules: &[Rule]) -> HashMap<u32, u32> {
    let pairs = (0..).zip(rules);
    let pairs = pairs.flat_map(|(owner, rule)| rule.beside().map(move |index| (*index, owner)));
    let is_extra = |index: u32| rules.get(index as usize).is_some_and(Rule::is_extra);
    pairs.filter(|(index, _)| is_extra(*index)).collect()
}

/// Returns the fields of bodies that rules need, each once.
fn body_fields(rules: &[Rule]) -> Vec<BodyField> {
    let mut fields = Vec::new();
    for field in rules.iter().flat_map(Rule::body_fields) {
        if !fields.contains(field) {
            fields.push(field.clone());
        }
    }
    fields
}

/// Returns the names of the header fields that the `match`, the cost and the keys of a rule read.
fn names_of(rule: &Rule) -> impl Iterator<Item = &str> {
    let parts = rule.counted_parts().filter_map(|part| match part {
        KeyPart::Header(name) => Some(&**name),
        KeyPart::ApiKey => Some("x-api-key"),
        _ => None,
    });
    parts.chain(rule.fields().filter_map(|field| match field {
        Field::Header(name) => Some(&**name),
        _ => None,
    }))
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
