//! Permits on loan of a real service: exact under a rush, and returned after a holder has crashed.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::application::{Application, EXPRESS_ROUTES, Framework};
use crate::harness::clock;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::{Answer, Visitor};

const LIMITS: &str = r#"
[[limit]]
name = "in-flight"
key = ["attr:pool"]
concurrency = { max = 10, lease = "5s" }
"#;
const LEASE: Duration = Duration::from_secs(5);
/// Enough on a busy machine.
const SOON_AFTER: Duration = Duration::from_secs(10);

fn ids(answer: &Answer) -> Vec<Value> {
    let json: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
    let permits = json["permits"].as_array().cloned().unwrap_or_default();
    permits
        .into_iter()
        .map(|mut each| each["id"].take())
        .collect()
}

#[test]
fn a_rush_takes_ten_and_a_crashed_holder_loses_them_at_the_expiry() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &write_policy(dir.path(), LIMITS));
    let http = service.http();
    let acquire = move |pool: &str| {
        let body = json!({ "attributes": { "pool": pool } }).to_string();
        Visitor::at(2).post_json(http, "/v1/acquire", &body)
    };
    let begun = clock::now();
    let rush: Vec<_> = (0..40)
        .map(|_| thread::spawn(move || acquire("a")))
        .collect();
    let answers: Vec<Answer> = rush
        .into_iter()
        .map(|one| one.join().expect("no request of the rush panics"))
        .collect();
    let held: Vec<Value> = answers.iter().flat_map(ids).collect();
    assert_eq!(held.len(), 10);
    let refusals = answers.iter().filter(|one| one.status == 429);
    assert_eq!(refusals.count(), 30);
    let refused = answers.iter().find(|one| one.status == 429);
    let wait = refused.and_then(Answer::retry_after);
    assert!(
        wait.is_some_and(|wait| wait >= Duration::from_secs(1)),
        "{wait:?}"
    );

    // No holder gives back, so no caller waits in vain for longer than the lease.
    let again = clock::poll("permit that came back", LEASE + SOON_AFTER, || {
        Some(acquire("a")).filter(|one| one.status == 200)
    });
    assert!(again.is_ok(), "{:?}", again.err());
    let after = begun.elapsed();
    assert!(after >= LEASE, "it came back early: {after:?}");

    let ours = ids(&acquire("b"));
    let release = || {
        let body = json!({ "permits": ours }).to_string();
        let answer = Visitor::at(2).post_json(http, "/v1/release", &body);
        let json: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
        (answer.status, json["permits"][0]["released"].clone())
    };
    assert_eq!(release(), (200, json!(1)));
    assert_eq!(release(), (200, json!(0)));
    let expired = service.metric("ratekeeper_leases_expired_total{limit=\"in-flight\"}");
    assert!(expired >= 1.0, "{expired}");
}

/// Sends the start of a request. The connection is closed when the result is dropped.
fn send(gateway: SocketAddr, start: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway).expect("the gateway listens");
    stream
        .write_all(start.as_bytes())
        .expect("a request is short");
    stream
}

#[test]
fn no_more_requests_work_than_the_limit_says_though_their_clients_leave() {
    const STARTS: [&str; 4] = [
        "GET /held HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
        "POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nh",
        "POST /held HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n",
    ];
    let limits = "[[limit]]\nname = \"in-flight\"\nkey = [\"all\"]\n\
                  concurrency = { max = 7, lease = \"60s\" }\n";
    let open = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000/1h\"\n";
    let adaptive = "adaptive_concurrency = { min = 7, max = 7 }\n";
    for (listener, limits, refused) in [("", limits, 429), (adaptive, open, 503)] {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let Some(application) = Application::start(Framework::Express, EXPRESS_ROUTES, dir.path())
        else {
            return;
        };
        let policy = format!(
            "version = 1\n[listen.proxy]\nupstream = \"http://{}\"\n{listener}{limits}",
            application.address()
        );
        let path = dir.path().join("ratekeeper.toml");
        std::fs::write(&path, policy).expect("the test's directory is writable");
        let (_gateway, gateway) = super::gateway::gateway(dir.path(), &["run"]);
        let work = || {
            let body = Visitor::at(2).get(application.address(), "/most").body;
            serde_json::from_str::<Value>(&body).expect("an answer is JSON")
        };
        for (before, start) in STARTS.iter().cycle().take(7).enumerate() {
            let client = send(gateway, start);
            let begun = clock::poll("request at work", SOON_AFTER, || {
                (work()["atWork"] == before + 1).then_some(())
            });
            begun.unwrap_or_else(|error| panic!("{error}: {start:?}"));
            drop(client);
        }
        let leaving = STARTS.map(|start| {
            thread::spawn(move || {
                for _ in 0..50 {
                    let _leaves = send(gateway, &start.replace("/held", "/work"));
                    clock::wait(Duration::from_millis(5));
                    let stays = Visitor::at(2).get(gateway, "/work").status;
                    assert_eq!(stays, refused);
                }
            })
        });
        for clients in leaving {
            clients.join().expect("none is served");
        }
        assert_eq!(work()["most"], 7);
        Visitor::at(2).get(application.address(), "/end");
        let free = clock::poll("end of the work", SOON_AFTER, || {
            let served = Visitor::at(2).get(gateway, "/work").status == 200;
            (work()["atWork"] == 0 && served).then_some(())
        });
        free.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn paid_requests_pass_while_a_slow_application_sheds_others() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(application) = Application::start(Framework::Express, EXPRESS_ROUTES, dir.path())
    else {
        return;
    };
    let policy = format!(
        "version = 1\n[listen.proxy]\nupstream = \"http://{}\"\n\
         adaptive_concurrency = {{ min = 5, max = 5, priority = {{ last = \"20%\", \
         match = {{ header.x-plan = \"paid\" }} }} }}\n\
         [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000/1h\"\n",
        application.address()
    );
    std::fs::write(dir.path().join("ratekeeper.toml"), policy).expect("it is writable");
    let (_gateway, gateway) = super::gateway::gateway(dir.path(), &["run"]);
    let work = || {
        let body = Visitor::at(2).get(application.address(), "/most").body;
        serde_json::from_str::<Value>(&body).expect("an answer is JSON")
    };
    let others: Vec<_> = (1..=4)
        .map(|at_work| {
            let other = thread::spawn(move || Visitor::at(2).get(gateway, "/held").status);
            let begun = clock::poll("request at work", SOON_AFTER, || {
                (work()["atWork"] == at_work).then_some(())
            });
            begun.unwrap_or_else(|error| panic!("{error}"));
            other
        })
        .collect();
    let paid = Visitor::at(3).with("x-plan", "paid");
    for _ in 0..3 {
        assert_eq!(Visitor::at(2).get(gateway, "/work").status, 503);
        assert_eq!(paid.get(gateway, "/work").status, 200);
    }
    assert_eq!(work()["most"], 5, "four of others, and a paid one");
    Visitor::at(2).get(application.address(), "/end");
    for other in others {
        assert_eq!(other.join().expect("none panics"), 200);
    }
}
