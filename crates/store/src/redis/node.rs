//! Node: one server, one connection that all calls share, and what went wrong.
//!
//! ```text
//!   call --> connection (made when first needed) --> EVALSHA --> answer
//!                ^                                      |
//!                |  NOSCRIPT: EVAL, the whole text  <--+
//!                +-- lost, or too slow: the next call makes a new one
//! ```
//!
//! Whether a call that failed may be sent again is the question that [`Trouble`] answers: a
//! decision that ran twice would charge twice.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value};
use tokio::sync::Mutex;

use super::script::Script;
use crate::StoreError;

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// It did not run, and may run a little later: the server is loading, is no primary yet,
    /// or is losing or taking over a slot.
    Later(String),
    /// It did not run: the slot is another node's.
    Moved { slot: u16, address: String },
    /// It did not run: the key is on its way to another node, which knows about it.
    Ask { address: String },
    /// It did not run: nobody is there.
    Absent(String),
    /// It did not run, and will not: the server refuses it.
    Refused(String),
    /// It changed nothing: a key holds what none of ours wrote.
    Foreign(String),
    /// Nobody knows whether it ran.
    Lost(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(why)
            | Self::Absent(why)
            | Self::Refused(why)
            | Self::Foreign(why)
            | Self::Lost(why) => f.write_str(why),
            Self::Moved { slot, address } => write!(f, "slot {slot} has moved to {address}"),
            Self::Ask { address } => write!(f, "the key is moving to {address}"),
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Foreign(why) => Self::Foreign(why),
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
            // Scripts fail themselves only over a value that cannot be read.
            "ERR" if why.contains("user_script") => Self::Foreign(why),
            _ => Self::Refused(why),
        }
    }
}

/// The code of a server's error. Redis 6.2 wraps what a command of a script answers:
/// `ERR Error running script (..): @user_script:35: @user_script: 35: -OOM command not ..`.
fn code(error: &RedisError) -> Option<&str> {
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

/// How a call is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    Plain,
    /// To a node that is taking the slot over.
    Asking,
}

/// A script, its keys and its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a [&'a [u8]],
    pub(super) arguments: &'a [Vec<u8>],
}

impl Call<'_> {
    fn by_name(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    fn in_full(&self) -> Cmd {
        self.command("EVAL", &self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for key in self.keys {
            command.arg(*key);
        }
        for argument in self.arguments {
            command.arg(argument.as_slice());
        }
        command
    }
}

/// A server.
pub(super) struct Node {
    client: Client,
    patience: Duration,
    live: Mutex<Option<MultiplexedConnection>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive() // the client knows a password
    }
}

impl Node {
    /// A server that is waited for no longer than `patience`, connecting and answering each.
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        Self {
            client,
            patience,
            live: Mutex::default(),
        }
    }

    /// Runs a script.
    pub(super) async fn run(&self, call: Call<'_>, manner: Manner) -> Result<Value, Trouble> {
        let connection = self.connection().await?;
        let answer = match self.send(&connection, call.by_name(), manner).await {
            // It did not run: the server was restarted, or its scripts were flushed. The text
            // teaches it anew, and cannot be forgotten between the lesson and the call.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.send(&connection, call.in_full(), manner).await
            }
            answer => answer,
        };
        match answer {
            Ok(value) => Ok(value),
            Err(error) => {
                if matches!(code(&error), Some("READONLY") | None) {
                    self.forget().await;
                }
                Err(error.into())
            }
        }
    }

    /// Runs a command that changes nothing.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, Trouble> {
        let mut connection = self.connection().await?;
        match command.query_async(&mut connection).await {
            Ok(value) => Ok(value),
            Err(error) => {
                if error.code().is_none() {
                    self.forget().await;
                }
                Err(error.into())
            }
        }
    }

    /// The next call makes a new connection.
    async fn forget(&self) {
        *self.live.lock().await = None;
    }

    async fn send(
        &self,
        connection: &MultiplexedConnection,
        command: Cmd,
        manner: Manner,
    ) -> Result<Value, RedisError> {
        let mut connection = connection.clone();
        match manner {
            Manner::Plain => command.query_async(&mut connection).await,
            Manner::Asking => {
                let mut pipe = redis::pipe();
                pipe.cmd("ASKING").ignore().add_command(command);
                let mut answers: Vec<Value> = pipe.query_async(&mut connection).await?;
                Ok(answers.pop().unwrap_or(Value::Nil))
            }
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Trouble> {
        let mut live = self.live.lock().await;
        if let Some(connection) = &*live {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience));
        let made = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        match made.await {
            Ok(connection) => {
                *live = Some(connection.clone());
                Ok(connection)
            }
            // Nothing has been sent but greetings.
            Err(error) => match error.code() {
                Some("LOADING" | "MASTERDOWN") => Err(Trouble::Later(error.to_string())),
                Some(_) => Err(Trouble::Refused(error.to_string())),
                None => Err(Trouble::Absent(error.to_string())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 7.0, and as 6.2 says the same from within a script.
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
