//! Event: a change that an operator should see, with or without logs.

use std::sync::Arc;

use derive_more::Display;
use strum::{AsRefStr, VariantNames};

use crate::{AlertChange, AlertNotice, Door, DoorAddress};

/// An event of the service as a whole. `Display` is one line for a terminal.
#[derive(Clone, Debug, Display)]
#[non_exhaustive]
pub enum Event {
    /// A door is open.
    #[display("listening {door} {address}")]
    Listening {
        /// The door.
        door: Door,
        /// The address, with the port taken.
        address: DoorAddress,
    },
    /// A notice that stops nothing: a door open to the network, a setting that
    /// waits for a restart, a lint of the policy.
    #[display("notice: {_0}")]
    Notice(String),
    /// A new policy is in force.
    #[display("policy reloaded: version {from} -> {to} (by {trigger})")]
    Reloaded {
        /// Why it was read.
        trigger: Trigger,
        /// Version before.
        from: u32,
        /// Version now.
        to: u32,
        /// SHA-256 of its text.
        sha: Arc<str>,
    },
    /// A new policy was refused; the old one stays in force.
    #[display("policy refused (by {trigger}), still running version {version}\n{report}")]
    ReloadRejected {
        /// Why it was read.
        trigger: Trigger,
        /// Version that stays.
        version: u32,
        /// Findings, rendered with the lines they point at.
        report: String,
    },
    /// A new configuration of Envoy's rate limit service is in force.
    #[display("envoy configuration reloaded: domains {domains}, rules {rules} (by {trigger})")]
    EnvoyReloaded {
        /// Why it was read.
        trigger: Trigger,
        /// How many domains it has.
        domains: usize,
        /// How many rules they have.
        rules: usize,
    },
    /// A new configuration of Envoy's rate limit service was refused; the old one stays.
    #[display("envoy configuration refused (by {trigger}), the old one stays\n{report}")]
    EnvoyRejected {
        /// Why it was read.
        trigger: Trigger,
        /// The errors, rendered.
        report: String,
    },
    /// The shared store does not answer: each limit does what its `on_store_error` says.
    #[display("store down, every limit follows its `on_store_error`: {error}")]
    StoreDown {
        /// The error.
        error: String,
    },
    /// The shared store answers again, and decides again.
    #[display("store back and in use again: {debited} permits debited")]
    StoreUp {
        /// Number of permits admitted without it that it has been charged.
        debited: u64,
    },
    /// A server of a cluster does not answer: limits do as their `on_store_error` says for the
    /// keys that it holds, and those of others are decided by the store.
    #[display(
        "store partly down, limits of the keys that {server} holds follow their `on_store_error`: {error}"
    )]
    StoreServerDown {
        /// Its address.
        server: String,
        /// The error.
        error: String,
    },
    /// The keys of a server that did not answer are decided by the store again: it is back, or
    /// others hold them now.
    #[display(
        "the store decides the keys of {server} again: it is back, or other servers hold them"
    )]
    StoreServerUp {
        /// Its address.
        server: String,
    },
    /// An address of an upstream fails, or does not pass its check, and is left out.
    #[display("upstream down{}: {address} is left out", of_route(route))]
    UpstreamDown {
        /// Name of the route; empty for `upstream` itself.
        route: Arc<str>,
        /// Its place in the list of its upstream, from 1.
        place: usize,
        /// The address.
        address: Arc<str>,
    },
    /// An address of an upstream responds, or passes its check, and is used.
    #[display("upstream up{}: {address} is used again", of_route(route))]
    UpstreamUp {
        /// Name of the route; empty for `upstream` itself.
        route: Arc<str>,
        /// Its place in the list of its upstream, from 1.
        place: usize,
        /// The address.
        address: Arc<str>,
    },
    /// A key of a limit with an `alert` has stayed above its level, or does no more.
    Alert(AlertNotice),
    /// The admin listener has changed the file of overrides.
    #[display(
        "override of limit {limit} {}",
        override_words(*act, key.as_deref(), set.as_deref(), *line)
    )]
    OverrideChanged {
        /// The change.
        act: OverrideAct,
        /// Name of the limit.
        limit: Arc<str>,
        /// The key as written; `None` unless `reveal_keys` of `[alerts]` is set.
        key: Option<Arc<str>>,
        /// The numbers; `None` if they were removed.
        set: Option<Arc<str>>,
        /// The line of the file, from 1; `None` if it was removed.
        line: Option<usize>,
    },
    /// No more connections are accepted; requests in flight are finished.
    #[display("stopping")]
    Stopping,
    /// The service has ended.
    #[display("stopped")]
    Stopped,
}

/// A change of the file of overrides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, AsRefStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum OverrideAct {
    /// An override was set, in place of an earlier one if there was one.
    Set,
    /// An override was removed.
    Removed,
}

/// Why the policy was read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display)]
#[display(rename_all = "lowercase")]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// `POST /v1/reload`.
    Request,
    /// The file changed.
    File,
    /// The wall clock was set.
    Clock,
}

impl Event {
    /// Target of the log lines about events, for filters.
    pub const TARGET: &'static str = module_path!();
}

/// Returns the words for a change of the file of overrides, after the name of the limit.
fn override_words(
    act: OverrideAct,
    key: Option<&str>,
    set: Option<&str>,
    line: Option<usize>,
) -> String {
    let mut words = act.as_ref().to_owned();
    if let Some(key) = key {
        words = format!("{words}, key {}", key.escape_debug());
    }
    match (set, line) {
        (Some(set), Some(line)) => format!("{words}: {set} (line {line})"),
        _ => words,
    }
}

/// Returns the words of a route; empty for `upstream` itself.
fn of_route(route: &str) -> String {
    if route.is_empty() {
        return String::new();
    }
    format!(" (route {route})")
}

/// Receives events; called from the service's threads, so it should be quick.
#[derive(Clone, derive_more::Debug)]
#[debug("Sink")]
pub(crate) struct Sink(pub(crate) Arc<dyn Fn(&Event) + Send + Sync>);

impl Default for Sink {
    /// Drops the events.
    fn default() -> Self {
        Self(Arc::new(|_| ()))
    }
}

impl Sink {
    pub(crate) fn notice(&self, text: String) {
        self.emit(&Event::Notice(text));
    }

    pub(crate) fn notices(&self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.notice(text));
    }

    pub(crate) fn emit(&self, event: &Event) {
        match event {
            Event::Listening { door, address } => {
                tracing::info!(event = "listening", listener = %door, %address);
            }
            Event::Notice(text) => tracing::warn!(event = "notice", "{text}"),
            Event::Reloaded {
                trigger,
                from,
                to,
                sha,
            } => {
                tracing::info!(event = "config.reload", result = "applied", %trigger, from, to, %sha);
            }
            Event::ReloadRejected {
                trigger,
                version,
                report,
            } => {
                tracing::error!(event = "config.reload", result = "rejected", %trigger, version, "{report}");
            }
            Event::EnvoyReloaded {
                trigger,
                domains,
                rules,
            } => {
                tracing::info!(event = "envoy.reload", result = "applied", %trigger, domains, rules);
            }
            Event::EnvoyRejected { trigger, report } => {
                tracing::error!(event = "envoy.reload", result = "rejected", %trigger, "{report}");
            }
            Event::StoreDown { error } => {
                tracing::error!(event = "store.fallback", active = true, "{error}");
            }
            Event::StoreUp { debited } => {
                tracing::warn!(event = "store.fallback", active = false, debited);
            }
            Event::StoreServerDown { server, error } => {
                tracing::error!(event = "store.server", active = false, %server, "{error}");
            }
            Event::StoreServerUp { server } => {
                tracing::warn!(event = "store.server", active = true, %server);
            }
            Event::UpstreamDown {
                route,
                place,
                address,
            } => {
                tracing::warn!(event = "upstream.down", %route, place, %address);
            }
            Event::UpstreamUp {
                route,
                place,
                address,
            } => {
                tracing::info!(event = "upstream.up", %route, place, %address);
            }
            Event::Alert(notice) => log_alert(notice),
            Event::OverrideChanged {
                act,
                limit,
                key,
                set,
                line,
            } => {
                let (key, set) = (key.as_deref(), set.as_deref());
                let change = act.as_ref();
                tracing::warn!(event = "override.changed", change, %limit, key, set, line);
            }
            Event::Stopping => tracing::info!(event = "stopping"),
            Event::Stopped => tracing::info!(event = "stopped"),
        }
        (self.0)(event);
    }
}

fn log_alert(notice: &AlertNotice) {
    let key = notice.key.as_ref().map(|key| key.join(", "));
    let reason = match notice.change {
        AlertChange::Started => None,
        AlertChange::Ended(why) => Some(<&str>::from(why)),
    };
    tracing::warn!(
        event = "alert",
        change = <&str>::from(notice.change),
        reason,
        limit = &*notice.limit,
        mode = notice.mode.as_ref(),
        key,
        above_percent = notice.alert.above_percent,
        for_ms = notice.alert.hold.as_millis_ceil(),
        usage_percent = notice.usage_percent,
        id = &*notice.id,
    );
}
