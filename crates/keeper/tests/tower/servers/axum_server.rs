//! axum: the layer on a router.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path};
use axum::routing::get;
use ratekeeper::core::{Nanos, Permits};
use ratekeeper::tower::{RateLimitLayer, by_address};
use ratekeeper::{Clock, KeyedLimiter, Limiter};
use tokio::net::TcpListener;

use super::client::{Answer, Client, until};
use super::load::load;
use super::slow::{Slow, Torrent};

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// A handler that counts.
fn counting() -> (Router, Arc<AtomicUsize>) {
    let served = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&served);
    let handler = async move || {
        counted.fetch_add(1, Ordering::Relaxed);
        "hello"
    };
    (Router::new().route("/", get(handler)), served)
}

fn check_answers(answers: &[Answer], name: &str, quota: u32, window: u32) {
    for answer in answers {
        let policy = format!("\"{name}\";q={quota};w={window}");
        assert_eq!(answer.header("ratelimit-policy"), policy);
        let left = answer.header("ratelimit");
        match answer.status {
            200 => {
                assert!(left.starts_with(&format!("\"{name}\";r=")), "{left}");
                assert_eq!(answer.header("retry-after"), "");
                assert_eq!(answer.body, "hello");
            }
            429 => {
                assert!(left.starts_with(&format!("\"{name}\";r=0;t=")), "{left}");
                let wait: u32 = answer.header("retry-after").parse().unwrap();
                assert!(wait <= window.div_ceil(quota), "{wait}");
                assert_eq!(answer.header("content-type"), "application/problem+json");
                let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
                assert_eq!(problem["status"], 429);
                assert_eq!(problem["violated-policies"][0], name);
                assert_eq!(problem["retry_after"], wait);
            }
            other => panic!("{other}: {answer:?}"),
        }
    }
}

fn passed(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == 200).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_bound_is_admitted() {
    let by_key = RateLimitLayer::keyed(
        KeyedLimiter::per("500/24h").unwrap(),
        by_address::<ConnectInfo<SocketAddr>>(),
    )
    .named("per-address");
    let all = RateLimitLayer::new(Limiter::per("500/24h").unwrap()).named("all");
    let policy = RateLimitLayer::policy_text(
        "version = 1\n[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nlimit = \"500/24h\"\n\
         algorithm = \"token-bucket\"\nmissing_key = \"deny\"\n",
    )
    .unwrap()
    .peer_in::<ConnectInfo<SocketAddr>>();
    let (router, served) = counting();
    for (name, limited) in [
        ("per-address", router.clone().layer(by_key)),
        ("all", router.clone().layer(all)),
        ("per-ip", router.layer(policy)),
    ] {
        served.store(0, Ordering::Relaxed);
        let answers = load(serve(limited).await, 48, 60).await;
        assert_eq!(passed(&answers), 500, "{name}");
        assert_eq!(served.load(Ordering::Relaxed), 500, "{name}");
        check_answers(&answers, name, 500, 86_400);
    }
}

/// The same, by a load generator that is not ours. A busy machine reaches the limit too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrk_gets_exactly_the_bound() {
    if Command::new("wrk").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "wrk is not installed"
        );
        println!("skipped: wrk is not installed");
        return;
    }
    let (router, served) = counting();
    let layer = RateLimitLayer::new(Limiter::per("100/24h").unwrap());
    let address = serve(router.layer(layer.clone())).await;
    let url = format!("http://{address}/");
    let run = move || {
        let mut wrk = Command::new("wrk");
        wrk.args(["-t2", "-c64", "-d2s", &url]).output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |after: &str, before: &str| -> u64 {
        let found = text.split(after).nth(1).unwrap_or_else(|| panic!("{text}"));
        let found = found.split(before).next().unwrap().trim();
        found.parse().unwrap_or_else(|_| panic!("{text}"))
    };
    let mut lines = text.lines();
    let requests = lines.find_map(|line| line.trim().split_once(" requests in "));
    let requests: u64 = requests.expect(&text).0.parse().unwrap();
    assert_eq!(
        requests - number("Non-2xx or 3xx responses:", "\n"),
        100,
        "{text}"
    );
    assert!(!text.contains("Socket errors"), "{text}");
    assert_eq!(served.load(Ordering::Relaxed), 100);
    let counts = layer.counts();
    assert_eq!(counts.passed, 100);
    assert!(counts.refused >= requests - 100, "{counts:?} {text}");
}

/// Number of permits held, for three kinds of layers around bodies that never end.
type AtWork = Box<dyn Fn() -> u64>;

fn holding() -> Vec<(&'static str, Router, AtWork)> {
    let router = || {
        Router::new()
            .route("/slow", get(async || Body::new(Slow::default())))
            .route("/torrent", get(async || Body::new(Torrent)))
            .route(
                "/panic",
                get(async || -> &'static str { panic!("the handler panics") }),
            )
    };
    let count = RateLimitLayer::in_flight(Permits::new(20));
    let policy = RateLimitLayer::policy_text(
        "version = 1\n[[limit]]\nname = \"in-flight\"\nkey = [\"ip\"]\n\
         concurrency = { max = 20, lease = \"1h\" }\n",
    )
    .unwrap()
    .peer_in::<ConnectInfo<SocketAddr>>();
    let keeper = Arc::clone(policy.keeper());
    let of_policy = move || {
        let limit = &keeper.policy().rules[0].limit;
        let loans = keeper.store().loans(limit, keeper.clock().now());
        loans.in_use
    };
    vec![
        (
            "count",
            router().layer(count.clone()),
            Box::new(move || count.at_work()),
        ),
        ("policy", router().layer(policy), Box::new(of_policy)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_disconnect_return_their_permits() {
    for (name, router, at_work) in holding() {
        let address = serve(router).await;
        for path in ["/slow", "/torrent"] {
            for leave in [Client::close, Client::reset] {
                let mut held = Vec::new();
                for _ in 0..20 {
                    let mut client = Client::connect(address).await;
                    client.send(path, "").await;
                    assert_eq!(client.head().await.status, 200, "{name}");
                    client.some().await;
                    held.push(client);
                }
                assert_eq!(at_work(), 20, "{name} {path}");
                let refused = Client::connect(address).await.get(path).await;
                assert_eq!(refused.status, 429, "{name} {path}");
                held.into_iter().for_each(leave);
                until("the permits are returned", || at_work() == 0).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_panic_return_their_permits() {
    for (name, router, at_work) in holding() {
        let address = serve(router).await;
        for _ in 0..40 {
            Client::connect(address).await.send("/panic", "").await;
        }
        until("the permits are returned", || at_work() == 0).await;
        let mut client = Client::connect(address).await;
        client.send("/slow", "").await;
        assert_eq!(client.head().await.status, 200, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_are_served_in_order() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let handler = async move |Path(number): Path<usize>| {
        seen.lock().unwrap().push(number);
        "hello"
    };
    let limiter = Arc::new(Limiter::per("1/5ms").unwrap().with_most_waiting(40));
    let layer = RateLimitLayer::new(Arc::clone(&limiter)).queue(Nanos::from_secs(10));
    let router = Router::new().route("/{number}", get(handler)).layer(layer);
    let address = serve(router).await;
    let start = limiter.clock().now();
    let mut clients = Vec::new();
    for number in 0..40 {
        let mut client = Client::connect(address).await;
        client.send(&format!("/{number}"), "").await;
        clients.push(client);
        // It is in line, or was served already, before the next one asks.
        let come = || limiter.waiting() + order.lock().unwrap().len();
        until("the request is queued or served", || come() > number).await;
    }
    for client in &mut clients {
        assert_eq!(client.answer().await.status, 200);
    }
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    let took = limiter.clock().now().since(start);
    assert!(took >= Nanos::from_millis(5 * 39 - 1), "{took}"); // a clock read twice may step back
}
