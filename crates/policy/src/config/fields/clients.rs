//! Fields about clients: their addresses, countries, networks and tokens.

use super::{MAX_ALGORITHMS, MAX_VALUES};
use crate::config::document::shape::{List, TEXT, Whole, fields, pattern};

fields! {
    pub(super) CLIENT_IP = "`[client_ip]`" {
        optional trusted_proxies: List(MAX_VALUES), "[\"10.0.0.0/8\", \"fd00::/8\"]",
            "Proxies with a trusted forwarding header; they are compared one by one, so name \
             blocks of many. \"unix:\" trusts the callers of a Unix socket, and a hop of that name.";
        optional header: TEXT, "\"x-forwarded-for\"",
            "Forwarding header; the client is its rightmost address that is not a trusted proxy.";
        optional trusted_headers: List(MAX_VALUES), "[\"x-plan\"]",
            "Headers that the trusted proxies set or remove in each request; what other headers \
             decide is warned of (RK0314). Let only these proxies reach the listener, because the \
             service reads the headers of every peer.";
        optional ipv6_prefix: Whole(1, 128), "64",
            "Bits of an IPv6 address that identify one client.";
    }

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

    pub(super) JWT = "`[jwt]`" {
        required keys: pattern("^file:.+$"), "\"file:jwks.json\"",
            "File with the keys: a JWK set, a public key in PEM, or a shared secret; read again \
             when it changes.";
        required algorithms: List(MAX_ALGORITHMS), "[\"ES256\"]",
            "Algorithms of valid signatures: RS256, RS384, RS512, PS256, PS384, PS512, ES256, \
             ES384, EdDSA, or HS256, HS384, HS512 with a shared secret.";
        optional issuer: TEXT, "\"https://issuer.example\"",
            "Value of `iss` that a token must have (default: any).";
        optional audience: TEXT, "\"api\"",
            "Value that `aud` of a token must be or contain (default: any).";
        optional header: TEXT, "\"x-token\"",
            "Header with the token (default authorization, behind Bearer).";
    }
}
