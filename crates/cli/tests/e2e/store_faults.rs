//! A store that answers, but not everything: what a service then does, says and shows. Real
//! server, the real binary.

use std::time::Duration;

use crate::harness::clock;
use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::store::{CHOICES, Load, admitted, is_active, ready, start, until, with_choices};

fn store_calls(service: &Service, result: &str) -> f64 {
    service.metric(&format!(
        r#"ratekeeper_store_requests_total{{store="redis",result="{result}"}}"#
    ))
}

fn without_store(service: &Service, choice: &str) -> f64 {
    service.metric(&format!(
        r#"ratekeeper_fallback_decisions_total{{store="redis",choice="{choice}"}}"#
    ))
}

/// A full server takes no charge. It fails once, not with every probe, until there is room.
#[test]
fn a_full_store_is_done_without_until_there_is_room() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let service = with_choices(dir.path(), &redis);
    let only_deny = CHOICES.split("[[limit]]").last().expect("it has limits");
    let store = format!("url = \"{}\"", redis.url());
    let deny = start(dir.path(), "deny", &store, &format!("[[limit]]{only_deny}"));
    let http = service.http();
    assert_eq!(admitted(http, "/local", "a", 10), 10);
    assert_eq!((ready(&service), ready(&deny)), (200, 200));

    let load = Load::start(http);
    let load_of_deny = Load::start(deny.http());
    redis.run(&["config", "set", "maxmemory", "1"]);
    until(&service, true);
    until(&deny, true);
    clock::wait(Duration::from_secs(2)); // several probes
    assert!(is_active(&service) && is_active(&deny));
    let downs = service.process.log().matches("store down").count();
    assert_eq!(downs, 1, "said once");
    assert_eq!((ready(&service), ready(&deny)), (200, 503));
    assert_eq!(admitted(http, "/local", "b", 50), 20, "half of 40");
    assert_eq!(admitted(http, "/allow", "b", 5), 5);
    assert_eq!(admitted(http, "/deny", "b", 5), 0);
    for choice in ["local", "allow", "deny"] {
        assert!(without_store(&service, choice) >= 5.0, "{choice}");
    }

    redis.run(&["config", "set", "maxmemory", "0"]);
    until(&service, false);
    until(&deny, false);
    load.end("full and emptied under load");
    load_of_deny.end("full and emptied under load, limits that say deny");
    assert_eq!((ready(&service), ready(&deny)), (200, 200));
    assert_eq!(admitted(http, "/local", "b", 50), 20, "the rest: debited");
    assert_eq!(admitted(http, "/local", "a", 50), 30, "nothing is lost");
}

/// It is held to a process's share; everybody else is decided by the store.
#[test]
fn a_value_that_is_not_ours_concerns_its_key_only() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let service = with_choices(dir.path(), &redis);
    redis.run(&["lpush", "rk:{eve}:local", "1"]);
    let http = service.http();
    let errors = store_calls(&service, "error");
    assert_eq!(admitted(http, "/local", "eve", 50), 20, "half of 40");
    assert_eq!(admitted(http, "/local", "ada", 50), 40);
    assert!(!is_active(&service), "the store is there");
    assert_eq!(ready(&service), 200);
    assert!((without_store(&service, "local") - 50.0).abs() < 0.5);
    assert!(store_calls(&service, "error") >= errors + 50.0);

    redis.run(&["del", "rk:{eve}:local"]);
    let debited = || service.metric(r#"ratekeeper_fallback_debited_units_total{store="redis"}"#);
    let paid = clock::poll("debt that is paid", Duration::from_secs(10), || {
        (debited() >= 20.0).then_some(())
    });
    paid.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(admitted(http, "/local", "eve", 50), 20, "the rest");
}
