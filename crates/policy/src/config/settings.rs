//! Settings: time zone, headers, client addresses, listeners, memory.

pub(super) mod database_file;
mod envoy;
pub(super) mod gateway;
pub(super) mod geo;
pub(super) mod jwt;
pub(super) mod policy_files;
pub(super) mod redis;
pub(super) mod routes;
pub(super) mod secrets;
pub(super) mod telemetry;
pub(super) mod value_list;

use std::net::SocketAddr;

use ipnet::IpNet;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::{PolicyFiles, Table, Text, codes, error, header_name, invalid, warning};
use crate::{
    ClientIp, HeaderStyle, Listen, LogDenials, MetricSettings, PortUse, Settings, SocketTrust, Tls,
    network,
};

/// The time zone of calendar words.
#[derive(Clone, Debug)]
pub(crate) enum ZoneSpec {
    /// Not stated.
    Unset,
    /// Stated, and refused: errors that depend on it are not reported.
    Refused,
    /// Stated, and known.
    Set(TimeZone),
}

/// Reads `timezone` from the database that is compiled in, so that a policy means the same on
/// every machine. The cost is that new rules come with a new release.
pub(crate) fn zone(root: Table<'_>) -> ZoneSpec {
    let name = match root.text("timezone") {
        Some(name) => name,
        None if root.has("timezone") => return ZoneSpec::Refused,
        None => return ZoneSpec::Unset,
    };
    let zones = TimeZoneDatabase::bundled();
    if let Ok(zone) = zones.get(name.value) {
        return ZoneSpec::Set(zone);
    }
    let names: Vec<_> = zones.available().map(|zone| zone.to_string()).collect();
    let names = names.iter().map(String::as_str);
    let other = "write a name of the IANA database, as in timezone = \"Europe/Oslo\" or \"UTC\"";
    let out = root.findings();
    let help = out.meant(name.value, names, "timezone = ", || other.to_owned());
    let message = format!("unknown time zone \"{name}\"");
    let label = "not in the IANA time zone database";
    error(codes::ZONE, name.at, message, label).help(help);
    ZoneSpec::Refused
}

/// `headers`
pub(super) fn headers(root: Table<'_>) -> HeaderStyle {
    root.word("headers").unwrap_or_default()
}

/// `[client_ip]`
pub(super) fn client_ip(root: Table<'_>) -> ClientIp {
    let mut client = ClientIp::default();
    let Some(table) = root.table("client_ip") else {
        return client;
    };
    for text in table.texts("trusted_proxies") {
        match text.value {
            "unix:" => client.sockets = SocketTrust::Trust,
            _ => client.trusted_proxies.extend(proxy(&text)),
        }
    }
    let all = IpNet::aggregate(&client.trusted_proxies);
    if let Some(network) = all.iter().find(|network| network.prefix_len() == 0) {
        let message = format!("`trusted_proxies` together trust every address of `{network}`");
        let label = "every client could then choose its address by sending a header";
        let at = table.place("trusted_proxies");
        error(codes::TRUSTS_ALL, at, message, label)
            .help("list your proxies only, as in trusted_proxies = [\"10.0.0.0/8\"]");
    }
    if let Some(header) = table.text("header")
        && let Some(name) = header_name(&header)
    {
        if name.contains('_') {
            let message = format!("no proxy sends a header `{name}`");
            let label = "names of headers have hyphens";
            let help = format!("write header = \"{}\"", name.replace('_', "-"));
            warning(codes::PROXY, header.at, message, label).help(help);
        }
        if !table.has("trusted_proxies") && !table.findings().has_errors() {
            let message = "`header` of [client_ip] has no effect";
            let label = "no proxy is trusted to set it, so the client is the peer";
            warning(codes::PROXY, header.at, message, label)
                .help("add the addresses of your proxies: trusted_proxies = [\"10.0.0.0/8\"]");
        }
        client.header = name;
    }
    if table.has("trusted_headers") && !table.has("trusted_proxies") {
        let message = "`trusted_headers` are those of trusted proxies, and the policy names none";
        let label = "any visitor can send these headers";
        warning(codes::PROXY, table.place("trusted_headers"), message, label)
            .help("add the addresses of your proxies: trusted_proxies = [\"10.0.0.0/8\"]");
    }
    if let Some(bits) = table.number("ipv6_prefix") {
        client.ipv6_prefix = bits;
    }
    client
}

/// Reads an address or a block.
fn proxy(text: &Text<'_>) -> Option<IpNet> {
    let label = "expected an address or a CIDR block";
    let refuse = |error| invalid(codes::PROXY, text.at, error, label);
    let network = network(text.value).map_err(refuse).ok()?;
    if network.prefix_len() == 0 {
        let message = format!("`{network}` trusts every address");
        let label = "every client could then choose its address by sending a header";
        error(codes::TRUSTS_ALL, text.at, message, label)
            .help("list your proxies only, as in trusted_proxies = [\"10.0.0.0/8\"]");
        return None;
    }
    Some(network)
}

/// Reads a certificate, and the authorities for those of clients where a table may name them.
fn tls(table: Table<'_>) -> Option<Tls> {
    Some(Tls {
        certificate: table.owned("certificate")?,
        key: table.owned("key")?,
        client_ca: (table.lists("client_ca").then(|| table.owned("client_ca"))).flatten(),
    })
}

/// Reads the settings of the process: its listeners, store, logs and exports.
pub(super) fn process(root: Table<'_>, files: &PolicyFiles) -> Settings {
    let listen = root.table("listen");
    let listen = listen.map(|listen| read_listen(listen, files));
    gateway::announced(root);
    let envoy = root.table("envoy");
    let store = root.table("store");
    let memory = store.and_then(|store| store.table("memory"));
    let every = memory.and_then(|memory| memory.span("state_every"));
    let state = memory.and_then(|memory| memory.owned("state"));
    if let (Some(memory), Some(_), None) = (memory, every, &state) {
        let message = "`state_every` of [store.memory] has no effect without `state`";
        let label = "no folder keeps the counters, so a restart forgets them";
        let at = memory.place("state_every");
        error(codes::PARAMETERS, at, message, label)
            .help("add state = \"state\", or leave `state_every` out");
    }
    Settings {
        timezone: root.owned("timezone"),
        overrides: root.owned("overrides"),
        listen: listen.unwrap_or_default(),
        envoy_files: envoy.map(envoy::envoy_files).unwrap_or_default(),
        envoy: envoy.map(envoy::envoy_door).unwrap_or_default(),
        memory_budget: memory.and_then(|memory| memory.size("budget")),
        state,
        state_every: every,
        redis: store
            .and_then(|store| store.table("redis"))
            .and_then(redis::redis),
        alerts: telemetry::alerts(root),
        reveal_keys: root.word("reveal_keys").unwrap_or_default(),
        log_denials: match root.flag("log_denials") {
            Some(false) => LogDenials::Off,
            _ => LogDenials::Sampled,
        },
        log_requests: root.flag("log_requests") == Some(true),
        otlp: telemetry::otlp(root),
        metrics: metrics(root),
    }
}

/// `[listen]`
fn read_listen(listen: Table<'_>, files: &PolicyFiles) -> Listen {
    let hosts = listen.texts("admin_hosts").into_iter();
    let settings = Listen {
        http: listen.owned("http"),
        grpc: listen.owned("grpc"),
        admin: listen.owned("admin"),
        admin_hosts: hosts.map(|host| host.value.to_ascii_lowercase()).collect(),
        admin_writes: listen.word("admin_writes").unwrap_or_default(),
        port_use: match listen.flag("reuse_port") {
            Some(true) => PortUse::Shared,
            _ => PortUse::Alone,
        },
        max_held: listen.number("max_held"),
        max_connections: listen.number("max_connections"),
        idle_timeout: listen.span("idle_timeout"),
        head_timeout: listen.span("head_timeout"),
        drain: listen.span("drain"),
        grace: listen.span("grace"),
        proxy: gateway::proxy(listen, files),
    };
    addresses_differ(listen);
    settings
}

/// `[metrics]`
fn metrics(root: Table<'_>) -> MetricSettings {
    let default = MetricSettings::default();
    let Some(table) = root.table("metrics") else {
        return default;
    };
    let (limits, near) = (table.number("max_limits"), table.number("near_percent"));
    MetricSettings {
        max_limits: limits.unwrap_or(default.max_limits),
        near_percent: near.unwrap_or(default.near_percent),
    }
}

/// Reports two listeners at one address.
fn addresses_differ(listen: Table<'_>) {
    let read = |name: &'static str| {
        let text = match name {
            "proxy" => listen.table(name)?.text("address")?,
            name => listen.text(name)?,
        };
        let address: SocketAddr = text.value.parse().ok()?;
        Some((name, address, text.at))
    };
    let listeners: Vec<_> = ["http", "grpc", "admin", "proxy"]
        .into_iter()
        .filter_map(read)
        .collect();
    for (index, (name, address, at)) in listeners.iter().enumerate() {
        let meets = |other: &SocketAddr| {
            let all = other.ip().is_unspecified() || address.ip().is_unspecified();
            other.port() == address.port() && (all || other.ip() == address.ip())
        };
        let taken = listeners[..index]
            .iter()
            .find(|(_, other, _)| address.port() != 0 && meets(other));
        if let Some((first, other, first_at)) = taken {
            let message = format!("`{first}` and `{name}` listen on the same address");
            let field = if *name == "proxy" { "address" } else { name };
            let free = SocketAddr::new(address.ip(), address.port().wrapping_add(1).max(1024));
            let label = format!("taken by {other}");
            error(codes::SAME_ADDRESS, *at, message, label)
                .related(*first_at)
                .help(format!("write another port: {field} = \"{free}\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Nanos;

    use crate::config::{Context, parse};

    /// Returns the settings of a policy with these lines in `[listen]`, or its error codes.
    fn listen(lines: &str) -> Result<crate::Listen, Vec<&'static str>> {
        let limit = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1s\"\n";
        let text = format!("version = 1\n[listen]\n{lines}\n{limit}");
        match parse(&text, Context::default()) {
            Ok(loaded) => Ok(loaded.policy.settings.listen),
            Err(findings) => Err(findings.iter().map(|finding| finding.code).collect()),
        }
    }

    #[test]
    fn a_field_of_the_access_log_is_written_once() {
        let read = listen(
            "proxy.upstream = \"http://127.0.0.1:9\"\n\
             proxy.access_log = { to = \"stdout\", fields = [\"path\", \"time\", \"path\"] }",
        );
        let log = read.unwrap().proxy.unwrap().access_log.unwrap();
        assert_eq!(log.fields, ["path", "time"]);
    }

    #[test]
    fn connections_and_waits_are_read_within_their_ranges() {
        let read = listen(
            "max_connections = 7\nidle_timeout = \"20s\"\nhead_timeout = \"30s\"\ndrain = \"0s\"\ngrace = \"1m\"",
        );
        let read = read.unwrap();
        assert_eq!(read.head_timeout, Some(Nanos::from_secs(30)));
        assert_eq!(read.max_connections, Some(7));
        assert_eq!(read.idle_timeout, Some(Nanos::from_secs(20)));
        assert_eq!(read.drain, Some(Nanos::ZERO));
        assert_eq!(read.grace, Some(Nanos::from_secs(60)));
        for wrong in [
            "max_connections = 0",
            "idle_timeout = \"1s\"",
            "idle_timeout = \"soon\"",
            "head_timeout = \"4s\"",
            "head_timeout = \"11m\"",
            "drain = \"11m\"",
            "grace = \"1h\"",
        ] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }
}
