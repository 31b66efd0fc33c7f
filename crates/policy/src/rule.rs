//! Rule: one `[[limit]]` of the policy, compiled.

use std::sync::Arc;

use ratekeeper_core::{Key, Limit, Mode, Nanos, Permits};

use crate::{Facts, KeyPart, Matcher};

/// One limit of the policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name, identity and algorithm.
    pub limit: Limit,
    /// Whether it decides, and whether it may refuse.
    pub mode: RuleMode,
    /// Which requests it is for.
    pub matcher: Matcher,
    /// Whom it counts; empty for everybody together.
    pub key: Vec<KeyPart>,
    /// What happens when a key part is missing.
    pub missing_key: MissingKey,
    /// What a request costs.
    pub cost: Cost,
    /// Who is exempt.
    pub exemptions: Vec<Arc<Exemption>>,
    /// How a refusal looks.
    pub refusal: Arc<Refusal>,
    /// `q` of the RateLimit-Policy header: what the limit holds at most.
    pub quota: Permits,
    /// `w` of the RateLimit-Policy header: the span of the quota; none for months and years.
    pub window: Option<Nanos>,
    /// The limit in the policy's words: `20/day`, `bucket of 40, 20/1s`.
    pub text: String,
    /// Line of the policy file where the limit begins, from 1.
    pub line: usize,
}

impl Rule {
    /// A key of this rule in words, one for each part: `ip=192.0.2.1`, `attr:user_id=u1`;
    /// none for a rule that counts everybody together.
    pub fn describe_key<'a>(&'a self, key: Key<'a>) -> impl Iterator<Item = String> + 'a {
        let parts = self.key.iter().filter(|part| **part != KeyPart::All);
        parts
            .zip(key.display_parts())
            .map(|(part, value)| format!("{part}={value}"))
    }
}

/// `mode = "enforce" | "shadow" | "off"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// The mode of a charge; none if the rule is off.
    pub const fn charge_mode(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => None,
        }
    }
}

/// `missing_key`: what happens when a request has no value for a key part.
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

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// What the caller says, 1 if it says nothing. The default.
    Request,
    /// Always the same, whatever the caller says.
    Fixed(Permits),
    /// The value of an attribute; 1 if it is missing or no whole number.
    Attribute(String),
}

impl Cost {
    pub(crate) fn of(&self, facts: &Facts<'_>) -> Permits {
        match self {
            Self::Request => facts.cost.unwrap_or(Permits::ONE),
            Self::Fixed(cost) => *cost,
            Self::Attribute(name) => facts
                .attribute(name)
                .and_then(whole_number)
                .unwrap_or(Permits::ONE),
        }
    }
}

/// Digits only; more than can be counted is as much as can be counted.
fn whole_number(text: &str) -> Option<Permits> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().map_or(Permits::MAX, Permits::new))
}

/// `[[exempt]]`: requests that some limits do not count.
#[derive(Clone, Debug)]
pub struct Exemption {
    /// Which requests.
    pub matcher: Matcher,
    /// Why, for the record.
    pub reason: String,
}

/// How a refusal looks: `[response.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status, 400 to 599.
    pub status: u16,
    /// What the body holds.
    pub body: Body,
    /// Text with `{retry_after}`, `{limit}`; none for the standard sentence.
    pub detail: Option<String>,
}

impl Default for Refusal {
    fn default() -> Self {
        Self {
            status: 429,
            body: Body::ProblemJson,
            detail: None,
        }
    }
}

/// The body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RFC 9457.
    ProblemJson,
    /// Nothing.
    Empty,
    /// Text of the policy's own, with its content type.
    Text {
        /// What is sent.
        content: String,
        /// Its content type.
        content_type: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_whole_numbers_are_costs() {
        let cost = Cost::Attribute("n".into());
        for (text, expected) in [
            ("0", 0),
            ("7", 7),
            ("007", 7),
            ("4294967295", u32::MAX),
            ("4294967296", u32::MAX),
            ("99999999999999999999999999", u32::MAX),
            ("", 1),
            ("-1", 1),
            ("+1", 1),
            ("1.5", 1),
            ("1e3", 1),
            (" 7", 1),
            ("seven", 1),
        ] {
            let facts = Facts {
                attributes: &[("n", text)],
                cost: Some(Permits::new(9)),
                ..Facts::default()
            };
            assert_eq!(cost.of(&facts), Permits::new(expected), "{text:?}");
        }
        assert_eq!(cost.of(&Facts::default()), Permits::ONE);
    }
}
