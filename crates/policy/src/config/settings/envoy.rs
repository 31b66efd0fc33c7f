//! `[envoy]`: the configuration files of the Go service, and how the gRPC listener answers.

use ratekeeper_core::Outage;
use toml::de::DeTable;

use super::header_name;
use crate::config::diagnostic::Findings;
use crate::config::read;
use crate::{EnvoyBody, EnvoyDoor, EnvoyFiles, EnvoyHeaderNames, EnvoyHeaders, Tls, envoy};

/// Reads the configuration files of `[envoy]`.
pub(super) fn envoy_files(envoy: &DeTable<'_>) -> EnvoyFiles {
    let flag = |name| read::flag(envoy, name).unwrap_or_default();
    EnvoyFiles {
        config: read::text(envoy, "config").map(|path| path.value.into()),
        settings: envoy::EnvoySettings {
            merge_domains: flag("merge_domains"),
            stop_increment: flag("stop_increment"),
            shadow_mode: flag("shadow_mode"),
            quota_mode: flag("quota_mode"),
            dynamic_metadata: flag("dynamic_metadata"),
            outage: match read::text(envoy, "on_store_error").map(|word| word.value) {
                Some("allow") => Outage::Allow,
                Some("deny") => Outage::Deny,
                Some("error") => Outage::Error,
                _ => Outage::Local,
            },
        },
    }
}

/// Reads the listener settings of `[envoy]`.
pub(super) fn envoy_door(envoy: &DeTable<'_>, out: &mut Findings<'_>) -> EnvoyDoor {
    let word = |name| read::text(envoy, name).map(|word| word.value);
    let tls = read::table(envoy, "tls").and_then(|tls| {
        let path = |name| read::text(tls.value, name).map(|path| path.value.into());
        Some(Tls {
            certificate: path("certificate")?,
            key: path("key")?,
            client_ca: path("client_ca"),
        })
    });
    EnvoyDoor {
        headers: match word("headers") {
            Some("ietf") => EnvoyHeaders::Ietf,
            Some("draft-03") => EnvoyHeaders::Draft03,
            _ => EnvoyHeaders::Off,
        },
        header_names: header_names(envoy, out),
        body: match word("body") {
            Some("limit") => EnvoyBody::Limit,
            _ => EnvoyBody::Off,
        },
        metadata: read::flag(envoy, "metadata").unwrap_or_default(),
        tls,
    }
}

/// `[envoy.header_names]`
fn header_names(envoy: &DeTable<'_>, out: &mut Findings<'_>) -> EnvoyHeaderNames {
    let mut names = EnvoyHeaderNames::default();
    let Some(table) = read::table(envoy, "header_names") else {
        return names;
    };
    for (field, name) in [
        ("limit", &mut names.limit),
        ("remaining", &mut names.remaining),
        ("reset", &mut names.reset),
    ] {
        let written = read::text(table.value, field);
        if let Some(written) = written.and_then(|text| header_name(&text, out)) {
            *name = written;
        }
    }
    names
}
