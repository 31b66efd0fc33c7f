//! Routes: other upstreams for some requests, and for those that a limit denies.

use super::upstream::Upstream;
use super::{OPEN, Proxy};

fn named(name: &'static str) -> Upstream {
    Upstream::with(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
        name.len()
    ))
}

fn route(name: &str, matches: &str, upstream: &Upstream) -> String {
    format!(
        "[[listen.proxy.route]]\nname = \"{name}\"\n{matches}\nupstream = \"http://{}\"\n",
        upstream.address
    )
}

#[test]
fn the_first_route_that_matches_takes_a_request() {
    let [usual, images, posts, spare] = ["usual", "images", "posts", "spare"].map(named);
    let routes = [
        route("spare", "", &spare),
        route(
            "images",
            "match = { host = \"img.example\", path = \"/img/**\" }",
            &images,
        ),
        route("posts", "match = { method = \"POST\" }", &posts),
    ];
    let proxy = Proxy::start(&[usual.address], &routes.concat(), OPEN);
    let mut client = proxy.client();
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nhost: img.example", "usual"),
        ("GET /img/a HTTP/1.1\r\nhost: img.example", "images"),
        ("GET /img/a HTTP/1.1\r\nhost: IMG.example:80", "images"),
        ("GET //img/./a?b HTTP/1.1\r\nhost: img.example", "images"),
        (
            "GET http://img.example/img/a HTTP/1.1\r\nhost: img.example",
            "images",
        ),
        ("GET /img/a HTTP/1.1\r\nhost: a.example", "usual"),
        (
            "POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 0",
            "posts",
        ),
        (
            "POST /img/a HTTP/1.1\r\nhost: img.example\r\ncontent-length: 0",
            "images",
        ),
    ] {
        let response = client.ask(&format!("{request}\r\n\r\n"));
        assert_eq!(
            (response.status(), response.text()),
            (200, expected),
            "{request}"
        );
    }
}

#[test]
fn a_limit_sends_what_it_denies_to_its_route_and_other_limits_refuse() {
    let [usual, images, spare] = ["usual", "images", "spare"].map(named);
    let routes = [
        route("images", "match = { path = \"/img\" }", &images),
        route("spare", "", &spare),
    ];
    let limits = "[[limit]]\nname = \"server\"\nkey = [\"all\"]\nlimit = \"2/1h\"\n\
                  on_limit = \"route:spare\"\n\
                  [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"5/1h\"\n";
    let proxy = Proxy::start(&[usual.address], &routes.concat(), limits);
    let mut client = proxy.client();
    for (target, expected) in [
        ("/", "usual"),
        ("/img", "images"),
        ("/", "spare"),
        ("/img", "spare"),
        ("/", "spare"),
    ] {
        let response = client.get(target);
        assert_eq!((response.status(), response.text()), (200, expected));
        assert_eq!(response.one("x-ratekeeper-shadow"), None);
    }
    let refused = client.get("/");
    assert_eq!(refused.status(), 429);
    assert!(refused.text().contains("\"all\""), "{}", refused.text());
    let decisions = |outcome: &str| {
        let labels = format!("limit=\"server\",outcome=\"denied\",mode=\"{outcome}\"");
        proxy.metric(&format!("ratekeeper_decisions_total{{{labels}}}"))
    };
    assert_eq!([decisions("shadow"), decisions("enforce")], [4, 0]);
}

#[test]
fn a_limit_with_a_route_refuses_what_has_no_count() {
    let [usual, spare] = ["usual", "spare"].map(named);
    let limits = "[[limit]]\nname = \"tenants\"\nkey = [\"header:x-tenant\"]\nlimit = \"1/1h\"\n\
                  missing_key = \"deny\"\non_limit = \"route:spare\"\n\
                  [[override]]\nlimit = \"tenants\"\n\
                  key = { \"header:x-tenant\" = \"banned\" }\nset = \"blocked\"\n";
    let proxy = Proxy::start(&[usual.address], &route("spare", "", &spare), limits);
    let mut client = proxy.client();
    for (field, expected) in [
        ("x-tenant: a\r\n", Ok("usual")),
        ("x-tenant: a\r\n", Ok("spare")),
        ("", Err(429)), // the key is missing
        ("x-tenant: banned\r\n", Err(429)),
    ] {
        let response = client.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{field}\r\n"));
        let found = match response.status() {
            200 => Ok(response.text()),
            status => Err(status),
        };
        assert_eq!(found, expected, "{field}");
    }
}

/// The example of the policy language: free plans leave the last part to others, and requests without
/// room go to the other server.
#[test]
fn a_limit_diverts_requests_without_priority_sooner() {
    let [usual, spare] = ["usual", "spare"].map(named);
    let limits = "[[limit]]\nname = \"server-total\"\nkey = [\"all\"]\nscope = \"node\"\n\
                  bucket = { size = 10, refill = \"1/1h\" }\nstatus = 503\n\
                  priority = { last = \"20%\", match = { header.x-plan = \"!free\" } }\n\
                  on_limit = \"route:spare\"\n";
    let proxy = Proxy::start(&[usual.address], &route("spare", "", &spare), limits);
    let mut client = proxy.client();
    let mut ask = |plan: &str| {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-plan: {plan}\r\n\r\n");
        let response = client.ask(&head);
        assert_eq!(response.status(), 200);
        response.text().to_owned()
    };
    for _ in 0..8 {
        assert_eq!(ask("free"), "usual");
    }
    for (plan, server) in [
        ("free", "spare"),
        ("pro", "usual"),
        ("free", "spare"),
        ("pro", "usual"),
        ("pro", "spare"),
    ] {
        assert_eq!(ask(plan), server, "{plan}");
    }
}
