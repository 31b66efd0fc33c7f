//! Rules: those of one policy, in the order of the file, and an index over them.

use std::ops::Deref;

use ratekeeper_core::Limit;

use crate::Rule;

/// The rules of a policy. Read them as a slice; only the numbers that a keeper gives to
/// their limits can change afterwards, so the index over the matchers stays true.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Indexes `rules`.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// The limits, to give them their ids and version.
    pub fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.rules.iter_mut().map(|rule| &mut rule.limit)
    }
}

impl Deref for Rules {
    type Target = [Rule];
    fn deref(&self) -> &[Rule] {
        &self.rules
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;
    fn into_iter(self) -> Self::IntoIter {
        self.rules.iter()
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        Self::new(rules)
    }
}
