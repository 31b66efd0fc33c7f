//! Routes: one table for each listener that people and programs call over HTTP.
//!
//! ```text
//!   methods  path         right     handler
//!   POST     "/v1/bans"   Write  => bans::add(..).await
//! ```
//!
//! The right is a part of the row, so a route without one does not compile; and a call with the
//! right [`Right::Write`] is logged by the table, not by its handler.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;

use super::CallResult;
use super::access::Right;
use super::body;
use super::problem::{Problem, UNKNOWN_PATH, shown};
use crate::context::ServiceContext;
use crate::observe::changes;
use crate::serve::listener::Caller;
use crate::serve::request_body::RequestBody;

/// A row of the table of a listener, without its handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenerRoute {
    /// The methods, with a comma and a blank between two; or [`ANY`](ListenerRoute::ANY).
    pub methods: &'static str,
    /// The path; or its start, with a `*` for the rest.
    pub path: &'static str,
    /// What the caller must be allowed to do.
    pub right: Right,
}

pub(crate) const GET: &str = "GET, HEAD";
pub(crate) const STREAM: &str = "GET";
pub(crate) const POST: &str = "POST";
pub(crate) const PUT: &str = "PUT";
pub(crate) const DELETE: &str = "DELETE";
pub(crate) const ANY: &str = ListenerRoute::ANY;

impl ListenerRoute {
    /// Every method.
    pub const ANY: &str = "*";

    fn is_at(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == self.path,
        }
    }

    fn has(&self, method: &Method) -> bool {
        let method = method.as_str();
        [ANY, method].contains(&self.methods) || self.methods.split(", ").any(|one| one == method)
    }
}

/// A call that fits no row.
#[derive(Debug)]
pub(crate) struct NoRoute {
    /// The right that its caller needs to learn so: that of the first row of the path.
    pub(crate) right: Right,
    pub(crate) problem: Problem,
}

/// Finds the row of a request in the table of a listener.
pub(crate) fn find(
    routes: &'static [ListenerRoute],
    listener: &'static str,
    head: &Parts,
) -> Result<&'static ListenerRoute, NoRoute> {
    let path = head.uri.path();
    let mut rows = routes.iter().filter(|route| route.is_at(path));
    let all = rows.clone();
    if let Some(route) = rows.find(|route| route.has(&head.method)) {
        return Ok(route);
    }
    let Some(first) = all.clone().next() else {
        let detail = format!("`{}` is not a path of the {listener} listener", shown(path));
        return Err(NoRoute {
            right: Right::Read,
            problem: Problem::new(UNKNOWN_PATH, detail),
        });
    };
    let methods = [GET, STREAM, POST, PUT, DELETE];
    let allow = methods.into_iter();
    let allow = allow.filter(|methods| all.clone().any(|route| route.methods == *methods));
    Err(NoRoute {
        right: first.right,
        problem: Problem::wrong_method(allow.collect::<Vec<_>>().join(", ")),
    })
}

/// A call that was let in.
#[derive(Debug)]
pub(crate) struct RouteCall<'a> {
    pub(crate) shared: &'a Arc<ServiceContext>,
    pub(crate) caller: Caller<'a>,
    pub(crate) route: &'static ListenerRoute,
    pub(crate) head: &'a Parts,
    pub(crate) body: RequestBody,
}

impl RouteCall<'_> {
    pub(crate) fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// Returns the part of the path for which the `*` of the route is.
    pub(crate) fn rest(&self) -> &str {
        let start = self.route.path.len().saturating_sub(1);
        self.head.uri.path().get(start..).unwrap_or_default()
    }

    pub(crate) async fn body(self, max: usize) -> Result<Bytes, Problem> {
        body::read(self.body, max, &self.shared.bodies).await
    }
}

/// Awaits the answer to a call that may change something, in which changes are those of the caller.
/// It is logged in one place, so that none is without a line. The key is in the query or in the
/// body, which are left out: the events of a change show it as far as the policy says.
pub(crate) async fn logged(
    head: &Parts,
    caller: SocketAddr,
    answer: impl Future<Output = CallResult>,
) -> CallResult {
    let answered = changes::by(caller, answer).await;
    let status = match &answered {
        Ok(response) => response.status().as_u16(),
        Err(problem) => problem.kind.status,
    };
    let (method, path) = (head.method.as_str(), shown(head.uri.path()));
    tracing::info!(event = "admin.write", %caller, method, path, status);
    answered
}

/// Makes the table of a listener, and the function that answers a call by it.
macro_rules! routes {
    (@answer Write $call:ident, $handler:expr) => {
        $crate::doors::routes::logged($call.head, $call.caller.address, async move { $handler })
            .await
    };
    (@answer $right:ident $call:ident, $handler:expr) => { $handler };
    (
        $(#[$about:meta])*
        $table:ident, |$call:ident| -> $body:ty, $finish:expr;
        $( $(#[$cfg:meta])* $methods:ident $path:literal $right:ident => $handler:expr, )*
    ) => {
        $(#[$about])*
        pub const $table: &[$crate::doors::routes::ListenerRoute] = &[
            $( $(#[$cfg])* $crate::doors::routes::ListenerRoute {
                methods: $crate::doors::routes::$methods,
                path: $path,
                right: $crate::doors::Right::$right,
            }, )*
        ];

        async fn routed(
            $call: $crate::doors::routes::RouteCall<'_>,
        ) -> Result<http::Response<$body>, $crate::doors::problem::Problem> {
            let answered = match ($call.route.methods, $call.route.path) {
                $( $(#[$cfg])* ($crate::doors::routes::$methods, $path) => {
                    $crate::doors::routes::routes!(@answer $right $call, $handler)
                } )*
                (methods, _) => Err($crate::doors::problem::Problem::wrong_method(methods)),
            };
            answered.map($finish)
        }
    };
}
pub(crate) use routes;
