//! Plain: values of key parts as an operator writes them.

use ipnet::IpNet;
use ratekeeper_core::{Key, KeyBuilder};

use super::{KeyPart, prefix};
use crate::http::network;
use crate::http::path::{Normal, PathCase};
use crate::model::client::geo::{AsnText, normal_place};
use crate::{Facts, Field, KeyBytes, ValueError};
use crate::{model::keys::stated, model::keys::value};

impl KeyPart {
    /// Appends a value that an operator writes: either as in a request (the API key itself, any
    /// address of a network), or as shown in a key (`sha256:...`, `2001:db8::/64`, `~`). A secret may
    /// also be written by its whole hash.
    ///
    /// ```
    /// use ratekeeper_policy::{KeyBytes, KeyPart};
    /// let written = |value| {
    ///     let mut key = KeyBytes::default();
    ///     KeyPart::ApiKey.write_plain(value, 64, &mut key);
    ///     key
    /// };
    /// let hash = "sha256:ba7816bf8f01cfea414140de5dae2223";
    /// assert_eq!(written("abc"), written(hash));
    /// let rest = "B00361A396177A9CB410FF61F20015AD";
    /// assert_eq!(written("abc"), written(&format!("{hash}{rest}")));
    /// ```
    pub fn write_plain(&self, value: &str, ipv6_prefix: u8, out: &mut KeyBytes) {
        if let Some(shown) = self.as_shown(value) {
            KeyBuilder::new(out).part(shown.as_bytes());
            return;
        }
        if let Self::Ip { bits } = self
            && let Ok(ip) = value.parse()
        {
            return value::write_ip(network::address(ip), prefix(*bits, ipv6_prefix), out);
        }
        if let Some(Ok(normal)) = self.normal_place(value) {
            return value::write_text(&normal, out);
        }
        let value = value.as_bytes();
        let normal = match self {
            Self::Query(_) => stated::parameter(value),
            Self::Cookie(_) => stated::cookie(value),
            Self::Header(name) if stated::is_credential_header(name) => stated::credentials(value),
            _ => Normal::Borrowed(value),
        };
        self.write_value(normal.as_bytes(), ipv6_prefix, out);
    }

    /// Like [`write_plain`](Self::write_plain), in any spelling that a request may use.
    ///
    /// # Errors
    /// Addresses only: a value that is neither an address, nor a network that one key shows. The
    /// error is the key of an address in the network; `None` if it is no network.
    pub fn write_exact(
        &self,
        value: &str,
        ipv6_prefix: u8,
        path_case: PathCase,
        out: &mut KeyBytes,
    ) -> Result<(), Option<String>> {
        if let Some(shown) = self.as_shown(value) {
            KeyBuilder::new(out).part(shown.as_bytes());
            return Ok(());
        }
        match self {
            Self::Ip { .. } => {
                let network = value.parse::<IpNet>().ok();
                let address = network.map_or_else(|| value.parse().ok(), |it| Some(it.addr()));
                let address = address.ok_or(None)?.to_string();
                let mut bytes = KeyBytes::default();
                self.write_plain(&address, ipv6_prefix, &mut bytes);
                let key = Key::from_bytes(&bytes).display_parts().collect::<String>();
                if network.is_some() && key != value {
                    return Err(Some(key));
                }
                self.write_plain(&address, ipv6_prefix, out);
            }
            // These have one spelling in a key, as a request brings them.
            Self::Host | Self::Method | Self::Path => {
                let facts = Facts {
                    host: value,
                    method: value,
                    path: value,
                    ..Facts::default()
                };
                self.write_fact(&facts, path_case, out);
            }
            Self::Header(_) => self.write_plain(value.trim(), ipv6_prefix, out),
            Self::Bearer | Self::ApiKey => {
                let (scheme, token) = value.split_once(' ').unwrap_or(("", value));
                let is_scheme = scheme.eq_ignore_ascii_case("bearer");
                let token = if is_scheme { token } else { value };
                self.write_plain(token.trim(), ipv6_prefix, out);
            }
            _ => self.write_plain(value, ipv6_prefix, out),
        }
        Ok(())
    }

    /// Returns a value that is written as a key shows it; a hash in any case, and that of a secret
    /// whole too, as other programs print it.
    fn as_shown(&self, value: &str) -> Option<String> {
        let hash = value.to_ascii_lowercase();
        let shown = match hash.strip_prefix("sha256:") {
            Some(digits) if matches!(self, Self::Bearer | Self::ApiKey) && digits.len() == 64 => {
                let is_hash = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                is_hash.then(|| hash[..hash.len() - 32].to_owned())?
            }
            Some(_) => hash,
            None => value.to_owned(),
        };
        value::is_as_shown(shown.as_bytes()).then_some(shown)
    }

    /// Returns a value of a part that is found by the address, as a key holds it; `None` for
    /// other parts.
    pub(crate) fn normal_place(&self, value: &str) -> Option<Result<AsnText, ValueError>> {
        let field = match self {
            Self::Country => Field::Country,
            Self::Continent => Field::Continent,
            Self::Asn => Field::Asn,
            _ => return None,
        };
        Some(normal_place(&field, value))
    }
}
