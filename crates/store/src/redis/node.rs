//! Node: one server, one connection that all calls share, and what went wrong.
//!
//! ```text
//!   call --> connection (made when first needed) --> EVALSHA --> answer
//!                ^                                      |
//!                |  NOSCRIPT: SCRIPT LOAD, once more <--+
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
    /// Nobody knows whether it ran.
    Lost(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(why) | Self::Absent(why) | Self::Refused(why) | Self::Lost(why) => {
                f.write_str(why)
            }
            Self::Moved { slot, address } => write!(f, "slot {slot} has moved to {address}"),
            Self::Ask { address } => write!(f, "the key is moving to {address}"),
        }
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        let why = error.to_string();
        let Some(code) = error.code() else {
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
            _ => Self::Refused(why),
        }
    }
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
    fn command(&self) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.script.hash.as_str()).arg(self.keys.len());
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
        let answer = match self.send(&connection, call, manner).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                // It did not run: the server was restarted, or its scripts were flushed.
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(call.script.text.as_str());
                match load.query_async::<Value>(&mut connection.clone()).await {
                    Ok(_) => self.send(&connection, call, manner).await,
                    Err(error) => Err(error),
                }
            }
            answer => answer,
        };
        match answer {
            Ok(value) => Ok(value),
            Err(error) => {
                if error.code() == Some("READONLY") || error.code().is_none() {
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
        call: Call<'_>,
        manner: Manner,
    ) -> Result<Value, RedisError> {
        let mut connection = connection.clone();
        match manner {
            Manner::Plain => call.command().query_async(&mut connection).await,
            Manner::Asking => {
                let mut pipe = redis::pipe();
                pipe.cmd("ASKING").ignore().add_command(call.command());
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
