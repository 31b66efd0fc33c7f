//! `init`: a commented policy to start from, with an upstream to forward to, or with the
//! configuration of a proxy that asks the service.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ratekeeper_core::Nanos;
use ratekeeper_policy::{Policy, UpstreamUrl};
use serde_json::json;

use crate::output::unwritable;
use crate::source::{BEGINNING, DEFAULT_FILE, PolicySource};
use crate::{Exit, Failure, Output, Result};

/// Write a commented starter policy, and print the configuration of a proxy for ratekeeper
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct InitArgs {
    /// File to write
    #[arg(value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// Also print the configuration of this proxy; a policy that exists already is kept
    #[arg(long = "for", value_enum, value_name = "PROXY")]
    proxy: Option<Proxy>,
    /// The application; without --for, ratekeeper itself forwards requests to it [default:
    /// 127.0.0.1:3000 with --for]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Address at which the proxy reaches ratekeeper
    #[arg(long, value_name = "ADDRESS", default_value = SERVICE, requires = "proxy")]
    service: String,
    /// Overwrite the file
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper init
  ratekeeper init --upstream http://127.0.0.1:3000
  ratekeeper init --for nginx --upstream http://127.0.0.1:3000 > ratekeeper.conf
  ratekeeper init policies/edge.toml --force

Exit codes: 0 written, or kept with --for; 2 usage, an error in the policy, or the file exists
already.";

/// The starter policy; the trusted proxies replace [`PROXIES`].
const STARTER: &str = include_str!("../starter/ratekeeper.toml");
/// The place of the proxy listener, and its text.
const LISTEN: &str = "#LISTEN#\n";
const FORWARD: &str = "
# Requests that pass are forwarded to the application; a list of addresses is used in turn.
[listen.proxy]
address  = \"127.0.0.1:8080\"
upstream = \"UPSTREAM\"

";
const PROXIES: &str = "#PROXIES#";
const NO_PROXY: &str = "# trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]";
const LOCAL_PROXY: &str =
    "trusted_proxies = [\"127.0.0.1\", \"::1\"] # a proxy on this machine; add your own";

/// Addresses in the snippets, which the options replace.
const SERVICE: &str = "127.0.0.1:8080";
const APPLICATION: &str = "127.0.0.1:3000";

/// Time-outs in the snippets that state one.
const TIMEOUTS: [&str; 3] = [
    "proxy_read_timeout      1s;",
    "timeout_ms = 250",
    "cluster: ratekeeper, timeout: 0.25s",
];

const NO_TRUST: &str = "\
hint: trust your proxy, or every visitor has its address; for a proxy on this machine, write
      [client_ip]
      trusted_proxies = [\"127.0.0.1\", \"::1\"]";

/// Proxies that can ask before they forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Proxy {
    /// `auth_request`
    Nginx,
    /// `forward_auth`
    Caddy,
    /// Lua
    Haproxy,
    /// `forwardAuth`
    Traefik,
    /// `ext_authz` over HTTP
    Envoy,
}

impl Proxy {
    /// Returns file names and their contents.
    const fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Nginx => &[("ratekeeper.conf", include_str!("../snippets/nginx.conf"))],
            Self::Caddy => &[("Caddyfile", include_str!("../snippets/Caddyfile"))],
            Self::Haproxy => &[
                ("haproxy.cfg", include_str!("../snippets/haproxy.cfg")),
                ("ratekeeper.lua", include_str!("../snippets/haproxy.lua")),
            ],
            Self::Traefik => &[("ratekeeper.yml", include_str!("../snippets/traefik.yml"))],
            Self::Envoy => &[("envoy.yaml", include_str!("../snippets/envoy.yaml"))],
        }
    }
}

impl InitArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let service = address(&self.service)?;
        let upstream = match (self.upstream.as_deref(), self.proxy) {
            (Some(text), None) => forwarded(text)?,
            (text, _) => address(text.unwrap_or(APPLICATION))?,
        };
        let kept = self.kept(output)?;
        if kept.is_none() {
            self.write(&upstream)?;
        }
        let changes = changes(&service, &upstream, kept.as_ref().map(longest_wait));
        let files = self.proxy.map_or(&[][..], Proxy::files).iter();
        let snippets = files.map(|(name, text)| (*name, place(text, &changes)));
        let snippets: Vec<(&str, String)> = snippets.collect();
        let file = self.file.display().to_string();
        let done = if kept.is_some() { "kept" } else { "written" };
        if self.json {
            let snippets = snippets.iter();
            let snippets = snippets.map(|(name, text)| json!({ "file": name, "text": text }));
            output.json(&json!({ done: file, "snippets": snippets.collect::<Vec<_>>() }))?;
            return Ok(Exit::Done);
        }
        match &kept {
            None => output.talk(format!("wrote {file}")),
            Some(policy) => {
                output.talk(format!("kept {file}, which exists already"));
                if policy.client_ip.trusted_proxies.is_empty() {
                    output.talk(NO_TRUST);
                }
            }
        }
        for (name, text) in &snippets {
            if snippets.len() > 1 {
                output.line(format!("==> {name} <=="))?;
            }
            output.line(text.trim_end())?;
        }
        output.talk(next_steps(&self.file, kept.as_ref()));
        Ok(Exit::Done)
    }

    /// Returns the existing policy, kept beside a proxy's configuration; `None` if it is to be
    /// written.
    fn kept(&self, output: &mut Output) -> Result<Option<Policy>> {
        if self.force || self.proxy.is_none() || !self.file.exists() {
            return Ok(None);
        }
        let policy = PolicySource::read(&self.file)?.policy(BEGINNING, output)?;
        Ok(Some(policy))
    }

    fn write(&self, upstream: &str) -> Result<()> {
        let (proxies, listen) = match (self.proxy, &self.upstream) {
            (Some(_), _) => (LOCAL_PROXY, "\n".to_owned()),
            (None, Some(_)) => (NO_PROXY, FORWARD.replace("UPSTREAM", upstream)),
            (None, None) => (NO_PROXY, "\n".to_owned()),
        };
        let text = STARTER.replace(PROXIES, proxies).replace(LISTEN, &listen);
        let name = self.file.display();
        let file = if self.force {
            File::create(&self.file)
        } else {
            File::create_new(&self.file)
        };
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|why| match why.kind() {
            ErrorKind::AlreadyExists => Failure::new(format!("`{name}` exists already"))
                .hint("overwrite it with --force, or write elsewhere with `ratekeeper init FILE`"),
            _ => unwritable(&self.file, &why),
        })
    }
}

/// Returns advice for a policy that was just written, or that is kept.
fn next_steps(file: &Path, kept: Option<&Policy>) -> String {
    let named = if file == Path::new(DEFAULT_FILE) {
        String::new()
    } else {
        format!(" {}", file.display())
    };
    if kept.is_some() {
        return format!("next: ratekeeper run{named}    serve it");
    }
    format!(
        "next: ratekeeper try{named} --limit per-ip -n 25    see its effect, in virtual time\n\
         \x20     ratekeeper run{named}                          serve it"
    )
}

/// Returns the URL of an upstream of ratekeeper's own gateway.
fn forwarded(text: &str) -> Result<String> {
    let url = format!("http://{text}").parse();
    url.or_else(|_| text.parse::<UpstreamUrl>())
        .map(|url| url.to_string())
        .map_err(|error| Failure::new(error.reason).hint(error.help))
}

/// Returns `HOST:PORT` of a URL or an address, for the configuration of a proxy.
fn address(text: &str) -> Result<String> {
    let url = match text.split_once("://") {
        Some(("http", _)) => text.to_owned(),
        None => format!("http://{text}"),
        Some((scheme, _)) => {
            return Err(Failure::new(format!(
                "`{text}` is not http; {scheme} must be configured in the proxy"
            ))
            .hint("write for example http://127.0.0.1:3000"));
        }
    };
    let parsed = url.parse::<UpstreamUrl>();
    parsed
        .map(|url| url.address())
        .map_err(|error| Failure::new(error.reason).hint("write for example http://127.0.0.1:3000"))
}

/// Returns the longest wait of the policy's queues.
fn longest_wait(policy: &Policy) -> Nanos {
    let rules = policy.rules.iter();
    let queues = rules.filter_map(|rule| rule.limit.algorithm.queue());
    queues.map(|(_, wait)| wait).max().unwrap_or_default()
}

/// Returns the texts of the snippets to be replaced, each with its replacement.
fn changes(service: &str, upstream: &str, wait: Option<Nanos>) -> Vec<(String, String)> {
    let mut changes = vec![
        (SERVICE.to_owned(), service.to_owned()),
        (APPLICATION.to_owned(), upstream.to_owned()),
        (in_fields(SERVICE), in_fields(service)),
        (in_fields(APPLICATION), in_fields(upstream)),
    ];
    if let Some(wait) = wait.filter(|wait| *wait > Nanos::ZERO) {
        let seconds = wait.as_secs_ceil() + 1;
        let [nginx, haproxy, envoy] = TIMEOUTS;
        changes.extend([
            (
                nginx.to_owned(),
                format!("proxy_read_timeout      {seconds}s;"),
            ),
            (haproxy.to_owned(), format!("timeout_ms = {seconds}000")),
            (
                envoy.to_owned(),
                format!("cluster: ratekeeper, timeout: {seconds}s"),
            ),
        ]);
    }
    changes
}

/// Applies the changes to a snippet in one pass, so that an application at the service's usual
/// address stays the application.
fn place(text: &str, changes: &[(String, String)]) -> String {
    let found = changes
        .iter()
        .filter_map(|(old, new)| Some((text.split_once(&**old)?, new)));
    match found.min_by_key(|((before, _), _)| before.len()) {
        Some(((before, after), new)) => format!("{before}{new}{}", place(after, changes)),
        None => text.to_owned(),
    }
}

/// Returns an address in the two fields of Envoy's configuration.
fn in_fields(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "80"));
    format!("address: {host}, port_value: {port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_snippet_names_both_addresses_and_takes_others() {
        for proxy in Proxy::value_variants() {
            let files = proxy
                .files()
                .iter()
                .map(|(_, text)| *text)
                .collect::<String>();
            let placed = place(&files, &changes("10.0.0.7:8088", "10.0.0.8:8080", None));
            assert!(placed.contains("10.0.0.7:8088"), "{proxy:?}: ratekeeper");
            assert!(
                placed.contains("10.0.0.8:8080"),
                "{proxy:?}: the application"
            );
            for old in [SERVICE, APPLICATION, "address: 127.0.0.1"] {
                assert!(!placed.contains(old), "{proxy:?}: {old} remains");
            }
        }
    }

    #[test]
    fn addresses_that_are_swapped_stay_apart() {
        let placed = place(
            "ask 127.0.0.1:8080, then 127.0.0.1:3000",
            &changes(APPLICATION, SERVICE, None),
        );
        assert_eq!(placed, "ask 127.0.0.1:3000, then 127.0.0.1:8080");
    }

    #[test]
    fn a_proxy_waits_longer_than_a_queue() {
        let wait = Some(Nanos::from_millis(4_200));
        let changes = changes(SERVICE, APPLICATION, wait);
        for (proxy, expected) in [
            (Proxy::Nginx, "proxy_read_timeout      6s;"),
            (Proxy::Haproxy, "timeout_ms = 6000"),
            (Proxy::Envoy, "cluster: ratekeeper, timeout: 6s"),
        ] {
            let files = proxy.files().iter().map(|(_, text)| *text);
            let placed: String = files.map(|text| place(text, &changes)).collect();
            assert!(placed.contains(expected), "{proxy:?}: {placed}");
        }
    }

    #[test]
    fn an_upstream_is_an_address_or_an_http_url() {
        let rows = [
            ("http://127.0.0.1:3000", Some("127.0.0.1:3000")),
            ("http://app.internal/", Some("app.internal:80")),
            ("[::1]:3000", Some("[::1]:3000")),
            ("https://app.internal", None),
            ("http://app:port", None),
            ("http://app:0", None),
            ("::1:3000", None),
            ("http://app/path", None),
            ("a b:80", None),
            ("", None),
        ];
        for (text, read) in rows {
            assert_eq!(address(text).ok().as_deref(), read, "{text}");
        }
    }

    #[test]
    fn the_starter_has_one_place_for_proxies() {
        assert_eq!(STARTER.matches(PROXIES).count(), 1);
        assert_eq!(STARTER.matches(LISTEN).count(), 1);
    }
}
