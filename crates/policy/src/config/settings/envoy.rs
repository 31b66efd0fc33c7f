//! `[envoy]`: the configuration files of the Go service, and how the gRPC listener answers.

use super::tls;
use crate::config::limit::scope::outage;
use crate::config::{Table, header_name};
use crate::{EnvoyDoor, EnvoyFiles, EnvoyHeaderNames, envoy};

/// Reads the configuration files of `[envoy]`.
pub(super) fn envoy_files(envoy: Table<'_>) -> EnvoyFiles {
    let flag = |name| envoy.flag(name).unwrap_or_default();
    EnvoyFiles {
        config: envoy.owned("config"),
        settings: envoy::EnvoySettings {
            merge_domains: flag("merge_domains"),
            stop_increment: flag("stop_increment"),
            shadow_mode: flag("shadow_mode"),
            quota_mode: flag("quota_mode"),
            dynamic_metadata: flag("dynamic_metadata"),
            outage: outage(envoy).unwrap_or_default(),
        },
    }
}

/// Reads the listener settings of `[envoy]`.
pub(super) fn envoy_door(envoy: Table<'_>) -> EnvoyDoor {
    EnvoyDoor {
        headers: envoy.word("headers").unwrap_or_default(),
        header_names: header_names(envoy),
        body: envoy.word("body").unwrap_or_default(),
        metadata: envoy.flag("metadata").unwrap_or_default(),
        tls: envoy.table("tls").and_then(tls),
    }
}

/// `[envoy.header_names]`
fn header_names(envoy: Table<'_>) -> EnvoyHeaderNames {
    let names = EnvoyHeaderNames::default();
    let Some(table) = envoy.table("header_names") else {
        return names;
    };
    let read = |field| header_name(&table.text(field)?);
    EnvoyHeaderNames {
        limit: read("limit").unwrap_or(names.limit),
        remaining: read("remaining").unwrap_or(names.remaining),
        reset: read("reset").unwrap_or(names.reset),
    }
}
