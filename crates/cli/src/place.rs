//! Place: the country and the network of a request, and where they come from.

use std::fmt;

use ratekeeper_policy::{Asn, Country, Facts, Geo, Policy};
use serde_json::{Value, json};

use crate::request::CliRequest;
use crate::words;

/// The place of a request, by `[geo]`.
pub(crate) struct Place {
    country: Country,
    network: Asn,
}

impl Place {
    /// Returns the place of a request; `None` for a descriptor, and without `[geo]`.
    pub(crate) fn of(policy: &Policy, request: &CliRequest) -> Option<Self> {
        request.with_facts(|facts| {
            let facts = located(policy, facts);
            policy.geo.as_ref().filter(|_| facts.descriptor.is_none())?;
            Some(Self {
                country: facts.country?,
                network: facts.network?,
            })
        })
    }
}

/// `country NO, continent EU, network AS3320`
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { country, network } = self;
        let continent = country.continent();
        write!(
            f,
            "country {country}, continent {continent}, network {network}"
        )
    }
}

/// Returns the facts with their country and network: by the header of `[geo]`, as if a trusted
/// proxy had sent it, or by the databases.
pub(crate) fn located<'a>(policy: &Policy, facts: &Facts<'a>) -> Facts<'a> {
    let geo = policy.geo.as_ref();
    policy.located(&Facts {
        country: geo.and_then(|geo| geo.stated(facts.headers)),
        ..*facts
    })
}

/// Returns where the country and the network of a request come from, and what they are if nothing
/// is known: `country by c.mmdb, made on 2026-11-01; ZZ if it does not have the address`.
pub(crate) fn sources(geo: &Geo) -> Vec<String> {
    let unknown = geo.unknown();
    let header = geo.header().map(|header| {
        format!(
            "country by the header {header} of trusted proxies; {unknown} without it, or if it holds \
             no country"
        )
    });
    let files = geo.files().map(|file| {
        let (what, unknown) = match file.field {
            "asn_db" => ("network", Asn::UNKNOWN.to_string()),
            _ => ("country", unknown.to_string()),
        };
        let made = words::day(file.built_unix_seconds);
        format!(
            "{what} by {}, made on {made}; {unknown} if it does not have the address",
            file.name
        )
    });
    header.into_iter().chain(files).collect()
}

/// Returns the same for programs, with the place of a request.
pub(crate) fn document(geo: &Geo, place: Option<Place>) -> Value {
    let files = geo.files().map(|file| {
        let made = words::day(file.built_unix_seconds);
        json!({ "field": file.field, "name": file.name, "made_on": made })
    });
    json!({
        "files": files.collect::<Vec<_>>(),
        "header": geo.header(),
        "unknown": geo.unknown().code(),
        "request": place.map(|place| json!({
            "country": place.country.code(),
            "continent": place.country.continent(),
            "network": place.network.to_string(),
        })),
    })
}
