//! Write log: a line for each call of an operator that may have changed something.
//!
//! ```text
//!   call --access--> refused: no line        let in --> its answer: `admin.write`
//! ```
//!
//! Written in one place, so that no such call is without a line. The key is in the query or in the
//! body, which are left out: the events of a change show it as far as the policy says.

use std::net::SocketAddr;

use http::Method;
use http::request::Parts;

use super::CallResult;
use super::problem::shown;
use crate::observe::changes;
use crate::serve::listener::Caller;

/// A call that was let in.
#[derive(Debug)]
pub(crate) struct WriteCall {
    method: Method,
    path: String,
    caller: SocketAddr,
}

impl WriteCall {
    pub(crate) fn new(caller: Caller<'_>, head: &Parts) -> Self {
        Self {
            method: head.method.clone(),
            path: shown(head.uri.path()),
            caller: caller.address,
        }
    }

    /// Awaits the answer, in which changes are those of the caller, and writes the line.
    pub(crate) async fn answered(self, answer: impl Future<Output = CallResult>) -> CallResult {
        let answered = changes::by(self.caller, answer).await;
        let status = match &answered {
            Ok(response) => response.status().as_u16(),
            Err(problem) => problem.status(),
        };
        tracing::info!(
            event = "admin.write",
            caller = %self.caller,
            method = self.method.as_str(),
            path = self.path,
            status,
        );
        answered
    }
}
