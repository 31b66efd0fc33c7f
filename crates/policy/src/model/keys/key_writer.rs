//! Keys: writes the keys of one request, rule after rule, into one buffer.
//!
//! A key is the values of its parts, each after its length, so that no two lists of values have
//! the same bytes.
//!
//! Values that take work (a hash, an IPv6 address) are computed once per request: a later key
//! copies the bytes of an earlier one. So a long path costs one hash regardless of the number of
//! rules that count by it.

use std::ops::Range;

use ratekeeper_core::{Key, KeySink as _};
use smallvec::SmallVec;

use crate::model::keys::key_part::{Around, PartValue};
use crate::model::keys::value::{is_hashed, write_missing};
use crate::{KeyBytes, KeyPart, MissingKey, PathCase, RequestFacts, Rule, WallTime};

/// Maximum number of values remembered per request; further ones are computed again.
const REMEMBERED: usize = 8;

/// Maximum number of keys of one request under a rule. A request with more is refused.
pub(crate) const MAX_KEYS: usize = 4;

/// Writes the keys of one request.
pub(crate) struct KeyWriter<'p, 'r> {
    /// The facts that the keys are made from.
    pub(crate) request: &'r RequestFacts<'r>,
    ipv6_prefix: u8,
    /// Time of the request.
    pub(crate) wall: WallTime,
    seen: SmallVec<[WrittenValue<'p>; REMEMBERED]>,
    /// True once the request has stated several values of a part.
    has_several: bool,
}

/// A value that was written already. The value of `path` depends on the rule's case.
struct WrittenValue<'p> {
    part: &'p KeyPart,
    path_case: PathCase,
    range: Range<usize>,
}

/// Number of a key of a request under a rule, from 0: one for each combination of the values that the
/// request states for its parts, of which the first changes fastest.
pub(crate) type KeyNumber = usize;

/// The subject of a key that was written, or of a part of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum KeySubject {
    /// Every part has its value.
    Known,
    /// Something stands in for a missing part.
    StandIn,
}

/// Why a request has no key under a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoKey {
    /// A part is missing: the rule does not apply.
    Skip,
    /// A part is missing, or has two values: the rule refuses.
    Deny,
}

impl<'p, 'r> KeyWriter<'p, 'r> {
    pub(crate) fn new(request: &'r RequestFacts<'r>, ipv6_prefix: u8, wall: WallTime) -> Self {
        Self {
            request,
            ipv6_prefix,
            wall,
            seen: SmallVec::new(),
            has_several: false,
        }
    }

    /// Returns the values that a key part depends on besides the request.
    pub(crate) fn around<'a>(&self, rule: &'a Rule) -> Around<'a> {
        Around {
            matcher: &rule.matcher,
            ipv6_prefix: self.ipv6_prefix,
        }
    }

    /// Returns the number of keys that the request has under a rule whose first key was written; one
    /// more than [`MAX_KEYS`] for any larger number.
    pub(crate) fn count(&self, rule: &Rule) -> usize {
        if !self.has_several {
            return 1;
        }
        let parts = rule
            .key
            .iter()
            .map(|part| self.rule_parts(part, rule).len());
        parts.product::<usize>().min(MAX_KEYS + 1)
    }

    /// Appends a key of the request under `rule`, or nothing.
    pub(crate) fn write(
        &mut self,
        rule: &'p Rule,
        number: KeyNumber,
        out: &mut KeyBytes,
    ) -> Result<KeySubject, NoKey> {
        let start = out.len();
        let subject = match number {
            0 => self.write_first(rule, out),
            _ => self.write_other(rule, number, out),
        };
        if subject.is_err() {
            self.truncate(start, out);
        }
        subject
    }

    fn write_first(&mut self, rule: &'p Rule, out: &mut KeyBytes) -> Result<KeySubject, NoKey> {
        let mut subject = KeySubject::Known;
        for part in &rule.key {
            let value = self.part(part, rule, out);
            match (value, &rule.missing_key) {
                (PartValue::Written | PartValue::FirstOfSeveral, _) => continue,
                (PartValue::Missing, MissingKey::Skip) => return Err(NoKey::Skip),
                // No stand-in, because a client could name a second value to be counted by it.
                (PartValue::Ambiguous, _) | (PartValue::Missing, MissingKey::Deny) => {
                    return Err(NoKey::Deny);
                }
                (PartValue::Missing, MissingKey::Shared) => write_missing(None, out),
                (PartValue::Missing, MissingKey::Use(part)) => {
                    let mut value = KeyBytes::default();
                    if self.value(part, rule, &mut value) == PartValue::Ambiguous {
                        return Err(NoKey::Deny);
                    }
                    write_stand_in(part, &value, out);
                }
            }
            subject = KeySubject::StandIn;
        }
        Ok(subject)
    }

    fn write_other(
        &self,
        rule: &Rule,
        number: KeyNumber,
        out: &mut KeyBytes,
    ) -> Result<KeySubject, NoKey> {
        let (mut subject, mut rest) = (KeySubject::Known, number);
        for part in &rule.key {
            let mut values = self.rule_parts(part, rule);
            let count = values.len();
            let (of_part, bytes) = values.swap_remove(rest % count)?;
            rest /= count;
            out.extend(&bytes);
            subject = subject.max(of_part);
        }
        Ok(subject)
    }

    /// Returns all values of a part under a rule, at least one.
    fn rule_parts(
        &self,
        part: &KeyPart,
        rule: &Rule,
    ) -> Vec<Result<(KeySubject, KeyBytes), NoKey>> {
        let all = |part: &KeyPart| part.all(self.request, self.around(rule), MAX_KEYS + 1);
        let Ok(values) = all(part) else {
            return vec![Err(NoKey::Deny)];
        };
        let stand_in = |part: &KeyPart, value: Option<KeyBytes>| {
            let mut out = KeyBytes::default();
            write_stand_in(part, &value.unwrap_or_default(), &mut out);
            Ok((KeySubject::StandIn, out))
        };
        let mut out = Vec::new();
        for value in values {
            match (value, &rule.missing_key) {
                (Some(bytes), _) => out.push(Ok((KeySubject::Known, bytes))),
                (None, MissingKey::Skip) => out.push(Err(NoKey::Skip)),
                (None, MissingKey::Deny) => out.push(Err(NoKey::Deny)),
                (None, MissingKey::Shared) => out.push(stand_in(part, None)),
                (None, MissingKey::Use(part)) => match all(part) {
                    Ok(values) => {
                        out.extend(values.into_iter().map(|value| stand_in(part, value)));
                    }
                    Err(_) => out.push(Err(NoKey::Deny)),
                },
            }
        }
        out
    }

    /// Removes the bytes from `start` on, and the values that were remembered there.
    pub(crate) fn truncate(&mut self, start: usize, out: &mut KeyBytes) {
        out.truncate(start);
        self.seen.retain(|seen| seen.range.end <= start);
    }

    fn part(&mut self, part: &'p KeyPart, rule: &Rule, out: &mut KeyBytes) -> PartValue {
        let path_case = rule.matcher.path_case;
        let same = |seen: &&WrittenValue<'_>| seen.part == part && seen.path_case == path_case;
        if let Some(seen) = self.seen.iter().find(same) {
            out.repeat(seen.range.clone());
            return PartValue::Written;
        }
        let start = out.len();
        let value = self.value(part, rule, out);
        let takes_work = match part {
            // These depend on the rule.
            KeyPart::Route => false,
            KeyPart::Path if self.request.readings().are_several() => false,
            KeyPart::Ip { .. } => true,
            _ => is_hashed(&out[start..]),
        };
        let is_written = matches!(value, PartValue::Written | PartValue::FirstOfSeveral);
        if is_written && takes_work && self.seen.len() < REMEMBERED {
            self.seen.push(WrittenValue {
                part,
                path_case,
                range: start..out.len(),
            });
        }
        value
    }

    fn value(&mut self, part: &KeyPart, rule: &Rule, out: &mut KeyBytes) -> PartValue {
        let value = part.write(self.request, self.around(rule), out);
        self.has_several |= value == PartValue::FirstOfSeveral;
        value
    }
}

/// Writes a value of another part as a stand-in; requests without that one as well share a counter.
fn write_stand_in(part: &KeyPart, value: &KeyBytes, out: &mut KeyBytes) {
    let value = Key::from_bytes(value).parts().next();
    write_missing(value.map(|value| (part, value)), out);
}
