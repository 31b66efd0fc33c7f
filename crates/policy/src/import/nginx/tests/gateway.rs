//! What a gateway in place of nginx would serve otherwise.

use super::{import, lists};

const APP: &str = "location / { proxy_pass http://10.0.0.1; }";

#[test]
fn names_of_routes_are_names_of_the_language() {
    let inner = "location /api/ { proxy_pass http://10.0.0.2; }";
    let policy = import(&format!(
        "server {{ server_name shop.example.com; {APP} {inner} }}"
    ));
    let name = "name = \"location-api-of-server-shop-example-co-1\"";
    assert!(policy.contains(name), "{policy}");
    assert!(!policy.contains("UNSUPPORTED"), "{policy}");
}

#[test]
fn a_refused_route_takes_no_other_away() {
    let servers = |count: usize| {
        let locations = (0..count)
            .map(|number| format!("location /{number}/ {{ proxy_pass http://10.0.1.{number}; }}"));
        format!("server {{ {APP} {} }}", locations.collect::<String>())
    };
    let odd =
        "server { server_name b\u{fc}cher.example; location / { proxy_pass http://10.0.0.3; } }";
    let policy = import(&format!("{} {odd}", servers(2)));
    assert!(policy.contains("[listen.proxy]\nupstream = "), "{policy}");
    assert!(
        policy.contains("\nmatch = { path = \"/0/**\" }"),
        "{policy}"
    );
    let why = "UNSUPPORTED location / of server b\u{fc}cher.example: not imported: ";
    assert!(policy.contains(why), "{policy}");
    // A gateway has 64 routes.
    let policy = import(&servers(66));
    let routes = policy.matches("\n[[listen.proxy.route]]").count();
    assert_eq!(routes, 64, "{policy}");
    assert_eq!(policy.matches("UNSUPPORTED").count(), 2, "{policy}");
}

/// nginx answers requests for it by 404, and sends requests of its own to it.
#[test]
fn an_internal_location_has_no_route() {
    let protected = "location /files/ { internal; proxy_pass http://10.0.0.2; \
                     location /files/a/ { proxy_pass http://10.0.0.3; } }";
    for inner in [
        protected,
        "location = /auth { internal; proxy_pass http://10.0.0.2; }",
    ] {
        let text = format!("server {{ {APP} {inner} }}");
        let policy = import(&text);
        assert!(!policy.contains("[[listen.proxy.route]]"), "{policy}");
        lists(
            &text,
            &[
                "it has no `proxy_pass` for requests of clients; the gateway forwards them",
            ],
        );
    }
    let policy = import(&format!("server {{ {protected} }}"));
    assert!(!policy.contains("[listen.proxy]"), "{policy}");
}

#[test]
fn servers_of_another_address_or_port_are_not_lost() {
    let server = |listen: &str, name: &str, number: u8| {
        format!(
            "server {{ listen {listen}; {name} \
             location / {{ proxy_pass http://10.0.0.{number}; }} }}"
        )
    };
    let named = "server_name a.example;";
    for (first, second, why) in [
        (
            "203.0.113.1:80",
            "10.0.0.1:80",
            "at another port or address",
        ),
        ("8080-8085", "80", "at another port or address"),
        ("10.0.0.1", "80", "at another port or address"),
        (
            "80",
            "0.0.0.0:80",
            "servers before it have its names and ports",
        ),
        ("80", "*:80", "servers before it have its names and ports"),
        (
            "[::]:80",
            "80",
            "servers before it have its names and ports",
        ),
        ("unix:/run/a", "unix:/run/b", "at another port or address"),
    ] {
        lists(
            &format!("{} {}", server(first, named, 1), server(second, named, 2)),
            &[why],
        );
    }
    lists(
        &format!("{} {}", server("80", "", 1), server("8080", "", 2)),
        &["it has no name, and is not the default server"],
    );
}
