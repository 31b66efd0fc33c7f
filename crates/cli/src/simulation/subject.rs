//! Subject: the limit that is simulated, from its name in a policy or from its own words.
//!
//! ```text
//!   --limit per-ip                                   a limit of the policy file
//!   --limit 100/1m --algorithm fixed-window                 a quota, and how it is counted
//!   --limit 'bucket = { size = 40, refill = "20/1s" }'    any fields of a [[limit]]
//! ```
//!
//! The policy's own parser reads the words, so any limit of a policy can be simulated.

use std::path::PathBuf;

use clap::Args;
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Nanos, Origin, Quota};
use ratekeeper_lab::compared;
use ratekeeper_policy::config::{self, Context};
use ratekeeper_policy::{Cost, Policy, Rule, WorstCase};
use serde_json::json;

use crate::source::{self, PolicySource};
use crate::{Failure, Output, Result, limits};

/// Maximum length of a limit in words.
const MAX_WORDS: usize = 1_000;
/// Name of a limit in words.
const NAME: &str = "inline";

/// A limit to be simulated.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Name in the policy, or of the algorithm.
    pub(crate) name: String,
    /// The limit in the policy's words.
    pub(crate) text: String,
    pub(crate) algorithm: AnyAlgorithm,
    /// Span of its worst case.
    pub(crate) window: Nanos,
    pub(crate) cost: Cost,
    /// Quota of the limit, where that is one number per span.
    pub(crate) quota: Option<Quota>,
    /// The time zone of calendar words.
    pub(crate) zone: String,
}

/// Arguments that define the limit.
#[derive(Args)]
pub(crate) struct LimitSource {
    /// The policy file with the limit that --limit names [default: ./ratekeeper.toml]
    policy: Option<PathBuf>,
    /// A limit of the policy, a quota such as 100/1m, or fields of a [[limit]]
    #[arg(long, value_name = "NAME|QUOTA|FIELDS")]
    limit: String,
    /// Algorithm of a quota, as in the policy: fixed-window, quota-reset .. [default: token-bucket]
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
}

impl LimitSource {
    /// Returns the limit.
    ///
    /// # Errors
    /// Returns an error if it is in no policy, or if its words are invalid.
    pub(crate) fn subject(&self, origin: Origin, output: &mut Output) -> Result<Subject> {
        if is_words(&self.limit) {
            if let Some(path) = &self.policy {
                let message = format!("`{}` is a limit, not a name in the policy", self.limit);
                let hint = format!("leave `{}` out, or name one of its limits", path.display());
                return Err(Failure::new(message).hint(hint));
            }
            return in_words(&self.limit, self.algorithm.as_deref(), origin, "UTC");
        }
        if self.algorithm.is_some() {
            let message = format!(
                "`{}` is a limit of the policy, which sets its algorithm",
                self.limit
            );
            return Err(Failure::new(message).hint(
                "use --algorithm with a quota, for example --limit 100/1m --algorithm fixed-window",
            ));
        }
        let path = source::path_or_default(self.policy.clone())?;
        let policy = PolicySource::read(&path)?.policy(origin, output)?;
        let rule = limits::named(&policy, &self.limit)?;
        limits::played_always(rule, output);
        Ok(Subject::of(rule, &policy))
    }
}

impl Subject {
    fn of(rule: &Rule, policy: &Policy) -> Self {
        let by_window = |window| Quota::new(rule.quota, window).ok();
        let quota = rule.keeps_to.or_else(|| rule.window.and_then(by_window));
        let zone = policy.settings.timezone.as_deref();
        Self {
            name: rule.limit.name.to_string(),
            text: rule.text.clone(),
            algorithm: rule.limit.algorithm.clone(),
            window: WorstCase::of(rule).span_ms.0,
            cost: rule.cost.clone(),
            quota,
            zone: zone.unwrap_or("UTC").to_owned(),
        }
    }

    /// Returns every algorithm at the quota of this limit. Algorithms that cannot count it are left
    /// out, with a reason on `output`.
    ///
    /// # Errors
    /// Returns an error if it has no quota.
    pub(crate) fn compared(&self, origin: Origin, output: &mut Output) -> Result<Vec<Self>> {
        let Some(quota) = self.quota else {
            let message = format!(
                "`{}` has no period that every algorithm can count",
                self.text
            );
            return Err(Failure::new(message)
                .hint("compare at a rolling quota, for example --limit 100/1d"));
        };
        let mut subjects = Vec::with_capacity(compared::ALL.len());
        for compared in compared::ALL {
            match (compared.build)(quota, origin) {
                Ok(algorithm) => subjects.push(Self {
                    name: compared.name.into(),
                    text: quota.to_string(),
                    algorithm,
                    window: quota.per(),
                    cost: self.cost.clone(),
                    quota: Some(quota),
                    zone: self.zone.clone(),
                }),
                Err(why) => output.talk(format!("{} is left out: {why}", compared.name)),
            }
        }
        Ok(subjects)
    }
}

/// Returns true for a limit in words: names contain neither `/`, `=` nor a space.
fn is_words(text: &str) -> bool {
    text.contains(['/', '=', ' '])
}

/// Reads a limit in the policy's words.
///
/// # Errors
/// Returns the first finding.
pub(crate) fn in_words(
    words: &str,
    algorithm: Option<&str>,
    origin: Origin,
    zone: &str,
) -> Result<Subject> {
    let document = document(words, algorithm, zone)?;
    let not_one = || Failure::new(format!("`{words}` is not one limit"));
    let loaded = config::parse(&document, Context::from(origin)).map_err(|findings| {
        let Some(first) = findings.into_iter().next() else {
            return not_one();
        };
        let label = Some(first.label).filter(|label| !label.is_empty());
        Failure {
            hint: first.help.or(label),
            ..Failure::new(format!("`{words}`: {}", first.message))
        }
    })?;
    let rule = loaded.policy.rule(NAME).ok_or_else(not_one)?;
    if rule.active.is_some() {
        return Err(
            Failure::new(format!("`{words}`: `active` is not simulated"))
                .hint("leave `active` out: a simulation plays the limit at all times"),
        );
    }
    if loaded.policy.rules.len() != 1 {
        return Err(not_one());
    }
    Ok(Subject {
        name: rule.limit.algorithm.name().into(),
        ..Subject::of(rule, &loaded.policy)
    })
}

/// Returns the text of a policy with this one limit.
fn document(words: &str, algorithm: Option<&str>, zone: &str) -> Result<String> {
    let texts = [words, algorithm.unwrap_or_default()];
    if texts.iter().any(|text| text.len() > MAX_WORDS) {
        return Err(Failure::new(format!(
            "the text of a limit must be at most {MAX_WORDS} bytes"
        )));
    }
    if texts.concat().contains(char::is_control) {
        return Err(Failure::new(
            "the text of a limit must be one line of printable characters",
        ));
    }
    // A string of JSON is one of TOML, too.
    let fields = if words.contains('=') {
        words.to_owned()
    } else {
        format!("limit = {}", json!(words))
    };
    let algorithm = match algorithm {
        Some(table) if table.starts_with('{') => format!(", algorithm = {table}"),
        Some(word) => format!(", algorithm = {}", json!(word)),
        None => String::new(),
    };
    Ok(format!(
        "version = 1\ntimezone = \"{zone}\"\nlimit = [{{ name = \"{NAME}\", key = [\"all\"], {fields}{algorithm} }}]\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &str, algorithm: Option<&str>) -> Result<(String, String), String> {
        match in_words(words, algorithm, source::BEGINNING, "UTC") {
            Ok(subject) => Ok((subject.name, subject.text)),
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn every_form_of_a_limit_is_a_subject() {
        let rows = [
            ("100/1m", None, "token bucket", "100/1m"),
            ("100/1m", Some("fixed-window"), "fixed window", "100/1m"),
            ("100/day", None, "calendar window", "100/day"),
            (
                "100/1m",
                Some("{ name = \"sub-buckets\", count = 10 }"),
                "sub-buckets",
                "100/1m",
            ),
            (
                "bucket = { size = 40, refill = \"20/1s\" }",
                None,
                "token bucket",
                "bucket of 40, 20/1s",
            ),
            (
                "limit = \"5/1h\", algorithm = \"fixed-window\", count_denied = true",
                None,
                "fixed window",
                "5/1h",
            ),
            ("spacing = \"200ms\"", None, "leaky bucket", "1 every 200ms"),
        ];
        for (words, algorithm, name, shown) in rows {
            let expected = Ok((name.to_owned(), shown.to_owned()));
            assert_eq!(text(words, algorithm), expected, "{words}");
        }
    }

    #[test]
    fn text_that_is_not_one_limit_is_refused() {
        for words in [
            "5/minute",
            "0/1s",
            "5/1s\" }, { name = \"b",
            "limit = \"5/1s\" }, { name = \"b\", key = [\"all\"], limit = \"6/1s\"",
            "limit = \"5/1s\" }]\n[headers]",
            "limit = \"5/1s\", name = \"other\"",
            "=",
            "limit = \"5/1s\", active = { hours = \"01:00-06:00\" }",
        ] {
            assert!(text(words, None).is_err(), "{words}");
        }
        assert!(text("5/1s", Some("nonsense")).is_err());
        assert!(text(&"9".repeat(2_000), None).is_err());
    }
}
