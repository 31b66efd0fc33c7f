//! Facts: the facts about a request for a policy.

use http::header;
use ratekeeper_policy::Facts;

use crate::tower::head::RequestHead;

/// Attributes of a request, set by the application.
pub(super) type Attributes = Vec<(&'static str, String)>;

/// Returns the facts of a request without those of its client: method, host, path and query.
///
/// ```
/// use ratekeeper::tower::target;
/// let request = http::Request::post("/login?next=/").body(()).unwrap();
/// let facts = target(&request);
/// assert_eq!((facts.method, facts.path), ("POST", "/login"));
/// ```
pub fn target<'h>(head: impl Into<RequestHead<'h>>) -> Facts<'h> {
    let head = head.into();
    Facts {
        method: head.method.as_str(),
        host: host(head),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        ..Facts::default()
    }
}

/// Returns the host of the target, as in HTTP/2, or else the header's.
fn host(head: RequestHead<'_>) -> &str {
    if let Some(authority) = head.uri.authority() {
        // Text before an `@` is no part of the host.
        let text = authority.as_str();
        return text.rsplit_once('@').map_or(text, |(_, host)| host);
    }
    let stated = head.headers.get(header::HOST);
    let stated = stated.and_then(|value| value.to_str().ok());
    stated.unwrap_or_default()
}
