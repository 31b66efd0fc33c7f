//! Fields of `[geo]`: where the country and the network of a client come from.

use super::optional;
use crate::config::shape::{Shape, TableSpec};

pub(super) static GEO: TableSpec = TableSpec {
    what: "`[geo]`",
    fields: &[
        optional(
            "country_db",
            Shape::TEXT,
            "\"GeoLite2-Country.mmdb\"",
            "Database of countries in MaxMind's format, beside the policy.",
        ),
        optional(
            "asn_db",
            Shape::TEXT,
            "\"GeoLite2-ASN.mmdb\"",
            "Database of networks in MaxMind's format, beside the policy.",
        ),
        optional(
            "header",
            Shape::TEXT,
            "\"cf-ipcountry\"",
            "Header in which a trusted proxy states the country, in place of country_db.",
        ),
        optional(
            "unknown",
            Shape::TEXT,
            "\"ZZ\"",
            "Country of an address that the source does not know (default: ZZ).",
        ),
    ],
    ..TableSpec::EMPTY
};
