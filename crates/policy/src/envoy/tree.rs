//! Tree: the descriptors of a domain, level by level.
//!
//! ```text
//!   entries of a call:   (k1, v1)            (k2, v2)
//!                           |                   |
//!   level: key --> values: exact v1? --> level: exact v2? --> rule
//!                          wildcards, in the order of the file
//!                          any value
//! ```
//!
//! A level finds the key and then the value by hash, so its cost does not grow with the
//! number of descriptors; wildcards of that one key are tried one after the other. Key and
//! value are never joined: `a_b`, `c` is not `a`, `b_c`.
//!
//! The first that matches is taken for good: a level that leads nowhere does not fall back
//! to a less exact one, nor a deep call to a shallow rule.

use std::collections::HashMap;

use foldhash::quality::RandomState;

use super::Rule;
use crate::glob::Glob;

/// One level of descriptors, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    keys: HashMap<Box<str>, Values, RandomState>,
}

/// The descriptors of one key on one level.
#[derive(Clone, Debug, Default)]
struct Values {
    exact: HashMap<Box<str>, Node, RandomState>,
    /// In the order of the file.
    wildcards: Vec<Wildcard>,
    any: Option<Box<Node>>,
}

#[derive(Clone, Debug)]
struct Wildcard {
    pattern: Box<str>,
    glob: Glob,
    node: Node,
}

/// One descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// None: exempt, or only a way to deeper levels.
    pub(super) rule: Option<Rule>,
    pub(super) below: Level,
}

/// The value that a descriptor asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted<'a> {
    Any,
    Exact(&'a str),
    Like(&'a str),
}

impl<'a> Wanted<'a> {
    /// An empty value is none.
    pub(super) fn new(value: &'a str) -> Self {
        match value {
            "" => Self::Any,
            value if value.contains('*') => Self::Like(value),
            value => Self::Exact(value),
        }
    }
}

impl Level {
    /// The rule for these entries, which must lead to it with none left over.
    pub(super) fn find(&self, entries: &[(&str, &str)]) -> Option<&Rule> {
        let (last, way) = entries.split_last()?;
        let mut level = self;
        for entry in way {
            level = &level.step(entry)?.below;
        }
        level.step(last)?.rule.as_ref()
    }

    fn step(&self, (key, value): &(&str, &str)) -> Option<&Node> {
        let values = self.keys.get(*key)?;
        if let Some(node) = values.exact.get(*value) {
            return Some(node);
        }
        let mut wildcards = values.wildcards.iter();
        let like = wildcards.find(|wildcard| wildcard.glob.matches(value.as_bytes()));
        match like {
            Some(wildcard) => Some(&wildcard.node),
            None => values.any.as_deref(),
        }
    }

    /// The descriptor of `key` and `wanted`, if there is one.
    pub(super) fn node(&self, key: &str, wanted: Wanted<'_>) -> Option<&Node> {
        let values = self.keys.get(key)?;
        match wanted {
            Wanted::Any => values.any.as_deref(),
            Wanted::Exact(value) => values.exact.get(value),
            Wanted::Like(pattern) => {
                let mut wildcards = values.wildcards.iter();
                let same = wildcards.find(|wildcard| *wildcard.pattern == *pattern);
                same.map(|wildcard| &wildcard.node)
            }
        }
    }

    /// Adds a descriptor that is not here yet.
    pub(super) fn add(&mut self, key: &str, wanted: Wanted<'_>, node: Node) {
        let values = self.keys.entry(key.into()).or_default();
        match wanted {
            Wanted::Any => values.any = Some(Box::new(node)),
            Wanted::Exact(value) => {
                values.exact.insert(value.into(), node);
            }
            Wanted::Like(pattern) => values.wildcards.push(Wildcard {
                pattern: pattern.into(),
                glob: Glob::new(pattern.as_bytes()),
                node,
            }),
        }
    }

    /// Shows every rule, in no order.
    pub(super) fn each_rule<'t>(&'t self, show: &mut impl FnMut(&'t Rule)) {
        for values in self.keys.values() {
            let wildcards = values.wildcards.iter().map(|wildcard| &wildcard.node);
            let nodes = values.exact.values().chain(wildcards);
            for node in nodes.chain(values.any.as_deref()) {
                if let Some(rule) = &node.rule {
                    show(rule);
                }
                node.below.each_rule(show);
            }
        }
    }
}
