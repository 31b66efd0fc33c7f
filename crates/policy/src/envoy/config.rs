//! Config: all domains, ready for calls.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;
use ratekeeper_core::{Limit, Origin};

use super::EnvoyRule;
use super::counters::{of_spans, of_units};
use super::tree::DescriptorLevel;
use crate::model::settings::envoy::EnvoySettings;

/// All domains of a configuration.
#[derive(Clone, Debug)]
pub struct EnvoyConfig {
    pub(super) settings: EnvoySettings,
    pub(super) origin: Origin,
    /// SHA-256 of the files, in hexadecimal.
    pub(super) sha: Arc<str>,
    pub(super) domains: HashMap<Box<str>, Domain, RandomState>,
    /// Counters of multiplied spans, by class.
    pub(super) spans: Box<[Limit]>,
    /// Rules of all domains, by number.
    pub(super) rules: Vec<Arc<EnvoyRule>>,
}

/// One domain.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) top: DescriptorLevel,
    /// Counters by unit.
    pub(super) units: Box<[Limit]>,
}

impl Domain {
    pub(super) fn new(name: &str, origin: Origin) -> Self {
        Self {
            top: DescriptorLevel::default(),
            units: of_units(name, origin),
        }
    }
}

impl EnvoyConfig {
    /// Creates it without domains: every call passes. `origin` is where the clock's zero lies.
    pub fn new(settings: EnvoySettings, origin: Origin) -> Self {
        Self {
            settings,
            origin,
            sha: Arc::default(),
            domains: HashMap::default(),
            spans: of_spans(),
            rules: Vec::new(),
        }
    }

    /// Moves it to a clock with another zero: windows begin at the same moments in real time.
    pub fn set_origin(&mut self, origin: Origin) {
        let from = std::mem::replace(&mut self.origin, origin);
        if from == origin {
            return;
        }
        for limit in self.limits_mut() {
            limit.algorithm = limit.algorithm.on_clock(from, origin);
        }
    }

    /// Returns the settings of all rules.
    pub const fn settings(&self) -> EnvoySettings {
        self.settings
    }

    /// Returns the SHA-256 of the files it was loaded from, in their order, in hexadecimal.
    pub const fn sha(&self) -> &Arc<str> {
        &self.sha
    }

    /// Returns the number of domains.
    pub fn domain_count(&self) -> usize {
        self.domains.len()
    }

    /// Returns true if this domain is configured.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Returns all rules, by number.
    pub fn rules(&self) -> Vec<&EnvoyRule> {
        self.rules.iter().map(|rule| &**rule).collect()
    }

    /// Returns the counters, so that the store's ids can be set: each name is the identity of its
    /// states across reloads.
    pub fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        let domains = self.domains.values_mut();
        let units = domains.flat_map(|domain| &mut domain.units);
        units.chain(&mut self.spans)
    }
}
