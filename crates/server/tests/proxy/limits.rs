//! Limits of requests that are forwarded.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::message::read_response;
use super::upstream::{Next, Upstream};
use ratekeeper_server::Door;

use super::{Client, OPEN, Proxy, eventually, sleep};

pub(super) const ONE: &str = "[[limit]]\nname = \"one\"\nkey = [\"ip\"]\nlimit = \"1/1h\"\n";

#[test]
fn a_proxy_that_is_not_trusted_is_noticed_once() {
    let upstream = Upstream::hello();
    for (trusted, fields, expected) in [
        ("", "x-forwarded-for: 192.0.2.1\r\n", 1),
        ("", "forwarded: for=192.0.2.1\r\n", 1),
        ("", "x-real-ip: 192.0.2.1\r\n", 1),
        ("", "cf-connecting-ip: 192.0.2.1\r\n", 1),
        ("", "x-client: 192.0.2.1\r\n", 0),
        (
            "[client_ip]\nheader = \"x-client\"\ntrusted_proxies = [\"10.0.0.5\"]\n",
            "x-client: 192.0.2.1\r\n",
            1,
        ),
        ("", "", 0),
        (
            "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n",
            "x-forwarded-for: 192.0.2.1\r\n",
            0,
        ),
    ] {
        let proxy = Proxy::start(&[upstream.address], "", &format!("{trusted}{OPEN}"));
        for _ in 0..2 {
            let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
            assert_eq!(proxy.client().ask(&request).status(), 200);
        }
        let mut admin = Client::new(proxy.service.address(Door::Admin).unwrap());
        let page = admin.ask("GET /v1/dashboard HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let notices = page.text().matches("RK-W101").count();
        assert_eq!(notices, expected, "{trusted} {fields}");
    }
}

#[test]
fn a_trusted_proxy_that_names_no_client_is_noticed_when_it_is_refused() {
    let upstream = Upstream::hello();
    for (field, value, expected) in [
        ("x-forwarded-for", "unknown", 1),
        ("x-forwarded-for", "192.0.2.1", 0),
        ("x-forwarded-for", "127.0.0.1", 0),
        ("x-real-ip", "192.0.2.1", 1),
        ("x-other", "192.0.2.1", 0),
        // Another proxy is between the client and the trusted one.
        ("x-forwarded-for", "192.0.2.1, 10.0.0.5", 1),
        ("x-forwarded-for", "10.0.0.7, 10.0.0.5", 1),
        ("x-forwarded-for", "192.0.2.1, 192.0.2.2", 0),
        ("x-forwarded-for", "10.0.0.5", 0),
        ("x-forwarded-for", "unknown, 10.0.0.5", 0),
        ("x-forwarded-for", "10.0.0.5, 127.0.0.1", 0),
    ] {
        let trusted = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n";
        let proxy = Proxy::start(&[upstream.address], "", &format!("{trusted}{ONE}"));
        for status in [200, 429] {
            let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{field}: {value}\r\n\r\n");
            assert_eq!(proxy.client().ask(&request).status(), status);
        }
        let mut admin = Client::new(proxy.service.address(Door::Admin).unwrap());
        let page = admin.ask("GET /v1/dashboard HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let notices = page.text().matches("clients count as one").count();
        assert_eq!(notices, expected, "{field}: {value}");
    }
}

#[test]
fn a_refusal_has_the_form_that_its_client_reads() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "cors = [\"https://app.example\"]", ONE);
    let mut client = proxy.client();
    assert_eq!(client.get("/").status(), 200);
    let mut refused = |fields: &str| {
        let response = client.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
        assert!(response.one("ratelimit").is_some(), "{response:?}");
        response
    };
    let problem = refused("");
    assert_eq!(problem.status(), 429);
    assert_eq!(
        problem.one("content-type"),
        Some("application/problem+json")
    );
    assert!(
        problem.text().contains("quota-exceeded"),
        "{}",
        problem.text()
    );
    assert!(problem.one("retry-after").is_some() && problem.one("x-request-id").is_some());
    let page = refused("accept: text/html,*/*;q=0.8\r\n");
    assert_eq!(page.one("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<h1>429</h1>"));
    assert!(
        refused("accept: text/plain\r\n")
            .text()
            .starts_with("Too many requests. Try again in ")
    );
    let call = refused("content-type: application/grpc\r\n");
    assert_eq!((call.status(), call.one("grpc-status")), (200, Some("8")));
    assert!(call.one("grpc-status-details-bin").is_some() && call.body.is_empty());
    let pushback: u64 = call.one("grpc-retry-pushback-ms").unwrap().parse().unwrap();
    assert!((1..=3_600_000).contains(&pushback), "{pushback}");
    let readable = refused("origin: https://app.example\r\n");
    assert_eq!(
        readable.one("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(
        readable
            .one("access-control-expose-headers")
            .unwrap()
            .contains("Retry-After")
    );
    let other = refused("origin: https://evil.example\r\n");
    assert_eq!(other.one("access-control-allow-origin"), None);
    let head = client.ask("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(head.status(), 429);
    // A body would be read as the next response.
    assert_eq!(client.get("/").status(), 429);
    drop(upstream.seen());
    assert!(upstream.saw_nothing(), "refused requests are not forwarded");
    assert_eq!(
        proxy.metric("ratekeeper_requests_total{protocol=\"proxy\",result=\"denied\"}"),
        8
    );
}

#[test]
fn a_limit_counts_no_field_that_connection_names() {
    let upstream = Upstream::hello();
    let limits = "[[limit]]\nname = \"key\"\nkey = [\"header:x-api-key\"]\n\
                  missing_key = \"use:ip\"\nlimit = \"2/1h\"\n";
    let proxy = Proxy::start(&[upstream.address], "", limits);
    let statuses: Vec<u16> = (0..4)
        .map(|made_up| {
            let request = format!(
                "GET / HTTP/1.1\r\nhost: a\r\nx-api-key: {made_up}\r\n\
                 connection: close, X-Api-Key\r\n\r\n"
            );
            proxy.client().ask(&request).status()
        })
        .collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(upstream.seen().one("x-api-key"), None);
}

#[test]
fn an_application_reads_no_field_for_one_that_a_limit_reads() {
    let upstream = Upstream::hello();
    let limits = "[plan]\nfrom = \"header:x-plan\"\ndefault = \"free\"\n\
                  [[limit]]\nname = \"key\"\nkey = [\"header:x-api-key\"]\n\
                  match = { header.x-app = \"!web\" }\nmissing_key = \"skip\"\n\
                  limit = \"2/1h\"\nplans = { pro = \"9/1h\" }\n";
    let proxy = Proxy::start(&[upstream.address], "", limits);
    let request = "GET / HTTP/1.1\r\nhost: a\r\nX_Api_Key: 1\r\nx-api_key: 2\r\nx_app: web\r\n\
                   x_plan: pro\r\nx_other: kept\r\n\r\n";
    assert_eq!(proxy.client().ask(request).status(), 200);
    let seen = upstream.seen();
    for (name, value) in [
        ("x_api_key", None),
        ("x-api_key", None),
        ("x_app", None),
        ("x_plan", None),
        ("x_other", Some("kept")),
    ] {
        assert_eq!(seen.one(name), value, "{name}");
    }
}

#[test]
fn the_body_of_a_refused_request_is_not_read() {
    const HUGE: usize = 256 << 20;
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "max_body = \"1GiB\"", ONE);
    assert_eq!(proxy.client().get("/").status(), 200);
    for framing in [
        format!("content-length: {HUGE}"),
        "transfer-encoding: chunked".to_owned(),
    ] {
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let writing = thread::spawn(move || {
            let part = [b"1000\r\n", &[b'x'; 4096][..], b"\r\n"].concat();
            let mut sent = 0;
            while sent < HUGE && writer.write_all(&part).is_ok() {
                sent += part.len();
            }
            sent
        });
        let refused = read_response(&mut client.stream, "POST").unwrap();
        assert!(refused.status() == 429 && refused.is_whole);
        assert_eq!(refused.one("connection"), None);
        let sent = writing.join().unwrap();
        assert!(sent < HUGE, "the connection is closed: {sent}");
    }
    drop(upstream.seen());
    assert!(upstream.saw_nothing());
}

#[test]
fn the_own_body_of_a_limit_is_sent_in_every_form() {
    let upstream = Upstream::hello();
    let policy = format!(
        "{ONE}response = \"own\"\n[response.own.body]\n\
         type = \"application/problem+json\"\ntext = '{{\"title\":\"own\"}}'\n"
    );
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    assert_eq!(proxy.client().get("/").status(), 200);
    let page = "GET / HTTP/1.1\r\nhost: a\r\naccept: text/html\r\n\r\n";
    let refused = proxy.client().ask(page);
    assert_eq!(
        (refused.status(), refused.text()),
        (429, "{\"title\":\"own\"}")
    );
}

#[test]
fn fields_of_an_application_that_limits_too_are_kept() {
    for own in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "X-RateLimit-Used",
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{own}: 9\r\ncontent-length: 0\r\n\r\n");
        let upstream = Upstream::with(&response);
        let proxy = Proxy::start(&[upstream.address], "", ONE);
        let path = proxy.directory.path().join("ratekeeper.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let both = text.replacen("version = 1", "version = 1\nheaders = \"both\"", 1);
        std::fs::write(path, both).unwrap();
        proxy.reload();
        let response = proxy.client().get("/");
        let own = own.to_lowercase();
        assert_eq!(response.one(&own), Some("9"));
        for name in [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ] {
            assert_eq!(
                response.all(name).count(),
                usize::from(name == own),
                "{name}"
            );
        }
        assert_eq!(response.all("ratelimit").count(), 1);
    }
}

#[test]
fn a_refusal_without_the_store_does_not_say_that_a_quota_is_used() {
    let upstream = Upstream::hello();
    let policy =
        format!("{ONE}on_store_error = \"deny\"\n[store.redis]\nurl = \"redis://127.0.0.1:1\"\n");
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    let mut client = proxy.client();
    let mut refused = |fields: &str| {
        let response = client.ask(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
        assert_eq!(response.one("ratelimit"), None, "{response:?}");
        response
    };
    let problem = refused("");
    assert_eq!(
        (problem.status(), problem.one("retry-after")),
        (429, Some("1"))
    );
    assert!(
        problem.text().contains("#temporary-reduced-capacity"),
        "{}",
        problem.text()
    );
    assert!(
        problem
            .text()
            .contains("Limit one is at reduced capacity. Try again in 1 s.")
    );
    for accept in ["text/plain", "text/html"] {
        let page = refused(&format!("accept: {accept}\r\n"));
        assert!(
            page.text().contains("The service is at reduced capacity."),
            "{accept}"
        );
    }
    assert_eq!(
        refused("content-type: application/grpc\r\n").one("grpc-status"),
        Some("14")
    );
}

#[test]
fn a_request_without_a_response_is_charged() {
    let policy = "[[limit]]\nname = \"failures\"\nkey = [\"ip\"]\nlimit = \"2/1h\"\n\
        count = { status = [401] }\n";
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for _ in 0..2 {
        let broken = proxy
            .client()
            .ask(&format!("{head}2\r\nhi\r\nno length\r\n"));
        assert_eq!(broken.status(), 400, "{}", broken.text());
    }
    assert_eq!(proxy.client().get("/").status(), 429);
}

#[test]
fn the_status_of_the_response_is_the_result() {
    let upstream = Upstream::new(|visit| {
        let status = visit.request.start.split(['/', ' ']).nth(2).unwrap();
        let response = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        visit.stream.write_all(response.as_bytes()).unwrap();
        Next::Request
    });
    let policy = "[[limit]]\nname = \"failures\"\nkey = [\"ip\"]\nlimit = \"2/1h\"\n\
        count = { status = [401] }\nreset_on = { status = 204 }\n";
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let mut client = proxy.client();
    let mut ask = |status: &str| client.get(&format!("/{status}")).status();
    for _ in 0..5 {
        assert_eq!(ask("200"), 200, "other results give their charge back");
    }
    assert_eq!(
        [ask("401"), ask("204"), ask("401"), ask("401")],
        [401, 204, 401, 401]
    );
    assert_eq!(ask("200"), 429);
}

#[test]
fn permits_come_back_at_the_end_of_the_response() {
    let (end, ended) = channel();
    let ended = Mutex::new(ended);
    let upstream = Upstream::new(move |mut visit| {
        let end = visit.request.start.split(['/', ' ']).nth(2).unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
        let _ = visit.stream.write_all(head.as_bytes());
        match end {
            "whole" => {
                let _ = visit.stream.write_all(b"world");
                Next::Request
            }
            "reset" => Next::Close,
            "hold" => {
                ended.lock().unwrap().recv().unwrap();
                Next::Close
            }
            _ => {
                visit.until_closed();
                Next::Close
            }
        }
    });
    let policy =
        "[[limit]]\nname = \"work\"\nkey = [\"all\"]\nconcurrency = { max = 1, lease = \"1h\" }\n";
    let patient = Proxy::start(&[upstream.address], "", policy);
    let proxy = Proxy::start(&[upstream.address], "body_timeout = \"500ms\"", policy);
    for (proxy, target) in [
        (&patient, "/whole"),
        (&patient, "/reset"),
        (&patient, "/hold"),
        (&proxy, "/hang"),
    ] {
        let mut client = proxy.client();
        client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n"));
        // The head is there, so the permit is held, unless the body has ended already.
        let _ = std::io::BufRead::fill_buf(&mut client.stream);
        if target == "/hold" {
            assert_eq!(patient.client().get("/x").status(), 429);
            end.send(()).unwrap();
        }
        // Of a response that breaks off at once, not even the head may come.
        let response = read_response(&mut client.stream, "GET");
        let is_whole = response.is_some_and(|response| response.is_whole);
        assert_eq!(is_whole, target == "/whole", "{target}");
        for _ in 0..2 {
            eventually(target, || proxy.client().get("/whole").status() == 200);
        }
    }
    for (kind, counts) in [
        ("body_broken", [2, 0]),
        ("body_timeout", [0, 1]),
        ("refused", [0, 0]),
    ] {
        let name = format!("ratekeeper_upstream_errors_total{{route=\"\",kind=\"{kind}\"}}");
        assert_eq!(
            [&patient, &proxy].map(|it| it.metric(&name)),
            counts,
            "{kind}"
        );
    }
}

#[test]
fn a_request_keeps_its_permit_while_the_upstream_works_though_its_client_has_left() {
    let leave = |proxy: &Proxy, upstream: &Upstream, request: &str| {
        let mut leaver = proxy.client();
        leaver.send(request);
        drop(upstream.seen());
        assert_eq!(proxy.client().get("/").status(), 429);
        drop(leaver);
        eventually("the client has left", || {
            proxy.metric("ratekeeper_upstream_abandoned_total") == 1
        });
    };
    let comes_back = |proxy: &Proxy| {
        eventually("the permit came back", || {
            proxy.client().get("/").status() == 200
        });
    };
    let post = "POST /work HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    for (listener, lease) in [("", "1h"), ("", "1s"), ("response_timeout = \"1s\"", "1h")] {
        let (finish, work) = channel();
        let work = Mutex::new(work);
        let upstream = Upstream::new(move |visit| {
            if visit.request.start.contains("/work") {
                let _ = work.lock().unwrap().recv(); // an error: the test is over
            }
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let _ = visit.stream.write_all(response);
            Next::Request
        });
        let policy = format!(
            "[[limit]]\nname = \"work\"\nkey = [\"all\"]\n\
             concurrency = {{ max = 1, lease = \"{lease}\" }}\n"
        );
        let proxy = Proxy::start(&[upstream.address], listener, &policy);
        leave(&proxy, &upstream, post);
        if (listener, lease) == ("", "1h") {
            assert_eq!(proxy.client().get("/").status(), 429);
            finish.send(()).unwrap();
        }
        comes_back(&proxy);
        let _ = finish.send(());
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_body_frees_its_permit() {
    let upstream = Upstream::new(|visit| {
        let _ = visit
            .stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
        if visit.request.start.contains("/hang") {
            sleep(Duration::from_secs(60)); // the test is over long before
        }
        let _ = visit.stream.write_all(b"world");
        Next::Request
    });
    let policy =
        "[[limit]]\nname = \"work\"\nkey = [\"all\"]\nconcurrency = { max = 1, lease = \"1h\" }\n";
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let mut leaver = proxy.client();
    leaver.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
    std::io::BufRead::fill_buf(&mut leaver.stream).unwrap();
    assert_eq!(proxy.client().get("/").status(), 429);
    drop(leaver);
    eventually("the permit came back", || {
        proxy.client().get("/").status() == 200
    });
}

#[test]
fn a_queue_holds_requests_in_order_and_lets_go_of_clients_that_leave() {
    let upstream = Upstream::hello();
    let policy = "[[limit]]\nname = \"queue\"\nkey = [\"all\"]\nlimit = \"2/1s\"\nalgorithm = \"leaky-bucket\"\nqueue = { max = 100, max_wait = \"10s\" }\n";
    let proxy = Proxy::start_still(&upstream, "", policy);
    assert_eq!(proxy.client().get("/0").status(), 200);
    let mut waiting: Vec<Client> = Vec::new();
    for number in 1..=4 {
        let mut client = proxy.client();
        client.send(format!("GET /{number} HTTP/1.1\r\nhost: a\r\n\r\n"));
        waiting.push(client);
        let waits = "ratekeeper_queue_wait_seconds_count{limit=\"queue\"}";
        eventually("they join in this order", || proxy.metric(waits) == number);
    }
    drop(waiting.remove(1));
    let readers = waiting
        .into_iter()
        .map(|mut client| thread::spawn(move || client.response().status()));
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), 200);
    }
    // On a machine so slow that it leaves after its moment, it was forwarded like the others.
    let left = proxy.metric("ratekeeper_held_answers_ended_total{result=\"left\"}") == 1;
    for number in (0..=4).filter(|number| *number != 2 || !left) {
        let expected = format!("GET /{number} HTTP/1.1");
        assert_eq!(upstream.seen().start, expected);
    }
    assert!(upstream.saw_nothing());
}

#[test]
fn limits_in_shadow_mode_are_named() {
    let upstream = Upstream::hello();
    let policy = format!(
        "{OPEN}[[limit]]\nname = \"tight\"\nkey = [\"ip\"]\nlimit = \"1/1h\"\nmode = \"shadow\"\n"
    );
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    let mut client = proxy.client();
    assert_eq!(client.get("/").one("x-ratekeeper-shadow"), None);
    let response = client.get("/");
    assert_eq!(
        (response.status(), response.one("x-ratekeeper-shadow")),
        (200, Some("tight"))
    );
}
