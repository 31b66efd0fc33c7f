//! Plan: the plan of a request, which selects among the numbers of a limit.
//!
//! ```text
//!   attr:plan = "pro"       pro, if a limit has numbers for it
//!   attr:plan = "gold"      the default: no limit names such a plan
//!   no attribute            the default
//! ```

use std::collections::HashMap;

use foldhash::fast::RandomState;
use ratekeeper_core::Key;

use crate::model::keys::key_part::PartValue;
use crate::model::keys::stated::StatedPlace;
use crate::model::keys::variants::KeyAsk;
use crate::{KeyBytes, KeyPart};

/// `[plan]`: where plans come from, and the plans that limits name.
#[derive(Clone, Debug)]
pub struct Plans {
    pub(crate) from: PlanSource,
    /// The default first.
    pub(crate) names: Vec<Box<str>>,
}

/// Where the plan of a request comes from.
#[derive(Clone, Debug)]
pub(crate) enum PlanSource {
    /// `attr:NAME`
    Attribute(String),
    /// `header:NAME`
    Header(String),
    /// `jwt:NAME`
    Claim(String),
    /// A table in the policy: the plan of each value of a key part, by index.
    Keys {
        part: KeyPart,
        plans: HashMap<Box<[u8]>, usize, RandomState>,
    },
}

impl Plans {
    /// Returns the name of the header field that states plans, if one does.
    pub(crate) fn header_name(&self) -> Option<&str> {
        match &self.from {
            PlanSource::Header(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the index of the request's plan; that of the default if it has none, two, or one that
    /// no limit names.
    pub(crate) fn of(&self, ask: &KeyAsk<'_, '_>) -> usize {
        let named = |name: &[u8]| self.names.iter().position(|known| known.as_bytes() == name);
        let of_text = |plan: &str| named(plan.as_bytes());
        let index = match &self.from {
            PlanSource::Attribute(name) => ask.request.attribute(name).and_then(of_text),
            PlanSource::Claim(name) => ask.request.claim(name).and_then(of_text),
            PlanSource::Header(name) => {
                let (mut plan, mut is_one) = (None, true);
                StatedPlace::Header(name).each(ask.request.facts, |value| {
                    let stated = named(value.strict);
                    is_one &= plan.is_none_or(|plan| plan == stated);
                    plan = Some(stated);
                });
                plan.flatten().filter(|_| is_one)
            }
            PlanSource::Keys { part, plans } => {
                // Copied from the key if it has the part, because some values are hashed.
                let counted = ask.parts.iter().position(|counted| counted == part);
                if let Some(value) = counted.and_then(|at| ask.key.parts().nth(at)) {
                    return plans.get(value).copied().unwrap_or_default();
                }
                let mut key = KeyBytes::default();
                let written = part.write(ask.request, ask.around, &mut key);
                let value = Key::from_bytes(&key).parts().next();
                let value = value.filter(|_| written == PartValue::Written);
                value.and_then(|value| plans.get(value).copied())
            }
        };
        index.unwrap_or_default()
    }

    /// Returns the plan's name.
    pub(crate) fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", |name| name)
    }

    /// Returns the plan of requests without one.
    pub fn default_plan(&self) -> &str {
        self.name(0)
    }
}
