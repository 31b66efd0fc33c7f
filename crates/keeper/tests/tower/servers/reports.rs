//! Reports of results on a real Redis server: any process takes them, once; and a login server
//! behind the layer.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ratekeeper::core::LeaseId;
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{Fallback, RedisConfig, RedisStore};
use ratekeeper::tower::RateLimitLayer;
use ratekeeper::{Answer, Clock, Keeper, Report, Reported, Scope, SystemClock};

use super::axum_server::serve;
use super::client::Client;
use super::redis::Redis;

const POLICY: &str = r#"
version = 1
[[limit]]
name     = "failures"
key      = ["header:x-user"]
missing_key = "shared"
bucket   = { size = 10, refill = "1/24h" }
count    = { status = 401 }
reset_on = { status = 200 }
report_within = "WITHIN"
"#;

type Process = Keeper<Fallback<RedisStore>, SystemClock>;

fn process(redis: &Redis, within: &str) -> Process {
    let clock = SystemClock::new();
    let origin = clock.origin();
    let config = RedisConfig {
        origin,
        deadline: Duration::from_secs(5), // on a busy machine
        ..RedisConfig::new(redis.url())
    };
    let store = Fallback::shared_by(2.try_into().unwrap(), config).unwrap();
    let policy = POLICY.replace("WITHIN", within);
    let policy = config::parse(&policy, config::Context::from(origin));
    Keeper::new(policy.unwrap().policy, store, clock)
}

async fn check(process: &Process, nonce: u8) -> Answer {
    let facts = Facts::default();
    let nonce = LeaseId::from_bytes([nonce; 16]);
    let answer = process
        .check_for_report(&facts, Scope::All, || Some(nonce))
        .await;
    *answer.unwrap()
}

async fn left(process: &Process) -> u64 {
    let answer = process.peek(&Facts::default(), Scope::All).await.unwrap();
    answer.outcomes().next().unwrap().decision.remaining.get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_reports_to_two_processes_one_corrects() {
    let Some(mut redis) = Redis::start().await else {
        return;
    };
    let processes = [process(&redis, "1m"), process(&redis, "1m")].map(std::sync::Arc::new);
    let answers = [check(&processes[0], 1).await, check(&processes[1], 2).await];
    assert_eq!(left(&processes[0]).await, 8);
    let reports: Vec<_> = (0..32)
        .map(|number| {
            let process = std::sync::Arc::clone(&processes[number % 2]);
            let id = answers[0].decision().unwrap().clone();
            tokio::spawn(async move { process.report(&id, &Report::default().status(404)).await })
        })
        .collect();
    let mut corrected = 0;
    for report in reports {
        match report.await.unwrap().unwrap() {
            Reported::Corrected => corrected += 1,
            Reported::Repeated => {}
            Reported::NotOpen => panic!("it is open"),
        }
    }
    assert_eq!((corrected, left(&processes[1]).await), (1, 9));

    let third = check(&processes[0], 3).await;
    let good = Report::default().status(200);
    let reset = processes[1].report(third.decision().unwrap(), &good).await;
    assert_eq!(
        (reset, left(&processes[0]).await),
        (Ok(Reported::Corrected), 10)
    );

    let short = process(&redis, "100ms");
    let expired = check(&short, 9).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let late = short.report(expired.decision().unwrap(), &good).await;
    assert_eq!((late, left(&short).await), (Ok(Reported::NotOpen), 9));

    // While the server is away no decision is open, and none can be closed.
    let open = check(&processes[0], 4).await;
    redis.kill();
    assert!(
        processes[0]
            .report(open.decision().unwrap(), &good)
            .await
            .is_err()
    );
    let away = check(&processes[0], 5).await;
    assert!(away.allowed() && away.decision().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_server_counts_failures_only() {
    let Some(redis) = Redis::start().await else {
        return;
    };
    let login = async |uri: axum::http::Uri| match uri.query() {
        Some("good") => StatusCode::OK,
        Some("away") => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNAUTHORIZED,
    };
    let layer = RateLimitLayer::policy(process(&redis, "1m"));
    let app = Router::new().route("/login", get(login)).layer(layer);
    let server = serve(app).await;
    let mut client = Client::connect(server).await;
    let counted = process(&redis, "1m");
    for (target, status, expected) in [
        ("/login?bad", 401, 9),
        ("/login?away", 503, 9),
        ("/login?bad", 401, 8),
        ("/login?good", 200, 10),
    ] {
        assert_eq!(client.get(target).await.status, status);
        // The layer reports beside the response.
        let mut now = left(&counted).await;
        for _ in 0..200 {
            if now == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            now = left(&counted).await;
        }
        assert_eq!(now, expected, "{target}");
    }
}
