//! Routes: each needs the right that its table names.

use std::fmt::Write as _;

use ratekeeper_policy::AdminWrites;
use ratekeeper_server::{ADMIN_ROUTES, HTTP_ROUTES, ListenerRoute, Right};

use super::Fixture;
use super::client::Client;
use super::reviewed::assert_reviewed;

const POLICY: &str = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"5/1h\"\n";

/// Returns the status of a call of the route with nothing but a `Host`.
fn status(mut client: Client, route: &ListenerRoute) -> u16 {
    let method = route.methods.split(", ").next().unwrap();
    let method = if method == ListenerRoute::ANY {
        "GET"
    } else {
        method
    };
    let path = route.path.replace('*', "none");
    client.send(&format!("{method} {path}"), b"");
    client.answer(true).status
}

#[test]
fn the_tables() {
    let mut text = String::new();
    for (listener, routes) in [("admin", ADMIN_ROUTES), ("http", HTTP_ROUTES)] {
        for route in routes {
            let (methods, path) = (route.methods, route.path);
            writeln!(
                text,
                "{listener:<5} {methods:<9} {path:<23} {:?}",
                route.right
            )
            .unwrap();
        }
    }
    assert_reviewed!(text);
}

#[test]
fn a_route_is_closed_without_its_right() {
    let closed = |token: Option<&str>| {
        Fixture::with(POLICY, |mut config| {
            config.admin_writes = Some(AdminWrites::Token);
            config.admin_token = token.map(str::to_owned);
            config
        })
    };
    let (open, locked) = (closed(None), closed(Some("secret")));
    for route in ADMIN_ROUTES {
        let refused = status(open.admin(), route) == 403;
        assert_eq!(refused, route.right == Right::Write, "no token: {route:?}");
        let refused = status(locked.admin(), route) == 401;
        assert_eq!(refused, route.right != Right::Probe, "a token: {route:?}");
    }
    for route in HTTP_ROUTES {
        for fixture in [&open, &locked] {
            let refused = status(fixture.http(), route) == 403;
            assert_eq!(refused, route.right == Right::Write, "{route:?}");
        }
    }
}
