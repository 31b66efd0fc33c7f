//! Preflights: the questions of browsers, their own limit, and the bans of what they ask about.

use ratekeeper_server::Door;

use super::limits::ONE;
use super::upstream::Upstream;
use super::{Client, Proxy, now};

fn preflight(origin: &str, method: &str, body: &str) -> String {
    format!(
        "OPTIONS / HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\n\
         access-control-request-method: {method}\r\n{body}"
    )
}

#[test]
fn preflights_have_a_limit_of_their_own() {
    let upstream = Upstream::hello();
    let listener = "cors = [\"https://app.example\"]\npreflight_limit = \"2/1h\"";
    let proxy = Proxy::start(&[upstream.address], listener, ONE);
    let mut client = proxy.client();
    let mut ask = || client.ask(&preflight("https://app.example", "PUT", "\r\n"));
    assert_eq!([ask(), ask()].map(|it| it.status()), [200, 200]);
    let refused = ask();
    assert_eq!(
        (refused.status(), refused.one("retry-after")),
        (429, Some("1"))
    );
    assert!(refused.text().contains("RK0528"), "{}", refused.text());
    assert_eq!(
        client.get("/").status(),
        200,
        "the limits do not count them"
    );
    let begun = now();
    let usual = Proxy::start(&[upstream.address], "cors = [\"https://app.example\"]", ONE);
    let mut client = usual.client();
    let mut ask = || {
        client
            .ask(&preflight("https://app.example", "PUT", "\r\n"))
            .status()
    };
    let passed = (0..700).filter(|_| ask() == 200).count();
    let refilled = usize::try_from(begun.elapsed().as_millis().div_ceil(100)).unwrap();
    assert!(
        (600..=600 + refilled).contains(&passed),
        "600, and ten a second: {passed}"
    );
}

#[test]
fn a_ban_refuses_the_preflights_of_what_it_refuses() {
    let upstream = Upstream::hello();
    let limits = "[[limit]]\nname = \"put\"\nmatch = { method = \"PUT\" }\nkey = [\"ip\"]\n\
                  limit = \"1/1h\"\nban = { after = 1, within = \"1h\", for = \"1h\" }\n";
    let proxy = Proxy::start(
        &[upstream.address],
        "cors = [\"https://app.example\"]",
        limits,
    );
    let mut client = proxy.client();
    let mut ask = |method| {
        let request = preflight("https://app.example", method, "\r\n");
        client.ask(&request).status()
    };
    let mut other = proxy.client();
    let mut put = || other.ask("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    assert_eq!((ask("PUT"), put().status(), ask("PUT")), (200, 200, 200));
    assert_eq!(put().status(), 429, "this begins the ban");
    assert_eq!((ask("PUT"), ask("GET")), (429, 200));
}

#[test]
fn a_ban_by_hand_refuses_preflights_under_limits_without_bans() {
    let upstream = Upstream::hello();
    let limit = "[[limit]]\nname = \"api\"\nkey = [\"ip\"]\nlimit = \"9/1h\"\n";
    let proxy = Proxy::start(
        &[upstream.address],
        "cors = [\"https://app.example\"]",
        limit,
    );
    let mut client = proxy.client();
    let mut ask = || {
        let request = preflight("https://app.example", "PUT", "\r\n");
        client.ask(&request).status()
    };
    assert_eq!(ask(), 200);
    let mut admin = Client::new(proxy.service.address(Door::Admin).unwrap());
    let ban = "POST /v1/bans?limit=api&key=127.0.0.1&for=1h HTTP/1.1\r\nhost: localhost\r\n\
               content-length: 0\r\n\r\n";
    assert_eq!(admin.ask(ban).status(), 200);
    assert_eq!(ask(), 429);
}

#[test]
fn preflights_of_listed_origins_are_forwarded_and_no_limit_counts_them() {
    let upstream =
        Upstream::with("HTTP/1.1 204 No Content\r\naccess-control-allow-origin: *\r\n\r\n");
    let start = || Proxy::start(&[upstream.address], "cors = [\"https://app.example\"]", ONE);
    let proxy = start();
    let mut client = proxy.client();
    for _ in 0..3 {
        let response = client.ask(&preflight("https://app.example", "PUT", "\r\n"));
        assert_eq!(
            (
                response.status(),
                response.one("access-control-allow-origin")
            ),
            (204, Some("*"))
        );
    }
    assert_eq!(client.get("/").status(), 204, "the one request is left");
    assert_eq!(
        client.ask("OPTIONS / HTTP/1.1\r\nhost: a\r\n\r\n").status(),
        429
    );
    // All else with such fields is charged as any request.
    for counted in [
        preflight("https://evil.example", "PUT", "\r\n"),
        preflight("https://app.example", "PUT", "content-length: 2\r\n\r\nhi"),
    ] {
        let proxy = start();
        let statuses = [(), ()].map(|()| proxy.client().ask(&counted).status());
        assert_eq!(statuses, [204, 429], "{counted}");
    }
}
