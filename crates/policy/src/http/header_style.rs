//! Header style: which fields of a response describe the limits of its request.

/// `headers = "ietf" | "legacy" | "both" | "off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "language",
    derive(strum::EnumString),
    strum(serialize_all = "lowercase")
)]
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
