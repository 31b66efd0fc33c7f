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

/// The rule or limit that applies to a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Applies<'c> {
    Nothing,
    Unlimited(&'c EnvoyRule),
    Limit {
        current: CurrentLimit<'c>,
        /// `None` if the limit comes with the call.
        rule: Option<&'c EnvoyRule>,
    },
}

impl<'c> Applies<'c> {
    /// Returns the rule or limit that applies to a descriptor of a known domain.
    pub(super) fn find(domain: &'c Domain, descriptor: &EnvoyDescriptor<'_>) -> Self {
        if let Some(limit) = descriptor.limit {
            let current = CurrentLimit {
                name: None,
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit,
                multiplier: limit.multiplier.max(1),
            };
            return Self::Limit {
                current,
                rule: None,
            };
        }
        let Some(rule) = domain.top.find(descriptor) else {
            return Self::Nothing;
        };
        match rule.limit {
            EnvoyRateLimit::Unlimited => Self::Unlimited(rule),
            EnvoyRateLimit::PerUnit {
                requests_per_unit,
                unit,
            } => Self::Limit {
                current: CurrentLimit {
                    name: rule.name.as_deref(),
                    requests_per_unit,
                    unit,
                    multiplier: 1,
                },
                rule: Some(rule),
            },
        }
    }

    pub(super) fn rule(&self) -> Option<&'c EnvoyRule> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) => Some(rule),
            Self::Limit { rule, .. } => *rule,
        }
    }

    /// Returns true if the descriptor votes as a quota. An unlimited rule has no vote: the Go
    /// service leaves it out of both counts. Under the global quota mode, a descriptor without a
    /// rule is a quota that is never over.
    pub(super) fn is_quota(&self, settings: EnvoySettings) -> bool {
        match self {
            Self::Nothing => settings.quota_mode,
            Self::Unlimited(_) => false,
            Self::Limit { rule, .. } => settings.quota_mode || rule.is_some_and(|rule| rule.quota),
        }
    }

    /// Returns the series that counts its hits.
    pub(super) fn series(
        &self,
        domain: &str,
        descriptor: &EnvoyDescriptor<'_>,
    ) -> Option<CounterSeries> {
        let rule = match self {
            Self::Nothing => return None,
            // The limit came with the call, so no rule asked for values in a metric.
            Self::Limit { rule: None, .. } => {
                let keys = descriptor.entries.iter().map(|(key, _)| *key);
                let names: Vec<&str> = [domain].into_iter().chain(keys).collect();
                return Some(CounterSeries::Named(names.join(".")));
            }
            Self::Unlimited(rule)
            | Self::Limit {
                rule: Some(rule), ..
            } => rule,
        };
        if rule.series.is_empty() {
            return Some(CounterSeries::Rule(rule.id));
        }
        let mut name = domain.to_owned();
        for (level, (key, value)) in descriptor.entries.iter().enumerate() {
            name.push('.');
            if let Some(LevelName::Fixed(written) | LevelName::Written(written)) =
                rule.series.get(level)
            {
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
