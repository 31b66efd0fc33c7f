//! Grant: the result of a request under several limits, if it passes, and the error if it does not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Decision, Nanos, Permits};
use ratekeeper_store::{Decisions, StoreError};

use super::{ChargedList, NamedLimit};
use crate::limiter::Refused;

/// A request that passes; all its limits are charged. Dropping it changes nothing. Under a leaky
/// queue it passes after its [`delay`](Self::delay).
///
/// It owns its charges, so that it can wait in a queue or move to another task until the work is
/// [settled](super::Limits::settle).
///
/// ```
/// use ratekeeper::{Limits, at_once};
/// let limits = Limits::in_memory();
/// let tokens = limits.token_bucket("tokens", "1000/1m".parse()?)?;
/// let grant = at_once(tokens.check_n("ann", 400))?;
/// let done = std::thread::spawn(|| grant).join().unwrap();
/// at_once(limits.settle(done.used(&tokens, 1_500)))?;
/// assert!(at_once(tokens.check("ann")).is_err(), "500 are owed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(PartialEq, Eq)]
pub struct LimitsGrant {
    /// The limits that it belongs to.
    pub(super) limits: u64,
    pub(super) charged: ChargedList,
}

impl LimitsGrant {
    pub(super) fn of(
        limits: u64,
        mut charged: ChargedList,
        decisions: &Decisions,
    ) -> Result<Self, CheckError> {
        if decisions.admitted {
            for (at, charged) in charged.iter_mut().enumerate() {
                charged.decision = decisions.each.get(at).copied();
                charged.origin = decisions.origin(at);
            }
            return Ok(Self { limits, charged });
        }
        let refusals = charged.iter().zip(&decisions.each);
        let refusals = refusals
            .filter_map(|(charged, decision)| Some((&charged.name, decision.verdict.refused()?)));
        // The store answered that one of them refuses.
        let longest = refusals.max_by_key(|(_, refused)| match refused {
            Refused::Until(wait) => (false, Some(*wait)),
            Refused::Never => (true, None),
        });
        Err(match longest {
            Some((limit, refused)) => CheckError::Refused {
                limit: Arc::clone(limit),
                refused,
            },
            None => StoreError::Unavailable("a refusal without a limit that refuses".into()).into(),
        })
    }

    /// The same grant, with the actual cost of the work under `limit`, for
    /// [`Limits::settle`](super::Limits::settle). It applies to all charges of that limit. A cost
    /// above [`Permits::MAX`] counts as that.
    #[must_use = "the cost is settled by `Limits::settle`"]
    pub fn used<S, C>(mut self, limit: &NamedLimit<S, C>, used: u64) -> Self {
        let used = Permits::new(used);
        for charged in &mut self.charged {
            if charged.name == *limit.name() {
                charged.used = used;
            }
        }
        self
    }

    /// Returns how long to wait before going on, the longest delay of its limits: zero, but under a
    /// leaky queue, which promises a later moment.
    ///
    /// ```
    /// use ratekeeper::core::{Gcra, Quota};
    /// use ratekeeper::{Limits, at_once};
    /// let limits = Limits::in_memory();
    /// let mails = limits.limit("mails", Gcra::leaky_queue(Quota::per_hour(1), 3)?)?;
    /// assert!(at_once(mails.check(()))?.delay().is_zero());
    /// assert_eq!(at_once(mails.check(()))?.delay().as_secs().div_ceil(60), 60);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delay(&self) -> Duration {
        self.last()
            .map_or(Duration::ZERO, |(_, delay)| delay.into())
    }

    /// Returns the refusal of a caller that does not wait so long.
    pub(super) fn later_than(&self, patience: Nanos) -> Option<CheckError> {
        let (limit, delay) = self.last()?;
        (delay > patience).then(|| CheckError::Refused {
            limit: Arc::clone(limit),
            refused: Refused::Until(delay.into()),
        })
    }

    /// Returns the limit with the longest delay.
    fn last(&self) -> Option<(&Arc<str>, Nanos)> {
        let delays = self.charged.iter().filter_map(|charged| {
            let delay = charged.decision?.verdict.wait()?;
            Some((&charged.name, delay))
        });
        delays.max_by_key(|(_, delay)| *delay)
    }

    /// Returns the name of each limit and its decision, in the order of the charges.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, Decision)> {
        self.charged
            .iter()
            .filter_map(|charged| Some((&*charged.name, charged.decision?)))
    }
}

impl fmt::Debug for LimitsGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.decisions()).finish()
    }
}

/// Why a request of several limits does not pass: nothing is charged.
///
/// ```
/// use ratekeeper::core::Quota;
/// use ratekeeper::{CheckError, Limits, Refused, at_once};
/// let limits = Limits::in_memory();
/// let users = limits.token_bucket("users", Quota::per_minute(60))?;
/// let Err(CheckError::Refused { limit, refused }) = at_once(users.check_n("ann", 61)) else {
///     panic!("61 never fit")
/// };
/// assert_eq!((&*limit, refused), ("users", Refused::Never));
/// # Ok::<(), ratekeeper::NewLimitError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// A limit refuses; of several, the one with the longest wait.
    Refused {
        /// Name of the limit.
        limit: Arc<str>,
        /// Its refusal.
        refused: Refused,
    },
    /// The store cannot answer. (While a Redis server is away each limit decides as it chose, see
    /// [`NamedLimit::on_outage`](super::NamedLimit::on_outage).)
    Store(StoreError),
}

impl CheckError {
    /// The refusal of a cost that no limit can count.
    pub(super) fn never(limit: &Arc<str>) -> Self {
        Self::Refused {
            limit: Arc::clone(limit),
            refused: Refused::Never,
        }
    }

    /// Returns the error for calls that no limit refuses.
    pub(super) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Refused { .. } => StoreError::Unsupported(self.to_string()),
        }
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { limit, refused } => write!(f, "limit `{limit}`: {refused}"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckError {}
