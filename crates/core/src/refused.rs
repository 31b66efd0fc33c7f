//! Refused: the refusal of a request, with a text for people.

use core::fmt;
use core::time::Duration;

use crate::{Nanos, Verdict};

/// The refusal of a request: nothing is charged.
///
/// ```
/// use ratekeeper_core::{Nanos, Refused, Verdict};
/// use std::time::Duration;
/// let deny = Verdict::Deny { retry_after: Nanos::from_millis(1_150) };
/// let refused = deny.refused().unwrap();
/// assert_eq!(refused, Refused::Until(Duration::from_millis(1_150)));
/// assert_eq!(refused.to_string(), "the limit is used up; try again in 1.2 s");
/// assert_eq!(Verdict::DenyForever.refused(), Some(Refused::Never));
/// assert_eq!(Verdict::Allow.refused(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The same request is allowed after this span, if no other request spends meanwhile. (Under a
    /// limit of concurrency it is an estimate.)
    Until(Duration),
    /// No wait helps: the cost is above the capacity or balance of the limit.
    Never,
}

impl Verdict {
    /// Returns the refusal of a denied request; `None` if it passes, now or after a wait.
    #[inline]
    pub const fn refused(self) -> Option<Refused> {
        match self {
            Self::Allow | Self::AllowAfter(_) => None,
            Self::DenyForever => Some(Refused::Never),
            Self::Deny { retry_after }
            | Self::Ban { retry_after }
            | Self::Banned { retry_after } => {
                Some(Refused::Until(Duration::from_nanos(retry_after.as_nanos())))
            }
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(wait) => write!(
                f,
                "the limit is used up; try again in {}",
                Rounded((*wait).into())
            ),
            Self::Never => f.write_str("the cost is above the capacity or balance of the limit"),
        }
    }
}

impl core::error::Error for Refused {}

/// A wait for people: `250 ms`, `1.2 s`, `40 min`. Rounded up, so that it is never too short.
struct Rounded(Nanos);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MILLI: u64 = 1_000_000;
        const TENTH: u64 = 100 * MILLI;
        const MINUTE: u64 = 600 * TENTH;
        let nanos = self.0.as_nanos();
        let tenths = nanos.div_ceil(TENTH);
        match nanos {
            0..TENTH => write!(f, "{} ms", nanos.div_ceil(MILLI)),
            _ if tenths < 100 && !tenths.is_multiple_of(10) => {
                write!(f, "{}.{} s", tenths / 10, tenths % 10)
            }
            _ if nanos <= 2 * MINUTE => write!(f, "{} s", tenths.div_ceil(10)),
            _ if nanos <= 120 * MINUTE => write!(f, "{} min", nanos.div_ceil(MINUTE)),
            _ => write!(f, "{} h", nanos.div_ceil(60 * MINUTE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn waits_are_rounded_up_for_people() {
        for (nanos, text) in [
            (1, "1 ms"),
            (99_000_001, "100 ms"),
            (100_000_001, "0.2 s"),
            (1_150_000_000, "1.2 s"),
            (1_950_000_000, "2 s"),
            (19_999_875_588, "20 s"),
            (120_000_000_000, "120 s"),
            (120_000_000_001, "3 min"),
            (7_200_000_000_001, "3 h"),
            (u64::MAX, "5124096 h"),
        ] {
            assert_eq!(
                Rounded(Nanos::from_nanos(nanos)).to_string(),
                text,
                "{nanos}"
            );
        }
    }
}
