//! Rule: one `[[limit]]` of the policy, compiled.

use std::sync::Arc;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Key, Limit, Mode, Nanos, Origin, Permits, Quota, Share, Window,
};
use strum::{AsRefStr, EnumString, IntoStaticStr};

use crate::model::matching::descriptor::MAX_ENTRIES;
use crate::model::rules::cost::amount;
use crate::{
    Active, Alert, Allowance, BodyField, Correction, Cost, Descriptor, EntryName, Exemption, Facts,
    Field, Gate, KeyPart, KeyShare, Matcher, Numbers, Plans, Priority, Refusal, RequestFacts, Unit,
    Variant, Variants, WallTime,
};

/// One limit of the policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name, identity and algorithm.
    pub limit: Limit,
    /// Decides and refuses, only decides, or does nothing.
    pub mode: RuleMode,
    /// Share of its keys for which it is enforced, if its mode is; `None` for all.
    pub percent: Option<KeyShare>,
    /// Requests it is for.
    pub matcher: Matcher,
    /// Times at which it applies; `None` for all.
    pub active: Option<Box<Active>>,
    /// When the usage of a key is reported; `None` for never.
    pub alert: Option<Alert>,
    /// Parts of its key; empty for one counter for all requests.
    pub key: Vec<KeyPart>,
    /// Behaviour when a key part is missing.
    pub missing_key: MissingKey,
    /// Cost of a request.
    pub cost: Cost,
    /// How a report corrects its charges; `None` if none does.
    pub correction: Option<Box<Correction>>,
    /// Exemptions from it.
    pub exemptions: Vec<Arc<Exemption>>,
    /// How a refusal looks.
    pub refusal: Arc<Refusal>,
    /// `q` of the RateLimit-Policy header: the capacity of the limit.
    pub quota: Permits,
    /// `w` of the RateLimit-Policy header: the span of the quota; `None` for months and years.
    pub window: Option<Nanos>,
    /// Maximum rate of a client that keeps to the limit: the quota as written, or the size of a
    /// bucket in the time that refills it. `None` for windows of the calendar, which have no one
    /// length, and for limits of concurrency.
    pub keeps_to: Option<Quota>,
    /// The limit in the policy's words: `20/day`, `bucket of 40, 20/1s`.
    pub text: String,
    /// What its permits stand for; `None` for permits by themselves.
    pub unit: Option<Unit>,
    /// Line of the policy file where the limit begins, from 1.
    pub line: usize,
    /// Other numbers, for keys with a plan or an override.
    pub variants: Variants,
    /// How it is reached.
    pub role: Role,
    /// Indices of the rules that are asked, in order, when it denies.
    pub otherwise: Vec<u32>,
    /// Indices of the rules that are not asked where it applies and is enforced.
    pub replaces: Vec<u32>,
    /// Index of the rule with another number that is tried beside it.
    pub candidate: Option<u32>,
    /// Index of the rule that holds the values that it has counted; `None` if it counts requests.
    pub distinct: Option<u32>,
    /// The part of it that is for some requests alone; `None` if all requests may use it whole.
    pub priority: Option<Box<Priority>>,
    /// `on_limit`: name of the route of the gateway for the requests that it denies; `None` to
    /// refuse them.
    pub on_limit: Option<Box<str>>,
}

impl Rule {
    /// Returns the fields of the body that its keys and its cost need.
    pub fn body_fields(&self) -> impl Iterator<Item = &BodyField> {
        let parts = self.counted_parts().filter_map(|part| match part {
            KeyPart::Body(field) => Some(field),
            _ => None,
        });
        parts.chain(match &self.cost {
            Cost::Body(field, _) => Some(field),
            _ => None,
        })
    }

    /// Returns the parts of its key, and the one that stands in for them.
    pub(crate) fn counted_parts(&self) -> impl Iterator<Item = &KeyPart> {
        let stand_in = match &self.missing_key {
            MissingKey::Use(part) => Some(part),
            _ => None,
        };
        self.key.iter().chain(stand_in)
    }

    /// Returns the fields of requests that its `match` and its cost compare.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        let prices = self.cost.prices().iter().map(|price| &price.matcher);
        let matchers = std::iter::once(&self.matcher).chain(prices);
        matchers.flat_map(|matcher| matcher.fields.iter().map(|(field, _)| field))
    }

    /// Returns true if it is for descriptors: its `match` or its `key` names a domain or an
    /// entry. If so, it is for nothing else; if not, it is for no descriptor.
    pub fn is_for_descriptors(&self) -> bool {
        let of_descriptors = |(field, _): &(Field, _)| field.is_of_descriptors();
        self.matcher.fields.iter().any(of_descriptors) || self.entry_names().next().is_some()
    }

    /// Returns the permits that requests without priority may use: all but those of its priority.
    pub fn ordinary(&self) -> Permits {
        let capacity = self.limit.algorithm.capacity();
        let priority = self.priority.as_deref();
        let headroom = priority.map_or(Permits::ZERO, |it| it.headroom(capacity));
        Permits::new(capacity.get().saturating_sub(headroom.get()))
    }

    /// Returns the maximum rate of a client that keeps to the limit without priority: as
    /// [`keeps_to`](Self::keeps_to), but within its [`ordinary`](Self::ordinary) permits.
    pub fn ordinary_rate(&self) -> Option<Quota> {
        let quota = self.keeps_to?;
        let least = self.ordinary().min(quota.permits());
        let priority = self.priority.as_ref();
        priority.map_or(Some(quota), |_| Quota::new(least, quota.per()).ok())
    }

    /// Returns the least share of its requests that is served to a client that keeps to the limit
    /// without priority and has it to itself, if each costs 1; see [`AnyAlgorithm::least_served`].
    pub fn least_served(&self) -> Share {
        match self.ordinary_rate() {
            Some(quota) => self.limit.algorithm.least_served(quota),
            None => Share::ALL, // by its windows, or by the permits on loan
        }
    }

    /// Returns true if it applies at that time; always if the time is unknown.
    #[inline]
    pub fn is_active(&self, wall: WallTime) -> bool {
        let active = self.active.as_deref();
        active.is_none_or(|active| active.is_active(wall))
    }

    /// Returns true if it does not refill.
    pub fn is_balance(&self) -> bool {
        matches!(self.limit.algorithm, AnyAlgorithm::Balance(_))
    }

    /// Returns the parts of its key that put a value into it.
    pub fn key_parts(&self) -> impl Iterator<Item = &KeyPart> {
        self.key.iter().filter(|part| **part != KeyPart::All)
    }

    /// Returns the indices of the rules that are charged beside it: those made for it, and those
    /// that it asks when it denies.
    pub(crate) fn beside(&self) -> impl Iterator<Item = &u32> {
        let others = self.otherwise.iter().chain(&self.candidate);
        others.chain(&self.distinct)
    }

    /// Returns the mode in which the key of a request is decided; `None` if the rule is off. A
    /// request without a key belongs to a share of all keys only.
    pub fn mode_of(&self, key: Option<Key<'_>>) -> Option<Mode> {
        let is_in = |share: KeyShare| match key {
            Some(key) => share.holds(&self.limit.name, key),
            None => share.is_whole(),
        };
        match self.mode.charge_mode()? {
            Mode::Enforce if !self.percent.is_none_or(is_in) => Some(Mode::Shadow),
            mode => Some(mode),
        }
    }

    /// Returns true if the caller forwards the requests that it denies.
    #[inline]
    pub(crate) fn is_diverted(&self, facts: &Facts<'_>) -> bool {
        let route = self.on_limit.as_ref();
        route.is_some_and(|route| facts.routes.contains(route))
    }

    /// Returns true if it is for this request, at the times at which it is active.
    pub fn applies_to(&self, facts: &Facts<'_>) -> bool {
        let named = match &facts.descriptor {
            None => !self.is_for_descriptors(),
            Some(descriptor) => self.is_for_descriptors() && self.names_all(descriptor),
        };
        named && self.holds(&RequestFacts::new(facts))
    }

    /// Returns the entries in its `match` and in its `key`; one that both name comes twice.
    pub fn entry_names(&self) -> impl Iterator<Item = &EntryName> {
        let matched = self.matcher.fields.iter().map(|(field, _)| match field {
            Field::Descriptor(name) => Some(name),
            _ => None,
        });
        let counted = self.key.iter().map(|part| match part {
            KeyPart::Descriptor(name) => Some(name),
            _ => None,
        });
        matched.chain(counted).flatten()
    }

    /// Returns true if it names exactly the entries of the descriptor. A rule that names none is
    /// for descriptors of any entries.
    pub fn names_all(&self, descriptor: &Descriptor<'_>) -> bool {
        let mut names = self.entry_names().peekable();
        if names.peek().is_none() {
            return true;
        }
        let entries = descriptor.entries;
        let is_named = |(index, (key, _)): (usize, &(&str, _))| {
            let before = entries[..index].iter().filter(|(k, _)| k == key).count();
            let mut names = self.entry_names();
            names.any(|name| name.number() == before + 1 && name.key() == *key)
        };
        entries.len() <= MAX_ENTRIES
            && names.all(|name| name.of(descriptor).is_some())
            && entries.iter().enumerate().all(is_named)
    }

    /// Returns true if every field holds, and no exemption does.
    pub(crate) fn holds(&self, request: &RequestFacts<'_>) -> bool {
        self.matcher.holds(request) && !self.is_exempt(request)
    }

    /// Returns true if an exemption holds. Exemptions with descriptor fields are for descriptors
    /// alone, and the others for other requests.
    #[inline]
    pub(crate) fn is_exempt(&self, request: &RequestFacts<'_>) -> bool {
        let mut exemptions = self.exemptions.iter();
        exemptions.any(|exemption| exemption.holds(request))
    }

    /// Returns its limit with other numbers; `None` if they are its own or allow nothing.
    ///
    /// If its algorithm cannot hold them (a log of a million), the limit becomes a fixed window. Its
    /// name has the numbers, because a shared store keeps counters by name.
    pub(crate) fn limit_of(&self, numbers: Numbers, origin: Origin) -> Option<Limit> {
        let quota = numbers.quota()?;
        let fixed = || Window::fixed(quota, origin.phase(quota.per())).map(AnyAlgorithm::from);
        let own = &self.limit.algorithm;
        let algorithm = own.with_quota(quota, origin).or_else(|_| fixed()).ok()?;
        (algorithm != *own).then(|| Limit {
            name: format!("{}={numbers}", self.limit.name).into(),
            algorithm,
            ..self.limit.clone()
        })
    }

    /// Returns true if its quota says all of how it counts, so that it can be tried with another: a
    /// gap, steps or a warm-up are more.
    pub fn is_of_quota(&self, origin: Origin) -> bool {
        let own = &self.limit.algorithm;
        let written = || Quota::new(self.quota, self.window?).ok();
        let quota = self.keeps_to.or_else(written);
        let rebuilt = quota.map(|quota| own.with_quota(quota, origin));
        let has_no_more = matches!(own, AnyAlgorithm::Gcra(_) | AnyAlgorithm::Window(_));
        rebuilt.is_some_and(|it| has_no_more || it.as_ref() == Ok(own))
    }

    /// Returns the cost that a text states: a whole number, or a decimal number of the unit,
    /// rounded up; `None` if it is neither. A number beyond the countable range counts as its end.
    pub fn amount(&self, text: &str) -> Option<Permits> {
        amount(text, self.unit.as_ref())
    }

    /// Returns a key of this rule in words, one for each part: `ip=192.0.2.1`, `attr:user_id=u1`;
    /// empty for a rule with one counter for all requests.
    pub fn describe_key<'a>(&'a self, key: Key<'a>) -> impl Iterator<Item = String> + 'a {
        self.key_parts()
            .zip(key.display_parts())
            .map(|(part, value)| format!("{part}={value}"))
    }

    /// Returns true if it belongs to another rule: an extra or a candidate, made when the policy
    /// was read.
    pub fn is_extra(&self) -> bool {
        matches!(
            self.role,
            Role::Soft | Role::Elastic(_) | Role::Candidate | Role::Seen
        )
    }

    /// Returns the rule as it is for keys with other numbers.
    #[must_use]
    pub fn with_numbers(&self, variant: &Variant) -> Self {
        Self {
            limit: variant.limit.clone(),
            quota: variant.quota,
            window: variant.window,
            keeps_to: variant.keeps_to,
            text: variant.text.clone(),
            ..self.clone()
        }
    }

    /// Returns the allowance of each plan; empty if the rule has no `plans`.
    pub fn plans<'p>(&'p self, plans: &'p Plans) -> impl Iterator<Item = (&'p str, Allowance)> {
        let each = self.variants.plans.iter().enumerate();
        each.map(|(index, allowance)| (plans.name(index), *allowance))
    }

    /// Returns its own limit, then those of its variants.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> + Clone {
        let variants = self.variants.numbers.iter();
        std::iter::once(&self.limit).chain(variants.map(|variant| &variant.limit))
    }
}

/// How a rule is reached.
#[derive(Clone, Debug, Default, AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// By its `match`.
    #[default]
    Limit,
    /// When the limit with `soft` denies, for which it was made: it has the same requests and keys.
    Soft,
    /// Like [`Soft`](Self::Soft), of a limit with `elastic`, and only while its gate is open.
    Elastic(Gate),
    /// When a limit that names it in `otherwise` denies, if it matches.
    Allowance,
    /// Beside the limit with `candidate`, for which it was made: it has the same requests and keys,
    /// and never refuses.
    Candidate,
    /// Before the limit with `distinct` for which it was made: it denies a value that was counted.
    Seen,
}

/// Maximum number of names in `otherwise`.
pub(crate) const MAX_OTHERWISE: usize = 4;

/// `mode = "enforce" | "shadow" | "off"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, EnumString, AsRefStr, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum RuleMode {
    /// Decides and refuses.
    #[default]
    Enforce,
    /// Decides and counts, never refuses.
    Shadow,
    /// Does nothing.
    Off,
}

impl RuleMode {
    /// Returns the mode of a charge; `None` if the rule is off.
    pub const fn charge_mode(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => None,
        }
    }
}

/// `missing_key`: behaviour when a request has no value for a key part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// `skip`: the limit does not apply.
    Skip,
    /// `deny`: the request is refused.
    Deny,
    /// `use:PART`: another part stands in, by default the address.
    Use(KeyPart),
    /// `shared`: all such requests share one counter.
    Shared,
}

impl Default for MissingKey {
    fn default() -> Self {
        Self::Use(KeyPart::Ip { bits: None })
    }
}
