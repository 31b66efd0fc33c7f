//! Source: a layer from the text of a policy, in one call.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ratekeeper_policy::config::{self, Colour, Context};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use super::gate::policy::ByPolicy;
use super::{GateSettings, RateLimitLayer};
use crate::{Clock, Keeper, SystemClock, read_policy_files};

/// Maximum bytes of a policy file, as in the language.
const MAX_BYTES: u64 = config::MAX_BYTES as u64;

/// Why a text is not a policy for a layer.
///
/// ```
/// use ratekeeper::tower::{PolicyError, RateLimitLayer};
/// let Err(PolicyError::Invalid(findings)) = RateLimitLayer::policy_text("version = 2") else {
///     panic!("there is no version 2")
/// };
/// assert!(findings.contains("--> policy:1:"), "{findings}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read.
    Unreadable {
        /// Its path.
        path: String,
        /// The error of the system.
        reason: String,
    },
    /// It has errors: all are listed, each with its line and a hint.
    Invalid(String),
    /// It keeps its counters in a shared store, which a layer does not open.
    Shared,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => {
                write!(f, "the policy `{path}` cannot be read: {reason}")
            }
            Self::Invalid(findings) => f.write_str(findings.trim_end()),
            Self::Shared => f.write_str(
                "the policy keeps its counters in `[store.redis]`, which a layer does not open; \
                 hint: open it by `Keeper::open` (feature `redis`), and hand that to \
                 `RateLimitLayer::policy`",
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

/// Layers with a policy of their own, counted in memory.
impl RateLimitLayer<ByPolicy<MemoryStore, SystemClock>> {
    /// The limits of a policy, counted in memory. The text's settings of the service (its
    /// addresses, its files for Envoy) do not apply to a layer, and have no effect.
    ///
    /// ```
    /// use ratekeeper::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::policy_text(
    ///     r#"
    ///     version = 1
    ///     [[limit]]
    ///     name  = "per-ip"
    ///     key   = ["ip"]
    ///     limit = "100/1m"
    ///     "#,
    /// )?;
    /// assert_eq!(layer.keeper().policy().rules.len(), 1);
    ///
    /// let error = RateLimitLayer::policy_text("version = 2").unwrap_err();
    /// assert!(error.to_string().contains("RK0110"), "{error}");
    /// # Ok::<(), ratekeeper::tower::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// [`PolicyError`], for errors in the text and for settings that a layer does not support.
    pub fn policy_text(text: &str) -> Result<Self, PolicyError> {
        open("policy", text, Path::new(""))
    }

    /// Like [`policy_text`](Self::policy_text), with the text of a file. It is read once; to change
    /// the policy, [`install`](Keeper::install) another.
    ///
    /// # Errors
    /// The errors of [`policy_text`](Self::policy_text), and an unreadable file.
    pub fn policy_file(path: impl AsRef<Path>) -> Result<Self, PolicyError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let text = read(path).map_err(|error| PolicyError::Unreadable {
            path: shown.clone(),
            reason: error.to_string(),
        })?;
        open(&shown, &text, path.parent().unwrap_or(Path::new("")))
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?; // one more is too long for the parser
    Ok(text)
}

fn open(
    name: &str,
    text: &str,
    home: &Path,
) -> Result<RateLimitLayer<ByPolicy<MemoryStore, SystemClock>>, PolicyError> {
    let clock = SystemClock::new();
    let origin = clock.origin();
    let files = read_policy_files(text, home);
    let loaded = config::parse_file(text, &files, Context::from(origin), clock.now());
    let policy = match loaded {
        Ok(loaded) => loaded.policy,
        Err(findings) => {
            let text = config::render(name, text, &findings, Colour::Never);
            return Err(PolicyError::Invalid(text));
        }
    };
    if policy.settings.redis.is_some() {
        return Err(PolicyError::Shared);
    }
    let budget_bytes = policy.settings.memory_budget;
    let budget_bytes = budget_bytes.unwrap_or(MemoryConfig::default().budget_bytes);
    let store = MemoryStore::new(MemoryConfig { budget_bytes });
    let keeper = Arc::new(Keeper::new(policy, store, clock));
    Ok(RateLimitLayer::made(
        ByPolicy::new(keeper),
        GateSettings::default(),
    ))
}
