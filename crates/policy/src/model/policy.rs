//! Policy: the rules of one file, and the selection of the rules that a request must pass.
//!
//! A policy is immutable. A reload replaces it whole.

mod charges;
mod entries;

use std::net::IpAddr;
use std::sync::Arc;

use ratekeeper_core::{Key, Limit, Nanos, Origin};

use crate::model::client::claims::LazyClaims;
use crate::model::keys::key_part::Around;
use crate::model::keys::key_writer::KeyWriter;
use crate::model::keys::variants::{Allowance, Held, HeldBy, KeyAsk};
use crate::model::rules::calendar::MonthDay;
use crate::{
    ByHand, ClientIp, Country, Facts, Geo, HandAct, HeaderStyle, KeyBytes, Plans, Priority,
    RequestFacts, Rule, Rules, Settings, Signal, Tokens, WallTime,
};
pub use charges::{Charges, Entry, NoCharge, Uncharged};

/// The rules of one policy file. The default has none, so that every request passes.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Counts the policies this process has run, from 1; 0 until the keeper takes it.
    pub version: u32,
    /// SHA-256 of the text, in hexadecimal.
    pub sha: Arc<str>,
    /// Rules in the order of the file.
    pub rules: Rules,
    /// Where the clock's zero lies.
    pub origin: Origin,
    /// Source of client addresses.
    pub client_ip: ClientIp,
    /// Source of countries and networks; `None` without `[geo]`.
    pub geo: Option<Geo>,
    /// Source of plans; `None` if no limit depends on one.
    pub plans: Option<Plans>,
    /// The tokens that are valid; `None` without `[jwt]`.
    pub tokens: Option<Arc<Tokens>>,
    /// Keys that an operator has banned or allowed; a reload keeps them.
    pub by_hand: Arc<ByHand>,
    /// Signals that its elastic limits name.
    pub(crate) signals: Vec<Arc<Signal>>,
    /// Headers that report limits to clients.
    pub headers: HeaderStyle,
    /// Settings of the process.
    pub settings: Settings,
}

impl Policy {
    /// Finds the rules that `facts` must pass at `wall`, with keys and costs; `out` is cleared
    /// first. Keys without a limit, by their plan or an override, are not charged.
    ///
    /// Up to 4 charges with keys of 128 bytes together need no allocation.
    pub fn charges(&self, facts: &Facts<'_>, wall: WallTime, out: &mut Charges) {
        out.clear();
        self.add_charges(facts, wall, out);
    }

    /// Adds charges like [`charges`](Self::charges), after those in `out`, because one call may
    /// ask about several descriptors.
    pub fn add_charges(&self, facts: &Facts<'_>, wall: WallTime, out: &mut Charges) {
        self.with_claims(facts, wall, |facts| self.add_verified(facts, wall, out));
    }

    /// Returns true for the name of a header field, in lower case, that is that of a field which
    /// limits or plans read, but for `_` in place of `-`. CGI, WSGI and Rack make one name of both,
    /// so that such an application would read the field that no limit has read.
    pub fn has_lookalike(&self, name: &str) -> bool {
        if !name.contains('_') {
            return false;
        }
        let read = name.replace('_', "-");
        let by_plans = self.plans.as_ref().and_then(Plans::header_name);
        let by_tokens = self.tokens.as_ref().map(|tokens| tokens.header());
        self.rules.reads_header(&read) || by_plans == Some(&*read) || by_tokens == Some(&*read)
    }

    /// Calls `decide` with the facts and the claims of their token. Without `[jwt]`, or if the
    /// caller has verified the token, the facts are as they were. The token is verified when the
    /// first claim is asked for.
    pub fn with_claims<R>(
        &self,
        facts: &Facts<'_>,
        wall: WallTime,
        decide: impl FnOnce(&Facts<'_>) -> R,
    ) -> R {
        match &self.tokens {
            Some(tokens) if facts.claims.is_none() => {
                let claims = LazyClaims::new(tokens, facts, wall);
                decide(&Facts {
                    claims: Some(&claims),
                    ..*facts
                })
            }
            _ => decide(facts),
        }
    }

    /// Adds charges of facts that have their claims.
    fn add_verified<'p>(&'p self, facts: &Facts<'_>, wall: WallTime, out: &mut Charges) {
        let request = RequestFacts::new(facts).located_by(self.geo.as_ref());
        let mut keys = KeyWriter::new(&request, self.client_ip.ipv6_prefix, wall);
        out.begin();
        let add = |(index, rule): (u32, &'p Rule)| {
            if rule.is_active(wall) && rule.matcher.holds(&request) {
                self.add_rule(index, rule, &mut keys, out);
            }
        };
        match &facts.descriptor {
            None => self.rules.candidates(&request).for_each(add),
            Some(descriptor) => {
                let rules = self.rules.of_descriptor(descriptor);
                let named = rules.filter(|(_, rule)| rule.names_all(descriptor));
                named.for_each(add);
            }
        }
        if !out.set_aside.is_empty() {
            out.remove_set_aside();
        }
        out.country = request.country.get().copied();
    }

    /// Returns true if a limit that applies to a request counts by a value of its body, which the
    /// caller has not read yet; see [`Facts::body`].
    pub fn needs_body(&self, facts: &Facts<'_>, wall: WallTime) -> bool {
        if self.rules.body_fields().is_empty() || facts.descriptor.is_some() {
            return false;
        }
        self.with_claims(facts, wall, |facts| {
            let request = RequestFacts::new(facts).located_by(self.geo.as_ref());
            let mut candidates = self.rules.candidates(&request);
            candidates.any(|(_, rule)| {
                self.rules.reads_body(rule) && rule.is_active(wall) && rule.holds(&request)
            })
        })
    }

    /// Returns true if a request has this priority.
    pub fn has_priority(&self, priority: &Priority, facts: &Facts<'_>, wall: WallTime) -> bool {
        self.with_claims(facts, wall, |facts| {
            priority.holds(&RequestFacts::new(facts))
        })
    }

    /// Returns the allowance of a key of a request, and its reason.
    pub(crate) fn held<'p>(
        &'p self,
        rule: &'p Rule,
        key: Key<'_>,
        keys: &KeyWriter<'p, '_>,
    ) -> Held<'p> {
        let unix_millis = keys.wall.unix_millis().unwrap_or(0);
        if let Some((act, left)) = self.by_hand.of(&rule.limit.name, key, unix_millis) {
            return Held {
                allowance: match act {
                    HandAct::Ban => Allowance::Blocked,
                    HandAct::Allow => Allowance::Unlimited,
                },
                by: HeldBy::Hand(left),
            };
        }
        if rule.variants.is_empty() {
            return Held::BY_RULE;
        }
        let ask = KeyAsk {
            key,
            parts: &rule.key,
            request: keys.request,
            around: keys.around(rule),
            unix_nanos: keys.wall.unix_seconds().unwrap_or(0) * 1_000_000_000,
        };
        rule.variants.held(&ask, self.plans.as_ref())
    }

    /// Returns the allowance of a request under a rule that applies to it, and its reason; of
    /// several keys, that of the first. `None` if a part of the key is missing and no other value
    /// stands in.
    pub fn allowance<'p>(
        &'p self,
        rule: &'p Rule,
        facts: &Facts<'_>,
        wall: WallTime,
    ) -> Option<Held<'p>> {
        self.with_claims(facts, wall, |facts| {
            let request = RequestFacts::new(facts).located_by(self.geo.as_ref());
            let mut keys = KeyWriter::new(&request, self.client_ip.ipv6_prefix, wall);
            let mut bytes = KeyBytes::default();
            keys.write(rule, 0, &mut bytes).ok()?;
            Some(self.held(rule, Key::from_bytes(&bytes), &keys))
        })
    }

    /// Returns the country that a trusted proxy states in the header of `[geo]`; `None` if there is
    /// no such header, or `peer` is not a trusted proxy. For [`Facts::country`].
    #[inline]
    pub fn stated_country(&self, peer: IpAddr, headers: &[(&str, &[u8])]) -> Option<Country> {
        let geo = self.geo.as_ref().filter(|geo| geo.header().is_some())?;
        self.client_ip.trusts(peer).then(|| geo.stated(headers))?
    }

    /// Returns the facts with their country and network looked up, as
    /// [`Rule::applies_to`](crate::Rule::applies_to) needs them.
    pub fn located<'a>(&self, facts: &Facts<'a>) -> Facts<'a> {
        let Some(geo) = &self.geo else {
            return *facts;
        };
        Facts {
            country: Some(facts.country.unwrap_or_else(|| geo.country(facts.ip))),
            network: Some(facts.network.unwrap_or_else(|| geo.network(facts.ip))),
            ..*facts
        }
    }

    /// Moves the policy to a clock with another zero: windows and calendars begin at the same
    /// moments in real time. States of keys by the old clock are invalid afterwards.
    pub fn set_origin(&mut self, origin: Origin) {
        if origin == self.origin {
            return;
        }
        for limit in self.rules.limits_mut() {
            limit.algorithm = limit.algorithm.on_clock(self.origin, origin);
        }
        self.origin = origin;
    }

    /// Returns the limit under which a key is counted that was charged under the limit `name`: by
    /// its override, else by the same numbers, else, if those were an override's, by the rule's
    /// own; each on the same day of the month. The usage has moved there, or will. A pattern is
    /// compared with what the key holds, which is no secret.
    pub fn limit_of(&self, name: &str, key: Key<'_>, unix_nanos: u64) -> Option<&Limit> {
        let (rule, numbers) = name.split_once('=').unwrap_or((name, ""));
        let rule = self.rule(rule)?;
        let day = numbers.rfind('@').map_or("", |at| &numbers[at..]);
        let on_day = |first: usize| {
            let days = rule.limits().skip(first).take(MonthDay::all().count());
            days.min_by_key(|limit| !limit.name.ends_with(day))
        };
        let facts = Facts::default();
        let ask = KeyAsk {
            key,
            parts: &rule.key,
            request: &RequestFacts::new(&facts),
            around: Around {
                matcher: &rule.matcher,
                ipv6_prefix: self.client_ip.ipv6_prefix,
            },
            unix_nanos,
        };
        if let Some((Allowance::Variant(first), _)) = rule.variants.overrides.find(&ask) {
            return on_day(first as usize + 1); // behind the rule's own
        }
        // A plan that is gone has a letter in its name, and no `/`; a `spacing` is a time.
        let has_letter = numbers.contains(|letter: char| letter.is_ascii_alphabetic());
        let is_time = numbers.parse::<Nanos>().is_ok();
        let is_override = !has_letter || numbers.contains('/') || is_time;
        let same = rule.limits().find(|limit| &*limit.name == name);
        same.or_else(|| on_day(0).filter(|_| is_override))
    }

    /// Returns the rule with that name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| &*rule.limit.name == name)
    }
}

#[cfg(test)]
mod tests;
