//! Settings: what a policy file says beside its rules.

/// `headers = "ietf" | "legacy" | "both" | "off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderStyle {
    /// `RateLimit-Policy` and `RateLimit`.
    #[default]
    Ietf,
    /// `X-RateLimit-*`.
    Legacy,
    /// Both.
    Both,
    /// Neither.
    Off,
}

/// Settings of the process that the policy file may hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// `[listen]`: addresses of the doors.
    pub listen: Listen,
    /// `[store.memory] budget`: bytes the store may use; none for the default.
    pub memory_budget: Option<usize>,
}

/// `[listen]`: none means not stated, `Some("off")` means off.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Listen {
    /// The check API and forward-auth.
    pub http: Option<String>,
    /// Metrics, health, keys, reload.
    pub admin: Option<String>,
}
