//! Upstream URL: where requests are forwarded to, and by which protocol.
//!
//! ```text
//!   http://HOST[:80]     HTTP/1.1
//!   h2c://HOST[:80]      HTTP/2 without TLS
//!   https://HOST[:443]   TLS, and HTTP/2 if the upstream offers it, else HTTP/1.1
//!   unix:/PATH           HTTP/1.1 over a Unix socket
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use strum::{Display, EnumString};

use crate::ValueError;

const EXAMPLE: &str = "write for example \"http://127.0.0.1:3000\"";

/// One address of an upstream.
///
/// ```
/// use ratekeeper_policy::{UpstreamScheme, UpstreamUrl};
///
/// let url: UpstreamUrl = "https://app.internal/".parse().unwrap();
/// assert_eq!(url.address(), "app.internal:443");
/// assert_eq!(url.scheme, UpstreamScheme::Https);
/// assert_eq!("http://[::1]".parse::<UpstreamUrl>().unwrap().address(), "[::1]:80");
/// assert!("http://app.internal/path".parse::<UpstreamUrl>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamUrl {
    /// The protocol.
    pub scheme: UpstreamScheme,
    /// A name, an IPv4 address, an IPv6 address in brackets, or the path of a socket.
    pub host: String,
    /// The port, from 1; 0 for a socket.
    pub port: u16,
}

/// `upstream_tls` of `[listen.proxy]`. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// PEM file of the authorities; `None` for those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The content of that file, if it could be read: settings with another content differ.
    pub authorities: Option<Arc<str>>,
    /// Name in the certificates; `None` for the host of each URL.
    pub server_name: Option<String>,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum UpstreamScheme {
    /// `http`: HTTP/1.1 without TLS.
    Http,
    /// `h2c`: HTTP/2 without TLS.
    H2c,
    /// `https`: TLS; HTTP/2 if the upstream chooses it.
    Https,
    /// `unix`: HTTP/1.1 over a Unix socket.
    Unix,
}

impl UpstreamScheme {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http | Self::H2c => 80,
            Self::Https => 443,
            Self::Unix => 0,
        }
    }
}

impl UpstreamUrl {
    /// Returns `HOST:PORT`, or `unix:/PATH`.
    pub fn address(&self) -> String {
        if self.scheme == UpstreamScheme::Unix {
            return self.to_string();
        }
        format!("{}:{}", self.host, self.port)
    }
}

impl FromStr for UpstreamUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong =
            |reason: &str, help: &str| Err(ValueError::new(format!("`{text}` {reason}"), help));
        if let Some(path) = text.strip_prefix("unix:") {
            // The longest path that an address of a socket holds (unix(7)).
            if !path.starts_with('/') || path.len() > 107 || path.contains(char::is_control) {
                let help = "write for example \"unix:/run/app.sock\"";
                return wrong("is not the path of a socket, of up to 107 bytes", help);
            }
            return Ok(Self {
                scheme: UpstreamScheme::Unix,
                host: path.to_owned(),
                port: 0,
            });
        }
        let read = text.split_once("://");
        let read = read.and_then(|(scheme, rest)| Some((scheme.parse().ok()?, rest)));
        let Some((scheme, rest)): Option<(UpstreamScheme, _)> = read else {
            let url = format!("http://{text}");
            let help = match url.parse::<Self>() {
                Ok(_) if !text.contains("://") => format!("write \"{url}\""),
                _ => EXAMPLE.to_owned(),
            };
            return wrong("is not a URL of an upstream", &help);
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            let help = "leave the path out: requests keep their own paths";
            return wrong("has a path", help);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(scheme.default_port())),
        };
        let address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_host = match address {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => !host.contains(':') && is_server_name(host),
        };
        match port {
            Some(port @ 1..) if is_host => Ok(Self {
                scheme,
                host: host.to_owned(),
                port,
            }),
            _ => wrong("has no valid host and port", EXAMPLE),
        }
    }
}

/// Returns true for an address, and for a name that a certificate can be for (RFC 1123, section
/// 2.1): labels of letters, digits, `-` and `_`, of which the last has not digits alone.
pub(crate) fn is_server_name(text: &str) -> bool {
    if text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme == UpstreamScheme::Unix {
            return write!(f, "unix:{}", self.host);
        }
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name_of_labels() {
        for host in [
            "localhost",
            "app.internal",
            "app.internal.",
            "_grpc.a-b.example",
            "3com.example",
            "127.0.0.1",
            "[::1]",
        ] {
            let read: Result<UpstreamUrl, _> = format!("https://{host}:8443").parse();
            assert_eq!(read.unwrap().address(), format!("{host}:8443"));
        }
        let long = "a".repeat(64);
        for host in [
            "",
            ".",
            "a..b",
            ".a",
            "-a",
            "a-",
            "1.2.3",
            "256.0.0.1",
            "::1",
            "[::1",
            "[a]",
            "[]",
            "a b",
            "u@a",
            &long,
        ] {
            let read: Result<UpstreamUrl, _> = format!("http://{host}:80").parse();
            assert!(read.is_err(), "{host}");
        }
    }
}
