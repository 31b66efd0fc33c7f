//! Fields of `[geo]`: where the country and the network of a client come from.

use crate::config::document::shape::{TEXT, fields};

fields! {
    pub(super) GEO = "`[geo]`" {
        optional country_db: TEXT, "\"GeoLite2-Country.mmdb\"",
            "Database of countries in MaxMind's format, beside the policy.";
        optional asn_db: TEXT, "\"GeoLite2-ASN.mmdb\"",
            "Database of networks in MaxMind's format, beside the policy.";
        optional header: TEXT, "\"cf-ipcountry\"",
            "Header in which a trusted proxy states the country, in place of country_db.";
        optional unknown: TEXT, "\"ZZ\"",
            "Country of an address that the source does not know (default: ZZ).";
    }
}
