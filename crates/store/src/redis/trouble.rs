//! Trouble: why a call failed, and whether it ran.
//!
//! ```text
//!   did not run     later  moved  ask  absent  resting  refused     the first four go on
//!   changed nothing foreign  crowded  raced                         concerns its keys alone
//!   not known    lost                                            is never sent again
//! ```

use redis::{ErrorKind, RedisError};

use crate::StoreError;

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug, derive_more::Display)]
pub(super) enum Trouble {
    /// It did not run, and may run a little later: the server is loading, is no primary yet,
    /// or is losing or taking over a slot.
    Later(String),
    /// It did not run: the slot is another node's.
    #[display("slot {slot} has moved to {address}")]
    Moved { slot: u16, address: String },
    /// It did not run: the key is on its way to another node, which knows about it.
    #[display("the key is moving to {address}")]
    Ask { address: String },
    /// It did not run: the server is not there.
    Absent(String),
    /// It did not run: the server has not answered of late, and gets no calls.
    Resting(String),
    /// It did not run, and will not: the server refuses it.
    Refused(String),
    /// It changed nothing: a key holds a value that no limit of this store wrote.
    Foreign(String),
    /// It changed nothing: too many requests of its keys were before it.
    Crowded,
    /// It changed nothing: another process has changed a key meanwhile.
    Raced,
    /// It may have run, or not.
    Lost(String),
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Foreign(why) => Self::Foreign(why),
            Trouble::Crowded => Self::Crowded,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        let why = error.to_string();
        let Some(code) = code(&error) else {
            return match error.kind() {
                ErrorKind::Io => Self::Lost(why),
                _ => Self::Refused(why),
            };
        };
        match code {
            "LOADING" | "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "BUSY" => {
                Self::Later(why)
            }
            "MOVED" | "ASK" => match error.redirect_node() {
                Some((address, slot)) if code == "MOVED" => Self::Moved {
                    slot,
                    address: address.into(),
                },
                Some((address, _)) => Self::Ask {
                    address: address.into(),
                },
                None => Self::Refused(why),
            },
            "WRONGTYPE" | "FOREIGN" => Self::Foreign(why),
            // Scripts raise errors only over a value that cannot be read, and the user's rights.
            "ERR" if why.contains("user_script") && !DENIED.iter().any(|it| why.contains(it)) => {
                Self::Foreign(why)
            }
            _ => Self::Refused(why),
        }
    }
}

/// Beginnings of errors over a command that the user may not run from a script: of Redis 6.2 and 7.0,
/// and of later servers.
const DENIED: [&str; 2] = [
    "The user executing the script can't",
    "ACL failure in script",
];

/// Returns the code of a server's error. Redis 6.2 wraps the errors of a script's commands:
/// `ERR Error running script (..): @user_script:35: @user_script: 35: -OOM command not ..`.
pub(super) fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let wrapped = || {
        error
            .detail()?
            .rsplit_once("@user_script: ")?
            .1
            .split_once(": -")
    };
    Some(match (code, wrapped()) {
        ("ERR", Some((_, inner))) => inner.split(' ').next().unwrap_or(inner),
        _ => code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors as Redis 7.0 reports them, and as 6.2 does from within a script.
    #[test]
    fn what_a_script_ran_into_is_understood() {
        let wrapped = |why: &str| {
            format!(
                "Error running script (call to f_cc5b): @user_script:35: @user_script: 35: {why}"
            )
        };
        for (code, detail, expected) in [
            ("OOM", "command not allowed".into(), "refused"),
            ("ERR", wrapped("-OOM command not allowed"), "refused"),
            ("READONLY", "You can't write".into(), "later"),
            ("ERR", wrapped("-READONLY You can't write"), "later"),
            ("WRONGTYPE", "Operation against".into(), "foreign"),
            ("ERR", wrapped("-WRONGTYPE Operation against"), "foreign"),
            ("FOREIGN", "rk:{ada}:limit".into(), "foreign"),
            (
                "ERR",
                wrapped("attempt to compare nil with number"),
                "foreign",
            ),
            (
                "ERR",
                "user_script:24: attempt to perform arithmetic".into(),
                "foreign",
            ),
            ("NOPERM", "this user has no permissions".into(), "refused"),
            (
                "ERR",
                wrapped("The user executing the script can't run this command or subcommand"),
                "refused",
            ),
            (
                "ERR",
                "ACL failure in script: User default has no permissions to run the 'set' command \
                 script: c52b, on @user_script:26."
                    .into(),
                "refused",
            ),
        ] {
            let error = redis::make_extension_error(code.into(), Some(detail.clone()));
            let kind = match Trouble::from(error) {
                Trouble::Refused(_) => "refused",
                Trouble::Later(_) => "later",
                Trouble::Foreign(_) => "foreign",
                _ => "other",
            };
            assert_eq!(kind, expected, "{code} {detail}");
        }
    }
}
