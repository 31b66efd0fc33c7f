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
//! The first that matches is final: a level without a rule does not fall back to a less exact
//! one, nor a deep call to a shallow rule.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::{EnvoyDescriptor, EnvoyRule};
use crate::model::matching::glob::Glob;

/// One level of descriptors, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct DescriptorLevel {
    keys: HashMap<Box<str>, Values, RandomState>,
}

/// The descriptors of one key on one level.
#[derive(Clone, Debug, Default)]
struct Values {
    exact: HashMap<Box<str>, TreeNode, RandomState>,
    /// In the order of the file.
    wildcards: Vec<Wildcard>,
    any: Option<Box<TreeNode>>,
}

#[derive(Clone, Debug)]
struct Wildcard {
    pattern: Box<str>,
    glob: Glob,
    node: TreeNode,
}

/// One descriptor.
#[derive(Clone, Debug, Default)]
pub(super) struct TreeNode {
    /// `None` if exempt, or only a way to deeper levels.
    pub(super) rule: Option<Arc<EnvoyRule>>,
    pub(super) below: DescriptorLevel,
}

/// The value that a descriptor asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WantedValue<'a> {
    Any,
    Exact(&'a str),
    Like(&'a str),
}

impl<'a> WantedValue<'a> {
    /// Reads a value; an empty one is `Any`.
    pub(super) fn new(value: &'a str) -> Self {
        match value {
            "" => Self::Any,
            value if value.contains('*') => Self::Like(value),
            value => Self::Exact(value),
        }
    }
}

impl DescriptorLevel {
    /// Returns the rule for a descriptor, whose entries must lead to it with none left over.
    pub(super) fn find(&self, descriptor: &EnvoyDescriptor<'_>) -> Option<&EnvoyRule> {
        let ((key, value), way) = descriptor.entries.split_last()?;
        let mut level = self;
        for (key, value) in way {
            level = &level.step(key, value)?.below;
        }
        level.step(key, value)?.rule.as_deref()
    }

    fn step(&self, key: &str, value: &str) -> Option<&TreeNode> {
        let values = self.keys.get(key)?;
        if let Some(node) = values.exact.get(value) {
            return Some(node);
        }
        let mut wildcards = values.wildcards.iter();
        let like = wildcards.find(|wildcard| wildcard.glob.matches(value.as_bytes()));
        like.map(|wildcard| &wildcard.node)
            .or(values.any.as_deref())
    }

    /// Adds a descriptor; returns false if there is one for these values already.
    pub(super) fn add(&mut self, key: &str, wanted: WantedValue<'_>, node: TreeNode) -> bool {
        let values = self.keys.entry(key.into()).or_default();
        let is_like = |pattern: &str| values.wildcards.iter().any(|it| *it.pattern == *pattern);
        match wanted {
            WantedValue::Any if values.any.is_none() => values.any = Some(Box::new(node)),
            WantedValue::Exact(value) if !values.exact.contains_key(value) => {
                values.exact.insert(value.into(), node);
            }
            WantedValue::Like(pattern) if !is_like(pattern) => values.wildcards.push(Wildcard {
                pattern: pattern.into(),
                glob: Glob::new(pattern.as_bytes()),
                node,
            }),
            _ => return false,
        }
        true
    }
}
