//! The table of checks that every store must pass.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use ratekeeper_core::Origin;
use ratekeeper_store::{RedisClock, RedisConfig, RedisServers, RedisStore, RedisTls, conformance};

use crate::server::{Cluster, Server, every_program};

/// Times of stories are in milliseconds from their zero; keys live by the server's clock. So the
/// zero lies a day ahead of it. It is one moment for all processes of a test: read by each of them,
/// the next second may begin in between, and one would be a second ahead.
pub(crate) fn tomorrow() -> Origin {
    static TOMORROW: LazyLock<Origin> = LazyLock::new(|| {
        #[expect(clippy::disallowed_methods, reason = "the server uses the real clock")]
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        Origin::from_unix_nanos((now.as_secs() + 86_400) * 1_000_000_000)
    });
    *TOMORROW
}

#[test]
fn the_redis_store_conforms() {
    for program in every_program() {
        let server = Server::start(&program, &[]);
        check(&RedisServers::One(server.url()));
    }
}

/// Where the charges of a story lie on different nodes.
#[test]
fn the_redis_store_conforms_on_a_cluster() {
    for program in every_program() {
        let cluster = Cluster::start(&program);
        check(&RedisServers::Cluster(cluster.urls()));
    }
}

fn check(servers: &RedisServers) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let count = AtomicU32::new(0);
    conformance::check(|| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        RedisStore::new(RedisConfig {
            servers: servers.clone(),
            tls: RedisTls::default(),
            prefix: format!("story-{number}"),
            node: String::new(),
            origin: tomorrow(),
            clock: RedisClock::Caller,
            deadline: Duration::from_secs(10),
        })
        .unwrap()
    });
}
