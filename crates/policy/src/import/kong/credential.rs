//! Credential: the key part that stands for the consumer of a request.
//!
//! ```text
//!   key-auth, key_names: [x-key]     header:x-key
//! ```

use crate::envoy::yaml::YamlNode;
use crate::import::document::{field, texts};

/// Plugins that identify a consumer, and the key part that has the credential.
pub(super) const CREDENTIALS: [(&str, &str); 5] = [
    ("key-auth", "header:apikey"),
    ("jwt", "bearer"),
    ("oauth2", "bearer"),
    ("basic-auth", "header:authorization"),
    ("hmac-auth", "header:authorization"),
];

/// Returns the key part with the credential of a plugin. `key-auth` names the header.
pub(super) fn part(plugin: &str, usual: &str, node: &YamlNode) -> String {
    let names = field(node, "config").map(|config| texts(config, "key_names"));
    match names.unwrap_or_default().first() {
        Some(name) if plugin == "key-auth" => format!("header:{name}"),
        _ => usual.to_owned(),
    }
}
