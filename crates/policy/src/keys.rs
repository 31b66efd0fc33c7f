//! Keys: writes the keys of one request, rule after rule, into one buffer.
//!
//! A key is the values of its parts, each after its length, so that no two lists of values have
//! the same bytes.
//!
//! Values that take work (a hash, an IPv6 address) are computed once per request: a later key
//! copies the bytes of an earlier one. So a long path costs one hash regardless of the number of
//! rules that count by it.

use std::ops::Range;

use ratekeeper_core::Key;
use smallvec::SmallVec;

use crate::key_part::{Around, Credential, PartValue};
use crate::request::RequestFacts;
use crate::value::{is_hashed, write_missing};
use crate::{Facts, KeyBytes, KeyPart, MissingKey, PathCase, Rule, WallTime};

/// Maximum number of values remembered per request; further ones are computed again.
const REMEMBERED: usize = 8;

/// Writes the keys of one request.
pub(crate) struct KeyWriter<'p, 'r> {
    request: &'r RequestFacts<'r>,
    ipv6_prefix: u8,
    wall: WallTime,
    seen: SmallVec<[WrittenValue<'p>; REMEMBERED]>,
}

/// A value that was written already. The value of `path` depends on the rule's case, that of
/// `api_key` on the credential.
struct WrittenValue<'p> {
    part: &'p KeyPart,
    path_case: PathCase,
    credential: Credential,
    range: Range<usize>,
}

/// Result of writing the key of a request under a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySubject {
    /// Written, every part of it.
    Known,
    /// Written, but something stands in for a missing part.
    StandIn,
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
        }
    }

    /// Returns the facts that the keys are made from.
    pub(crate) fn facts(&self) -> &'r Facts<'r> {
        self.request.facts
    }

    pub(crate) fn request(&self) -> &'r RequestFacts<'r> {
        self.request
    }

    /// Returns the time of the request.
    pub(crate) fn wall(&self) -> WallTime {
        self.wall
    }

    /// Returns the values that a key part depends on besides the request.
    pub(crate) fn around<'a>(
        &self,
        route: Option<&'a str>,
        rule: &Rule,
        credential: Credential,
    ) -> Around<'a> {
        Around {
            route,
            ipv6_prefix: self.ipv6_prefix,
            path_case: rule.matcher.path_case,
            credential,
        }
    }

    /// Returns true if the request may have a second key under a rule: by another credential.
    pub(crate) fn has_second(&self, rule: &Rule) -> bool {
        let by_credential = rule.key.contains(&KeyPart::ApiKey)
            || rule.missing_key == MissingKey::Use(KeyPart::ApiKey);
        by_credential && Credential::Second.of(self.request).is_some()
    }

    /// Appends the key of the request under `rule`, or nothing.
    pub(crate) fn write(
        &mut self,
        rule: &'p Rule,
        credential: Credential,
        out: &mut KeyBytes,
    ) -> KeySubject {
        let start = out.len();
        let mut subject = KeySubject::Known;
        for part in &rule.key {
            let value = self.part(part, rule, credential, out);
            subject = match &rule.missing_key {
                _ if value == PartValue::Written => continue,
                // No stand-in, because a client could name a second value to be counted by it.
                _ if value == PartValue::Ambiguous => KeySubject::Deny,
                MissingKey::Skip => KeySubject::Skip,
                MissingKey::Deny => KeySubject::Deny,
                MissingKey::Shared => {
                    write_missing(None, out);
                    KeySubject::StandIn
                }
                MissingKey::Use(stand_in) => {
                    self.stand_in(stand_in, rule, credential, out);
                    KeySubject::StandIn
                }
            };
            if matches!(subject, KeySubject::Skip | KeySubject::Deny) {
                self.truncate(start, out);
                break;
            }
        }
        subject
    }

    /// Removes the bytes from `start` on, and the values that were remembered there.
    pub(crate) fn truncate(&mut self, start: usize, out: &mut KeyBytes) {
        out.truncate(start);
        self.seen.retain(|seen| seen.range.end <= start);
    }

    fn part(
        &mut self,
        part: &'p KeyPart,
        rule: &Rule,
        credential: Credential,
        out: &mut KeyBytes,
    ) -> PartValue {
        let path_case = rule.matcher.path_case;
        let same = |seen: &&WrittenValue<'_>| {
            seen.part == part && seen.path_case == path_case && seen.credential == credential
        };
        if let Some(seen) = self.seen.iter().find(same) {
            out.repeat(seen.range.clone());
            return PartValue::Written;
        }
        let start = out.len();
        let value = self.value(part, rule, credential, out);
        let takes_work = match part {
            // Depends on the rule.
            KeyPart::Route => false,
            KeyPart::Ip { .. } => true,
            _ => is_hashed(&out[start..]),
        };
        if value == PartValue::Written && takes_work && self.seen.len() < REMEMBERED {
            self.seen.push(WrittenValue {
                part,
                path_case,
                credential,
                range: start..out.len(),
            });
        }
        value
    }

    fn value(
        &self,
        part: &KeyPart,
        rule: &Rule,
        credential: Credential,
        out: &mut KeyBytes,
    ) -> PartValue {
        let route = match part {
            KeyPart::Route => rule.matcher.route(self.request),
            _ => None,
        };
        part.write(self.request, self.around(route, rule, credential), out)
    }

    /// Writes another part as a stand-in; requests without that one as well share a counter.
    fn stand_in(&self, part: &KeyPart, rule: &Rule, credential: Credential, out: &mut KeyBytes) {
        let mut bytes = KeyBytes::default();
        self.value(part, rule, credential, &mut bytes);
        match Key::from_bytes(&bytes).parts().next() {
            Some(value) => write_missing(Some((part, value)), out),
            None => write_missing(None, out),
        }
    }
}
