//! Fields that select requests and keys: `match`, `[[exempt]]`, `[plan]` and `[[override]]`.

use super::{
    MAX_AT_ONCE, MAX_EXEMPT_LIMITS, MAX_KEY_PARTS, MAX_MATCH_VALUES, MAX_NAMES, MAX_PLAN_KEYS,
    NAME, POLICY,
};
use crate::config::document::shape::{
    Either, List, Map, Moment, Numbers, Shape, TEXT, Table, Texts, Whole, fields, pattern,
};

/// `header.NAME` and the like, with one value or several.
const NAMED: Shape = Map(&Texts(MAX_MATCH_VALUES), MAX_NAMES);
/// Numbers of a plan or an override, in the form of the limit's own.
pub(super) const NUMBERS: Shape = Either(&[TEXT, Whole(1, MAX_AT_ONCE)]);

fields! {
    pub(crate) MATCH = "`match`" {
        optional method: Texts(MAX_MATCH_VALUES), "\"POST\"", "Request method.";
        optional host: Texts(MAX_MATCH_VALUES), "\"api.example.com\"", "Host, without port.";
        optional path: Texts(MAX_MATCH_VALUES), "\"/users/{id}\"",
            "Path: * is one segment, ** any number, {name} one segment with a name.";
        optional query: NAMED, "{ page = \"1\" }", "Parameters of the query string.";
        optional header: NAMED, "{ x-tier = \"free\" }", "Request headers.";
        optional cookie: NAMED, "{ beta = \"yes\" }", "Cookies.";
        optional ip: Texts(MAX_MATCH_VALUES), "\"192.0.2.0/24\"", "Client addresses, as blocks.";
        optional country: Texts(MAX_MATCH_VALUES), "\"NO\"",
            "Countries of clients, by [geo]: two letters of ISO 3166-1, or ZZ for unknown.";
        optional continent: Texts(MAX_MATCH_VALUES), "\"EU\"",
            "Continents of clients, by [geo]: AF, AN, AS, EU, NA, OC, SA, or ZZ for unknown.";
        optional asn: Numbers(MAX_MATCH_VALUES), "\"AS3320\"",
            "Networks of clients, by [geo]: the numbers of their autonomous systems; AS0 for \
             unknown.";
        optional attr: NAMED, "{ risky = \"true\" }",
            "Attributes that the application sends.";
        optional jwt: NAMED, "{ plan = \"pro\" }", "Claims of the verified token.";
        optional domain: Texts(MAX_MATCH_VALUES), "\"edge\"", "Domain of a descriptor.";
        optional descriptor: NAMED, "{ user = \"*\" }",
            "Entries of a descriptor: exactly these, and the entries of the key.";
    }

    pub(super) EXEMPT = "an exemption" {
        required limits: List(MAX_EXEMPT_LIMITS), "[\"*\"]",
            "Names of limits, with * for any characters.";
        required r#match: Table(&MATCH), "{ path = \"/health\" }", "Requests that are exempt.";
        optional reason: TEXT, "\"uptime probes\"", "Reason of the exemption, for the record.";
    }

    /// `[plan]`
    pub(super) PLAN = "`[plan]`" {
        required from: Either(&[TEXT, Map(&Map(&TEXT, MAX_PLAN_KEYS), 1)]),
            "\"attr:plan\"",
            "Source of the plan: an attribute, a claim, a header, or a table of keys and their \
             plans.";
        required default: pattern(NAME), "\"free\"",
            "Plan of requests without one, or with one that no limit names.";
    }

    /// A file of overrides in TOML.
    pub(crate) OVERRIDES = "a file of overrides" {
        shared POLICY { override };
    }

    /// `[[override]]`
    pub(super) OVERRIDE = "an override" {
        required limit: pattern(NAME), "\"named\"", "Name of the limit.";
        required key: Map(&TEXT, MAX_KEY_PARTS), "{ ip = \"192.0.2.7\" }",
            "Parts of the limit's key and their values; * matches any characters.";
        required set: NUMBERS, "\"20/1m\"",
            "Numbers in the form of the limit's own, \"unlimited\" or \"blocked\".";
        optional until: Moment, "\"2026-12-31T00:00:00Z\"", "End of the override, with an offset.";
        optional reason: TEXT, "\"contract 4711\"", "Reason, for the record.";
    }
}
