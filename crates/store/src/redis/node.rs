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
//!
//! A server that has failed [`FAILURES`] times in a row is left alone: calls fail at once, and
//! a task of ours asks it whether it is back. To be out of memory, or not to let us in, is to
//! fail, and so is not to be ready for as long as calls wait; so it is asked to write.

mod probe;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::dial::{Dial, ServerAddress, ServerConnection};
use super::hints::Losses;
use super::script::Script;
use super::trouble::{Trouble, code};
use probe::Probed;

/// How a call is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    Plain,
    /// To a node that is taking the slot over.
    Asking,
}

/// A script, its keys and its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a [&'a [u8]],
    pub(super) arguments: &'a [Vec<u8>],
}

impl ScriptCall<'_> {
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

/// Failures in a row after which a server is left alone.
const FAILURES: u32 = 3;
/// How long a server is left alone without being asked: if nobody runs our task, a call finds
/// out.
const REST: Duration = Duration::from_secs(2);

/// What a server must be, to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Whatever it says to calls.
    Any,
    /// A primary, and it is asked on every new connection: one that was may be none any more.
    Primary,
}

/// A server.
pub(super) struct RedisNode {
    dial: Dial,
    role: Role,
    patience: Duration,
    /// Counts connections made and lost.
    losses: Losses,
    line: Mutex<Option<ServerConnection>>,
    health: parking_lot::Mutex<NodeHealth>,
}

/// How it has been doing.
#[derive(Debug, Default)]
struct NodeHealth {
    /// Failures in a row.
    failures: u32,
    /// Whether the last call was decided; none if it was another's to decide.
    decides: Option<bool>,
    /// When not to be ready was last counted as a failure.
    unready: Option<Instant>,
    /// While it is left alone.
    rests_until: Option<Instant>,
    why: String,
    /// Whether a task asks whether it is back.
    is_probed: bool,
}

impl NodeHealth {
    fn is_well(&mut self) {
        self.failures = 0;
        self.unready = None;
        self.rests_until = None;
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("address", self.dial.address())
            .finish_non_exhaustive() // the login is a secret
    }
}

impl RedisNode {
    /// A server that is waited for no longer than `patience`, connecting and answering each.
    pub(super) fn new(dial: Dial, role: Role, patience: Duration, losses: Losses) -> Self {
        Self {
            dial,
            role,
            patience,
            losses,
            line: Mutex::default(),
            health: parking_lot::Mutex::default(),
        }
    }

    /// Runs a script, unless it is left alone.
    pub(super) async fn run(
        self: &Arc<Self>,
        call: ScriptCall<'_>,
        manner: Manner,
    ) -> Result<Value, Trouble> {
        let started = Instant::now();
        self.is_asked(started)?;
        let key = call.keys.first().copied();
        let attempt = Attempt {
            node: self,
            key,
            started,
        };
        let answer = self.send_to(call, manner).await;
        std::mem::forget(attempt);
        match &answer {
            Err(trouble @ (Trouble::Absent(_) | Trouble::Lost(_) | Trouble::Refused(_))) => {
                self.failed(&trouble.to_string(), key);
            }
            Err(Trouble::Later(why)) => self.is_not_ready(why, key),
            answer => {
                let elsewhere = matches!(answer, Err(Trouble::Moved { .. } | Trouble::Ask { .. }));
                let mut health = self.health.lock();
                health.is_well();
                health.decides = (!elsewhere).then_some(true);
            }
        }
        answer
    }

    /// Whether calls are sent to it.
    fn is_asked(&self, now: Instant) -> Result<(), Trouble> {
        let health = self.health.lock();
        match health.rests_until {
            Some(until) if now < until => Err(Trouble::Resting(health.why.clone())),
            _ => Ok(()),
        }
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.health.lock().failures
    }

    /// Whether the last call was decided; none if there was none, or it was another's.
    pub(super) fn decides(&self) -> Option<bool> {
        self.health.lock().decides
    }

    /// It says that it is not ready: a failure, but one only in the time that a call may take.
    /// What is over soon is waited out.
    fn is_not_ready(self: &Arc<Self>, why: &str, key: Option<&[u8]>) {
        let now = Instant::now();
        {
            let mut health = self.health.lock();
            health.decides = Some(false);
            let recent = |last: Instant| now.duration_since(last) < self.patience;
            if health.unready.is_some_and(recent) {
                return;
            }
            health.unready = Some(now);
        }
        self.failed(why, key);
    }

    /// It has failed once more, over this key.
    fn failed(self: &Arc<Self>, why: &str, key: Option<&[u8]>) {
        let was_probed = {
            let mut health = self.health.lock();
            health.failures = health.failures.saturating_add(1);
            health.decides = Some(false);
            if health.failures < FAILURES {
                return;
            }
            health.rests_until = Some(Instant::now() + REST);
            health.why = format!("{why}; it is not asked until it answers");
            std::mem::replace(&mut health.is_probed, true)
        };
        // A runtime that ends drops the task at once, and that wants the lock.
        if !was_probed {
            let probed = Probed::new(self, key);
            tokio::spawn(async move { probed.until_back().await });
        }
    }

    async fn send_to(&self, call: ScriptCall<'_>, manner: Manner) -> Result<Value, Trouble> {
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
        let line = self.connection().await?;
        match command.query_async(&mut line.connection.clone()).await {
            Ok(value) => Ok(value),
            Err(error) => {
                if error.code().is_none() {
                    self.forget().await;
                }
                Err(error.into())
            }
        }
    }

    /// Runs commands that change nothing, at one moment; all answers, or the first error.
    pub(super) async fn query_all(&self, pipe: &Pipeline) -> Result<Vec<Value>, Trouble> {
        let line = self.connection().await?;
        match pipe.query_async(&mut line.connection.clone()).await {
            Ok(values) => Ok(values),
            Err(error) => {
                if error.code().is_none() {
                    self.forget().await;
                }
                Err(error.into())
            }
        }
    }

    pub(super) const fn address(&self) -> &ServerAddress {
        self.dial.address()
    }

    /// How it is reached.
    pub(super) const fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Why it is left alone, if it is.
    pub(super) fn trouble(&self) -> Option<String> {
        let health = self.health.lock();
        health.rests_until.map(|_| health.why.clone())
    }

    /// The next call makes a new connection.
    async fn forget(&self) {
        self.losses.count();
        *self.line.lock().await = None;
    }

    async fn send(
        &self,
        line: &ServerConnection,
        command: Cmd,
        manner: Manner,
    ) -> Result<Value, RedisError> {
        let mut connection = line.connection.clone();
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

    async fn connection(&self) -> Result<ServerConnection, Trouble> {
        let mut kept = self.line.lock().await;
        if let Some(line) = &*kept {
            return Ok(line.clone());
        }
        // Set aside: it is large and rare, and every call would carry it.
        let line = Box::pin(self.dial.connect(self.patience)).await?;
        if self.role == Role::Primary {
            self.check_role(&line).await?;
        }
        self.losses.count();
        *kept = Some(line.clone());
        Ok(line)
    }

    async fn check_role(&self, line: &ServerConnection) -> Result<(), Trouble> {
        let address = self.dial.address();
        let role = redis::cmd("ROLE");
        match role.query_async(&mut line.connection.clone()).await {
            Ok(Value::Array(role))
                if role.first() == Some(&Value::BulkString(b"master".into())) =>
            {
                Ok(())
            }
            Ok(_) => Err(Trouble::Later(format!("{address} is no primary"))),
            Err(error) if error.code().is_some() => Err(error.into()),
            Err(error) => Err(Trouble::Absent(format!("{address}: {error}"))),
        }
    }
}

/// A call under way. One that is given up by who waits for it has failed, if it was given
/// time; the others say themselves how they end.
struct Attempt<'a> {
    node: &'a Arc<RedisNode>,
    key: Option<&'a [u8]>,
    started: Instant,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.started.elapsed() >= self.node.patience {
            let why = format!("{}: no answer", self.node.address());
            self.node.failed(&why, self.key);
        }
    }
}
