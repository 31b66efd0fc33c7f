//! Descriptor: the part of a check that replaces a request.
//!
//! A list of entries, as the JSON of Envoy's service has it: keys may come twice, and their
//! order counts then.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Blame, Fields, Object};
use crate::doors::values::{BodyText, Pairs, TextAt, expecting_as_shown, optional};

/// Maximum number of entries; a descriptor with more has no limit of its own.
const MAX_ENTRIES: usize = 64;

/// `{"domain": .., "entries": [{"key": .., "value": ..}]}`
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::doors) struct DescriptorField<'a> {
    pub(in crate::doors) domain: BodyText<'a>,
    pub(in crate::doors) entries: Pairs<'a>,
}

impl<'a> Fields<'a> for DescriptorField<'a> {
    const PLACE: &'static str = "`descriptor`";
    const NAMES: &'static [&'static str] = &["domain", "entries"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        blame: &Blame,
    ) -> Result<(), M::Error> {
        if name == "domain" {
            self.domain = optional(map, TextAt("descriptor.domain"))?.unwrap_or_default();
            return Ok(());
        }
        let into = &mut self.entries;
        map.next_value_seed(Entries { into, blame })
    }
}

/// One of `entries`.
#[derive(Default)]
struct DescriptorEntry<'a> {
    key: BodyText<'a>,
    value: BodyText<'a>,
}

impl<'a> Fields<'a> for DescriptorEntry<'a> {
    const PLACE: &'static str = "an entry of `descriptor`";
    const NAMES: &'static [&'static str] = &["key", "value"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        _blame: &Blame,
    ) -> Result<(), M::Error> {
        let place = if name == "key" {
            &mut self.key
        } else {
            &mut self.value
        };
        *place = map.next_value_seed(TextAt("descriptor.entries"))?;
        Ok(())
    }
}

/// Reads `entries` to their place.
struct Entries<'p, 'b, 'a> {
    into: &'p mut Pairs<'a>,
    blame: &'b Blame,
}

impl fmt::Display for Entries<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a list of at most {MAX_ENTRIES} entries for `descriptor.entries`"
        )
    }
}

impl<'a> DeserializeSeed<'a> for Entries<'_, '_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Entries<'_, '_, 'a> {
    type Value = ();
    expecting_as_shown!();

    fn visit_seq<L: SeqAccess<'a>>(self, mut list: L) -> Result<(), L::Error> {
        let blame = self.blame;
        loop {
            let mut entry = DescriptorEntry::default();
            let fields = &mut entry;
            if list.next_element_seed(Object { fields, blame })?.is_none() {
                return Ok(());
            }
            if entry.key.is_empty() {
                return Err(de::Error::custom("an entry of `descriptor` has no `key`"));
            }
            if self.into.len() == MAX_ENTRIES {
                return Err(de::Error::invalid_length(self.into.len() + 1, &self));
            }
            self.into.push((entry.key, entry.value));
        }
    }
}
