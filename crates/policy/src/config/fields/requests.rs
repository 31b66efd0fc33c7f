//! Fields that select requests: `match`, and `[[exempt]]`.

use super::{MAX_EXEMPT_LIMITS, MAX_MATCH_VALUES, MAX_NAMES};
use crate::config::document::shape::{List, Named, Numbers, TEXT, Table, Texts, fields};

fields! {
    pub(in crate::config) MATCH = "`match`" {
        optional method: Texts(MAX_MATCH_VALUES), "\"POST\"", "Request method.";
        optional host: Texts(MAX_MATCH_VALUES), "\"api.example.com\"", "Host, without port.";
        optional path: Texts(MAX_MATCH_VALUES), "\"/users/{id}\"",
            "Path: * is one segment, ** any number, {name} one segment with a name.";
        optional query: Named(MAX_NAMES), "{ page = \"1\" }", "Parameters of the query string.";
        optional header: Named(MAX_NAMES), "{ x-tier = \"free\" }", "Request headers.";
        optional cookie: Named(MAX_NAMES), "{ beta = \"yes\" }", "Cookies.";
        optional ip: Texts(MAX_MATCH_VALUES), "\"192.0.2.0/24\"", "Client addresses, as blocks.";
        optional country: Texts(MAX_MATCH_VALUES), "\"NO\"",
            "Countries of clients, by [geo]: two letters of ISO 3166-1, or ZZ for unknown.";
        optional continent: Texts(MAX_MATCH_VALUES), "\"EU\"",
            "Continents of clients, by [geo]: AF, AN, AS, EU, NA, OC, SA, or ZZ for unknown.";
        optional asn: Numbers(MAX_MATCH_VALUES), "\"AS3320\"",
            "Networks of clients, by [geo]: the numbers of their autonomous systems; AS0 for \
             unknown.";
        optional attr: Named(MAX_NAMES), "{ risky = \"true\" }",
            "Attributes that the application sends.";
        optional jwt: Named(MAX_NAMES), "{ plan = \"pro\" }", "Claims of the verified token.";
        optional domain: Texts(MAX_MATCH_VALUES), "\"edge\"", "Domain of a descriptor.";
        optional descriptor: Named(MAX_NAMES), "{ user = \"*\" }",
            "Entries of a descriptor: exactly these, and the entries of the key.";
    }

    pub(super) EXEMPT = "an exemption" {
        required limits: List(MAX_EXEMPT_LIMITS), "[\"*\"]",
            "Names of limits, with * for any characters.";
        required r#match: Table(&MATCH), "{ path = \"/health\" }", "Requests that are exempt.";
        optional reason: TEXT, "\"uptime probes\"", "Reason of the exemption, for the record.";
    }
}
