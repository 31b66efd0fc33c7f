//! The answer to one request against one limit.

use crate::{Nanos, Permits};

/// The answer of one limit to one request.
///
/// `remaining`, `reset_after` and `more_after` describe the state *after* the decision: after the
/// charge if the request is allowed, unchanged if it is denied.
#[must_use = "a decision limits nothing unless the caller acts on it"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The outcome: pass, wait or denial.
    pub verdict: Verdict,
    /// The largest cost that would still be allowed at this instant.
    pub remaining: Permits,
    /// The time after which the limit acts as if it had never seen this key.
    pub reset_after: Nanos,
    /// The least wait after which a larger cost than `remaining` is allowed, if no other request
    /// spends meanwhile; zero if `remaining` never grows.
    pub more_after: Nanos,
}

impl Decision {
    /// A decision of a limit to which time gives nothing back: it is unused, or not refilled.
    #[inline]
    pub const fn without_times(verdict: Verdict, remaining: Permits) -> Self {
        Self {
            verdict,
            remaining,
            reset_after: Nanos::ZERO,
            more_after: Nanos::ZERO,
        }
    }

    /// The denial of every cost for this time.
    #[inline]
    pub const fn deny_all(retry_after: Nanos) -> Self {
        Self {
            verdict: Verdict::Deny { retry_after },
            remaining: Permits::ZERO,
            reset_after: retry_after,
            more_after: retry_after,
        }
    }
}

/// The outcome of a request: pass, wait or denial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Pass now; the cost is charged.
    Allow,
    /// Pass after waiting this long; the cost is charged already (shaping).
    AllowAfter(Nanos),
    /// Do not pass. The same request is allowed after exactly `retry_after`, if no other request
    /// spends meanwhile.
    ///
    /// For a [`Concurrency`](crate::Concurrency) it is an estimate, and never later than the
    /// moment at which enough leases have ended.
    Deny {
        /// The least wait after which the same cost is allowed.
        retry_after: Nanos,
    },
    /// Do not pass: the limit denies, and with this denial a ban of the key begins. `retry_after`
    /// is as for [`Verdict::Deny`], not before the ban ends.
    Ban {
        /// The least wait after which the same cost is allowed.
        retry_after: Nanos,
    },
    /// Do not pass: the key is banned. `retry_after` is as for [`Verdict::Deny`].
    Banned {
        /// The least wait after which the same cost is allowed.
        retry_after: Nanos,
    },
    /// Never: the cost is above the capacity or balance of the limit.
    DenyForever,
}

impl Verdict {
    /// Returns true for [`Verdict::Allow`] and [`Verdict::AllowAfter`].
    pub const fn allows(self) -> bool {
        matches!(self, Self::Allow | Self::AllowAfter(_))
    }

    /// How long to wait before passing; `None` if denied.
    ///
    /// ```
    /// use ratekeeper_core::{Nanos, Verdict};
    /// assert_eq!(Verdict::Allow.wait(), Some(Nanos::ZERO));
    /// assert_eq!(Verdict::AllowAfter(Nanos::SECOND).wait(), Some(Nanos::SECOND));
    /// assert_eq!(Verdict::DenyForever.wait(), None);
    /// ```
    pub const fn wait(self) -> Option<Nanos> {
        match self {
            Self::Allow => Some(Nanos::ZERO),
            Self::AllowAfter(wait) => Some(wait),
            _ => None,
        }
    }

    /// The wait of a denied request; `None` if allowed, or if no wait helps.
    pub const fn retry_after(self) -> Option<Nanos> {
        match self {
            Self::Deny { retry_after }
            | Self::Ban { retry_after }
            | Self::Banned { retry_after } => Some(retry_after),
            Self::Allow | Self::AllowAfter(_) | Self::DenyForever => None,
        }
    }

    /// Returns true for [`Verdict::Ban`] and [`Verdict::Banned`].
    pub const fn is_ban(self) -> bool {
        matches!(self, Self::Ban { .. } | Self::Banned { .. })
    }

    /// The same denial with another wait; unchanged if it has none.
    #[must_use]
    pub const fn with_retry_after(self, retry_after: Nanos) -> Self {
        match self {
            Self::Deny { .. } => Self::Deny { retry_after },
            Self::Ban { .. } => Self::Ban { retry_after },
            Self::Banned { .. } => Self::Banned { retry_after },
            Self::Allow | Self::AllowAfter(_) | Self::DenyForever => self,
        }
    }
}
