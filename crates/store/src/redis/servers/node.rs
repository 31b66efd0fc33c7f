//! Node: one server, one connection that all calls share, and the server's health.
//!
//! ```text
//!   call --> connection (made when first needed) --> EVALSHA --> answer
//!                ^                                      |
//!                |  NOSCRIPT: EVAL, the whole text  <--+
//!                +-- lost, or too slow: the next call makes a new one
//! ```
//!
//! [`Trouble`] shows whether a failed call may be sent again, because a decision that ran twice
//! would charge twice.
//!
//! After [`FAILURES`] failures in a row a server rests: calls fail at once, and a task probes
//! whether it is back. Being out of memory, refusing the login, and not being ready for as long
//! as calls wait are failures too, so the probe is a write.

mod probe;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::dial::{Dial, ServerAddress, ServerConnection};
use crate::redis::hints::Losses;
use crate::redis::script::Script;
use crate::redis::trouble::{Trouble, code};
use probe::Probed;

/// Wait before a call that could not run is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Returns the timeout of a node: a little less than the deadline, so that the waiting call
/// gives up a connection that hangs, and does not keep it for the next.
pub(crate) fn patience(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 8)
}

/// How a call is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    Plain,
    /// After `ASKING`, to a node that is taking the slot over.
    Asking,
}

/// A script, its keys and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptCall<'a> {
    script: &'a Script,
    pub(crate) keys: &'a [&'a [u8]],
    arguments: &'a [Vec<u8>],
}

impl<'a> ScriptCall<'a> {
    pub(crate) const fn new(
        script: &'a Script,
        keys: &'a [&'a [u8]],
        arguments: &'a [Vec<u8>],
    ) -> Self {
        Self {
            script,
            keys,
            arguments,
        }
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

/// Failures in a row after which a server rests.
const FAILURES: u32 = 3;
/// How long a server rests without being probed: if the probing task does not run, the next
/// call finds out.
const REST: Duration = Duration::from_secs(2);

/// The role that a server must have, to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeRole {
    /// Any role, without a check.
    Any,
    /// A primary; checked on every new connection, because a primary may have become a replica.
    Primary,
}

/// A server.
#[derive(derive_more::Debug)]
#[debug("RedisNode({})", dial.address())] // the login is a secret
pub(crate) struct RedisNode {
    dial: Dial,
    role: NodeRole,
    patience: Duration,
    /// Counts connections made and lost.
    losses: Losses,
    line: Mutex<Option<ServerConnection>>,
    health: parking_lot::Mutex<NodeHealth>,
}

/// The health of a server.
#[derive(Debug, Default)]
struct NodeHealth {
    /// Failures in a row.
    failures: u32,
    /// True if the last call was decided; `None` before the first, or if another node decides.
    decides: Option<bool>,
    /// When not being ready was last counted as a failure.
    unready: Option<Instant>,
    /// End of its rest.
    rests_until: Option<Instant>,
    why: String,
    /// True while a task probes it.
    is_probed: bool,
}

impl NodeHealth {
    fn is_well(&mut self) {
        self.failures = 0;
        self.unready = None;
        self.rests_until = None;
    }
}

impl RedisNode {
    /// Creates a server with the timeout `patience`, for connecting and for answering each.
    pub(crate) fn new(dial: Dial, role: NodeRole, patience: Duration, losses: Losses) -> Self {
        Self {
            dial,
            role,
            patience,
            losses,
            line: Mutex::default(),
            health: parking_lot::Mutex::default(),
        }
    }

    /// Runs a script, unless the server rests.
    pub(crate) async fn run(
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

    /// Returns an error if the server rests.
    fn is_asked(&self, now: Instant) -> Result<(), Trouble> {
        let health = self.health.lock();
        match health.rests_until {
            Some(until) if now < until => Err(Trouble::Resting(health.why.clone())),
            _ => Ok(()),
        }
    }

    /// Returns the number of failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.health.lock().failures
    }

    /// Returns whether the last call was decided; `None` before the first, or if another node
    /// decides.
    pub(crate) fn decides(&self) -> Option<bool> {
        self.health.lock().decides
    }

    /// Counts a failure because the server is not ready, but only one in the time that a call
    /// may take, so that a short unreadiness is waited out.
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

    /// Counts a failure, over this key.
    fn failed(self: &Arc<Self>, why: &str, key: Option<&[u8]>) {
        let was_probed = {
            let mut health = self.health.lock();
            health.failures = health.failures.saturating_add(1);
            health.decides = Some(false);
            if health.failures < FAILURES {
                return;
            }
            health.rests_until = Some(Instant::now() + REST);
            health.why = format!("{why}; calls resume when it answers a probe");
            std::mem::replace(&mut health.is_probed, true)
        };
        // A runtime that shuts down drops the task at once, and that drop takes the lock.
        if !was_probed {
            let probed = Probed::new(self, key);
            tokio::spawn(async move { probed.until_back().await });
        }
    }

    async fn send_to(&self, call: ScriptCall<'_>, manner: Manner) -> Result<Value, Trouble> {
        let connection = self.connection().await?;
        let by_name = call.command("EVALSHA", &call.script.hash);
        let answer = match self.send(&connection, by_name, manner).await {
            // It did not run: the server was restarted, or its scripts were flushed. `EVAL`
            // loads and runs the text in one step, so no flush can come between.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let in_full = call.command("EVAL", &call.script.text);
                self.send(&connection, in_full, manner).await
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
    pub(crate) async fn query(&self, command: &Cmd) -> Result<Value, Trouble> {
        let line = self.connection().await?;
        let answer = command.query_async(&mut line.connection.clone()).await;
        self.answered(answer).await
    }

    /// Runs commands that change nothing, at one moment; returns all answers, or the first error.
    pub(crate) async fn query_all(&self, pipe: &Pipeline) -> Result<Vec<Value>, Trouble> {
        let line = self.connection().await?;
        let answer = pipe.query_async(&mut line.connection.clone()).await;
        self.answered(answer).await
    }

    /// Drops the connection if the server did not answer.
    async fn answered<T>(&self, answer: Result<T, RedisError>) -> Result<T, Trouble> {
        if answer.as_ref().is_err_and(|error| error.code().is_none()) {
            self.forget().await;
        }
        Ok(answer?)
    }

    pub(crate) const fn address(&self) -> &ServerAddress {
        self.dial.address()
    }

    /// Returns how the server is reached.
    pub(crate) const fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Returns why the server rests; `None` if it does not.
    pub(crate) fn trouble(&self) -> Option<String> {
        let health = self.health.lock();
        health.rests_until.map(|_| health.why.clone())
    }

    /// Drops the connection, so that the next call makes a new one.
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
        if let Some(line) = kept.as_ref().filter(|line| !line.has_ended()) {
            return Ok(line.clone());
        }
        // Rare and large: boxed to keep it out of the future of every call.
        let line = Box::pin(self.dial.connect(self.patience)).await?;
        if self.role == NodeRole::Primary {
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
            Ok(_) => Err(Trouble::Later(format!("{address} is not a primary"))),
            Err(error) if error.code().is_some() => Err(error.into()),
            Err(error) => Err(Trouble::Absent(format!("{address}: {error}"))),
        }
    }
}

/// A call in progress. If its caller gives it up after `patience`, that counts as a failure;
/// calls that end are counted by their result.
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
