//! Calls that only some algorithms have, and the error that the others return.
//!
//! ```text
//!             | Refund             | Reserve                 | Ban                | Grant
//!   ----------+--------------------+-------------------------+--------------------+----------------
//!   not by    | post-paid          | all but GCRA, post-paid | limits without one | all but balance
//! ```

use core::fmt;

/// A call that only some algorithms have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Giving back a charge: [`Refund`](crate::Refund).
    Refund,
    /// Charging now for a later moment: [`Reserve`](crate::Reserve).
    Reserve,
    /// Banning a key by hand, and lifting a ban: [`WithBans::ban`](crate::WithBans::ban).
    Ban,
    /// Adding credits: [`Balance::grant`](crate::Balance::grant).
    Grant,
}

/// The algorithm that was configured does not have the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// Its name, for people: `sliding window log`.
    pub algorithm: &'static str,
    /// The missing call.
    pub call: Call,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, call } = self;
        let article = if algorithm.starts_with(['a', 'e', 'i', 'o']) {
            "an"
        } else {
            "a"
        };
        write!(f, "{article} {algorithm} limit ")?;
        f.write_str(match call {
            Call::Refund => {
                "does not support refunds; hint: choose another algorithm, such as \
                 `token-bucket`, which does"
            }
            Call::Reserve => {
                "does not support reservations; hint: wait in the queue with `acquire`, or choose \
                 `token-bucket`"
            }
            Call::Ban => "does not support bans; hint: add `ban` to the limit",
            Call::Grant => "does not support grants; hint: name a limit with `balance`",
        })
    }
}

impl core::error::Error for Unsupported {}
