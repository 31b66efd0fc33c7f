//! Access log: the lines of a listener about its requests.

use std::path::PathBuf;

/// `access_log` of `[listen.proxy]`.
///
/// ```
/// use ratekeeper_policy::config::{Context, parse};
///
/// let text = r#"
///     version = 1
///     [listen.proxy]
///     upstream = "http://127.0.0.1:3000"
///     access_log = { to = "stdout" }
///     [[limit]]
///     name = "per-ip"
///     key = ["ip"]
///     limit = "300/1m"
/// "#;
/// let loaded = parse(text, Context::default()).unwrap();
/// let log = loaded.policy.settings.listen.proxy.unwrap().access_log.unwrap();
/// assert!(log.has("path") && !log.has("query"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// `to`: the file, as written; `None` for standard output.
    pub file: Option<PathBuf>,
    /// `only`: the responses that have a line.
    pub only: LoggedResponses,
    /// `sample`: lines of a hundred that are written.
    pub sample_percent: u32,
    /// `fields`: their names; none for all but `query`.
    pub fields: Vec<String>,
}

/// The responses that have a line in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoggedResponses {
    /// All.
    #[default]
    All,
    /// `"refused"`: those of limits that refuse.
    Refused,
    /// `"failed"`: those from status 500, and those that broke off.
    Failed,
}

impl AccessLogSettings {
    /// Returns true if a line has this field.
    pub fn has(&self, field: &str) -> bool {
        if self.fields.is_empty() {
            return field != "query"; // which may hold secrets
        }
        self.fields.iter().any(|name| name == field)
    }
}
