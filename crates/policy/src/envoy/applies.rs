//! Applies: the limit that a descriptor of a call meets, and the series that counts its hits.
//!
//! ```text
//!   descriptor --override? rule?--> nothing | unlimited | a limit --> a counter
//!                                                 |
//!                                                 +--> the series of its hits
//! ```

use super::answer::{CounterSeries, CurrentLimit};
use super::call::EnvoyDescriptor;
use super::rule::{EnvoyRateLimit, EnvoyRule, LevelName};
use super::unit::WindowSpan;
use super::{Domain, EnvoySettings};

/// The rule and the limit that apply to a descriptor; neither if nothing applies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Applies<'c> {
    /// `None` if the limit comes with the call.
    pub(super) rule: Option<&'c EnvoyRule>,
    /// `None` if the rule is unlimited.
    pub(super) limit: Option<CurrentLimit<'c>>,
}

impl<'c> Applies<'c> {
    /// Returns the rule and the limit of a descriptor of a known domain.
    pub(super) fn find(domain: &'c Domain, descriptor: &EnvoyDescriptor<'_>) -> Self {
        if let Some(limit) = descriptor.limit {
            let limit = CurrentLimit {
                name: None,
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit,
                multiplier: limit.multiplier.max(1),
            };
            return Self {
                rule: None,
                limit: Some(limit),
            };
        }
        let rule = domain.top.find(descriptor);
        let limit = rule.and_then(|rule| match rule.limit {
            EnvoyRateLimit::Unlimited => None,
            EnvoyRateLimit::PerUnit {
                requests_per_unit,
                unit,
            } => Some(CurrentLimit {
                name: rule.name.as_deref(),
                requests_per_unit,
                unit,
                multiplier: 1,
            }),
        });
        Self { rule, limit }
    }

    /// Returns true if the descriptor votes as a quota. An unlimited rule has no vote: the Go
    /// service leaves it out of both counts. Under the global quota mode, a descriptor without a
    /// rule is a quota that is never over.
    pub(super) fn is_quota(&self, settings: EnvoySettings) -> bool {
        match (self.rule, self.limit) {
            (Some(_), None) => false,
            (rule, _) => settings.quota_mode || rule.is_some_and(|rule| rule.quota),
        }
    }

    /// Returns the series that counts its hits.
    pub(super) fn series(
        &self,
        domain: &str,
        descriptor: &EnvoyDescriptor<'_>,
    ) -> Option<CounterSeries> {
        let Some(rule) = self.rule else {
            self.limit?;
            // The limit came with the call, so no rule asked for values in a metric.
            let keys = descriptor.entries.iter().map(|(key, _)| *key);
            let names: Vec<&str> = [domain].into_iter().chain(keys).collect();
            return Some(CounterSeries::Named(names.join(".")));
        };
        if !rule.levels.contains(&LevelName::Requested) {
            return Some(CounterSeries::Rule(rule.id));
        }
        let mut name = domain.to_owned();
        for (level, (key, value)) in descriptor.entries.iter().enumerate() {
            name.push('.');
            if let Some(written) = rule.levels.get(level).and_then(LevelName::written) {
                name.push_str(written);
                continue;
            }
            name.push_str(key);
            if !value.is_empty() {
                name.push('_');
                name.push_str(value);
            }
        }
        Some(CounterSeries::Named(name))
    }
}

impl CurrentLimit<'_> {
    pub(super) const fn span(&self) -> WindowSpan {
        WindowSpan {
            unit: self.unit,
            multiplier: self.multiplier,
        }
    }
}
