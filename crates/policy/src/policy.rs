//! Policy: the rules of one file, and which of them a request must pass.

use std::ops::{Deref, Range};
use std::sync::Arc;

use ratekeeper_core::{Charge, Key, KeySink, Permits};
use smallvec::SmallVec;

use crate::keys::{Keys, Subject};
use crate::request::Request;
use crate::{ClientIp, Facts, HeaderStyle, Rule, RuleMode, Rules, Settings};

/// The rules of one policy file.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Counts the policies this process has run, from 1; 0 until the keeper takes it.
    pub version: u32,
    /// SHA-256 of the text, in hexadecimal.
    pub sha: Arc<str>,
    /// In the order of the file.
    pub rules: Rules,
    /// Where addresses come from.
    pub client_ip: ClientIp,
    /// Which headers tell clients about their limits.
    pub headers: HeaderStyle,
    /// Of the process.
    pub settings: Settings,
}

/// The charges of one request: one for each rule that matches, in the policy's order.
///
/// Holds indexes and key bytes, not references, so that it can travel with the answer.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    /// One for each rule that applies.
    pub entries: SmallVec<[Entry; 4]>,
    /// Rules that refuse because a key part is missing (`missing_key = "deny"`).
    pub missing: SmallVec<[u32; 2]>,
    /// The keys' bytes, one after the other.
    pub bytes: KeyBytes,
}

/// Key bytes of a request; the first 128 need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBytes(SmallVec<[u8; 128]>);

impl KeyBytes {
    /// Where the next key begins.
    fn end(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Appends bytes that stand in it already.
    pub(crate) fn repeat(&mut self, range: Range<usize>) {
        let copy: SmallVec<[u8; 64]> = SmallVec::from_slice(&self.0[range]);
        self.0.extend_from_slice(&copy);
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }
}

impl KeySink for KeyBytes {
    fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl Deref for KeyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// One charge.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Index of the rule in the policy.
    pub rule: u32,
    /// Where the key lies in `bytes`.
    pub key: Range<u32>,
    /// What the request costs under this rule.
    pub cost: Permits,
    /// A key part was missing and something else stood in.
    pub fallback: bool,
}

impl Policy {
    /// Finds the rules that `facts` must pass, with keys and costs; `out` is cleared first.
    ///
    /// A rule in shadow mode whose key is missing under `missing_key = "deny"` is left out:
    /// it never refuses. Up to 4 charges with keys of 128 bytes together need no allocation.
    pub fn charges(&self, facts: &Facts<'_>, out: &mut Charges) {
        out.clear();
        let request = Request::new(facts);
        let mut keys = Keys::new(&request, self.client_ip.ipv6_prefix);
        for (index, rule) in self.rules.candidates(&request) {
            let mut exemptions = rule.exemptions.iter();
            if !rule.matcher.holds(&request) || exemptions.any(|e| e.matcher.holds(&request)) {
                continue;
            }
            let start = out.bytes.end();
            match keys.write(rule, &mut out.bytes) {
                Subject::Deny if rule.mode == RuleMode::Enforce => out.missing.push(index),
                Subject::Deny | Subject::Skip => {}
                subject @ (Subject::Known | Subject::StandIn) => out.entries.push(Entry {
                    rule: index,
                    key: start..out.bytes.end(),
                    cost: rule.cost.of(facts),
                    fallback: subject == Subject::StandIn,
                }),
            }
        }
    }

    /// The rule with that name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| &*rule.limit.name == name)
    }
}

impl Charges {
    fn clear(&mut self) {
        self.entries.clear();
        self.missing.clear();
        self.bytes.truncate(0);
    }

    /// The charges, for the store. Rules that are off never appear.
    pub fn iter<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = Charge<'a>> {
        self.entries.iter().filter_map(|entry| {
            let rule = policy.rules.get(entry.rule as usize)?;
            Some(Charge {
                limit: &rule.limit,
                key: self.key(entry),
                cost: entry.cost,
                mode: rule.mode.charge_mode()?,
            })
        })
    }

    /// The key of an entry.
    pub fn key(&self, entry: &Entry) -> Key<'_> {
        let range = entry.key.start as usize..entry.key.end as usize;
        Key::from_bytes(self.bytes.get(range).unwrap_or_default())
    }
}
