//! Role: how a rule is reached.

use crate::model::rules::signal::Gate;

/// How a rule is reached.
#[derive(Clone, Debug, Default)]
pub enum Role {
    /// By its `match`.
    #[default]
    Limit,
    /// When the limit with `soft` denies, for which it was made: it has the same requests and keys.
    Soft,
    /// Like [`Soft`](Self::Soft), of a limit with `elastic`, and only while its gate is open.
    Elastic(Gate),
    /// When a limit that names it in `otherwise` denies, if it matches.
    Allowance,
    /// Beside the limit with `candidate`, for which it was made: it has the same requests and keys,
    /// and never refuses.
    Candidate,
    /// Before the limit with `distinct` for which it was made: it denies a value that was counted.
    Seen,
}

/// Maximum number of names in `otherwise`.
pub(crate) const MAX_OTHERWISE: usize = 4;
