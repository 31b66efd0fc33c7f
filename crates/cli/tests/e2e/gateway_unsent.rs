//! Requests that never reach the application cost nothing, with counters in a real Redis too.

use std::fs;

use super::gateway::gateway;
use crate::harness::free_address;
use crate::harness::redis::Redis;
use crate::harness::visitor::Visitor;

#[test]
fn an_outage_of_the_application_spends_no_quota_of_a_shared_store() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let application = free_address();
    for limit in [
        "limit = \"3/day\"",
        "limit = \"3/1h\"",
        "limit = \"3/1h\"\nalgorithm = \"sliding-window-log\"",
        "limit = \"3/1h\"\ncount = { status = [200, 502] }",
        "bucket = { size = 3, refill = \"1/1h\" }",
    ] {
        redis.run(&["FLUSHALL"]);
        redis.run(&["CONFIG", "RESETSTAT"]);
        let policy = format!(
            "version = 1\ntimezone = \"UTC\"\n[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n\
             [listen.proxy]\nupstream = \"http://{application}\"\n\
             [[limit]]\nname = \"a\"\nkey = [\"ip\"]\n{limit}\n",
            redis.url()
        );
        fs::write(dir.path().join("ratekeeper.toml"), policy).expect("it is writable");
        let (_service, proxy) = gateway(dir.path(), &["run"]);
        let statuses = [(); 6].map(|()| Visitor::at(2).get(proxy, "/").status);
        assert_eq!(statuses, [502; 6], "{limit}");
        let calls = redis.query(&["INFO", "commandstats"]);
        let has_counted = ["cmdstat_evalsha", "cmdstat_fcall"].map(|name| calls.contains(name));
        assert!(has_counted.contains(&true), "{limit}: {calls}");
    }
}
