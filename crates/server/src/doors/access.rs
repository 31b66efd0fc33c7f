//! Access: who may change balances.
//!
//! On the http door: the operator, who is on this machine or has the token. A request that
//! was forwarded comes from somewhere else, whatever its peer; and one that a browser
//! sends on behalf of a page (`Origin`) is that page's idea, not the operator's.

use std::net::IpAddr;

use http::{HeaderMap, header};

use super::problem::{NOT_LOCAL, Problem};
use crate::shared::Token;

/// Headers that only a proxy adds.
const FORWARDED: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "via"];

/// Whether the request presents the token.
pub(crate) fn bearer_ok(token: &Token, headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return false;
    };
    let Some((scheme, presented)) = value.as_bytes().split_at_checked(7) else {
        return false;
    };
    scheme.eq_ignore_ascii_case(b"bearer ") && token.matches(presented)
}

/// Refuses whoever may not change balances at the http door.
pub(super) fn operator_only(
    peer: IpAddr,
    headers: &HeaderMap,
    token: Option<&Token>,
) -> Result<(), Problem> {
    if token.is_some_and(|token| bearer_ok(token, headers)) {
        return Ok(());
    }
    let forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
    let by_page = headers.contains_key(header::ORIGIN);
    if peer.to_canonical().is_loopback() && !forwarded && !by_page {
        return Ok(());
    }
    let detail = "call it from this machine, directly, or present the admin token";
    Err(Problem::new(NOT_LOCAL, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_change_balances() {
        let token = Token::new("secret").unwrap();
        let check = |peer: &str, name: &'static str, value: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            if !name.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
            let result = operator_only(peer.parse().unwrap(), &headers, Some(&token));
            assert_eq!(result.is_ok(), expected, "{peer} {name}: {value}");
        };
        check("127.0.0.1", "", "", true);
        check("::1", "", "", true);
        check("::ffff:127.0.0.1", "", "", true);
        check("192.0.2.1", "", "", false);
        check("127.0.0.1", "x-forwarded-for", "192.0.2.1", false);
        check("127.0.0.1", "forwarded", "for=192.0.2.1", false);
        check("127.0.0.1", "origin", "null", false);
        check("192.0.2.1", "authorization", "Bearer secret", true);
        check("192.0.2.1", "authorization", "bearer secret", true);
        check("192.0.2.1", "authorization", "Bearer secre", false);
        check("192.0.2.1", "authorization", "Basic secret", false);
        check("192.0.2.1", "authorization", "Bearer", false);
    }
}
