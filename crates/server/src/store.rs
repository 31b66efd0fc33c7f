//! Store: the one that the policy asks for, and looking after it.
//!
//! ```text
//!   [store.memory]                 counters in this process
//!   [store.redis] --> Fallback --> counters in Redis; while it fails, what each limit chose
//!                        ^
//!                  tend: probe, debit, report, ten times a second
//! ```

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_core::{Origin, Outage};
use ratekeeper_policy::{Secret, StoreTls};
use ratekeeper_store::{
    AnyStore, Fallback, HealthChange, MemoryConfig, MemoryStore, RedisConfig, RedisIdentity,
    RedisLogin, RedisSentinels, RedisServers, RedisStore, RedisTls, StoreError,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::metrics::ahead;
use crate::shared::Shared;
use crate::store_servers::Told;
use crate::store_tls::Certificates;
use crate::{Event, StartError, StoreSettings};

/// How often a shared store is looked after.
const TEND: Duration = Duration::from_millis(100);
/// How often its clock is compared with ours.
const COMPARE: Duration = Duration::from_secs(10);
/// Longest secret read from a file.
const MAX_SECRET_BYTES: u64 = 4 << 10;
/// Bytes of a certificate or key file.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// The store that these settings ask for, and the certificates that it is reached by; secrets
/// are looked up, nothing is asked yet.
pub(crate) fn open(
    shared: Option<&StoreSettings>,
    memory: MemoryConfig,
    origin: Origin,
) -> Result<(AnyStore, Option<Certificates>), StartError> {
    let memory = MemoryStore::new(memory);
    let Some(shared) = shared else {
        return Ok((AnyStore::Memory(memory), None));
    };
    let config = redis_config(shared, origin)?;
    let certificates = Certificates::of(&shared.redis, &config.tls);
    let store = RedisStore::new(config).map_err(|error| match error {
        StoreError::Misconfigured(why) => StartError::Store(why),
        other => StartError::Store(other.to_string()),
    })?;
    let fallback = Fallback::new(store, memory, shared.redis.nodes);
    Ok((AnyStore::Redis(Box::new(fallback)), certificates))
}

/// How the shared store of these settings is reached, for limits on a clock of that origin.
///
/// # Errors
/// [`StartError::Store`] if a secret or a certificate is not where the settings say. Paths are
/// taken as they are: see [`StoreSettings::at_home`].
pub fn redis_config(shared: &StoreSettings, origin: Origin) -> Result<RedisConfig, StartError> {
    let redis = &shared.redis;
    let secret = |name, secret: &Option<Secret>| {
        let found = secret.as_ref().map(|secret| look_up(name, secret));
        found.transpose()
    };
    let (username, password) = if let Some(login) = &shared.login {
        let username = Some(login.username.clone()).filter(|name| !name.is_empty());
        (username, Some(login.password.clone()))
    } else {
        let username = secret("username", &redis.username)?;
        (username, secret("password", &redis.password)?)
    };
    let mut config = RedisConfig::new("");
    config.servers = if let Some(sentinel) = &redis.sentinel {
        let own_name = secret("sentinel.username", &sentinel.username)?;
        let own_word = secret("sentinel.password", &sentinel.password)?;
        let own_login = own_word.map(|password| (own_name.unwrap_or_default(), password));
        let urls = redis.urls.iter();
        RedisServers::Sentinel(RedisSentinels {
            urls: urls.map(|url| full(url, own_login.as_ref(), 0)).collect(),
            master: sentinel.master.clone(),
            login: RedisLogin {
                username,
                password,
                database: redis.database,
            },
        })
    } else {
        let login = password.map(|password| (username.unwrap_or_default(), password));
        let urls = redis.urls.iter();
        let urls = urls.map(|url| full(url, login.as_ref(), redis.database));
        if redis.cluster {
            RedisServers::Cluster(urls.collect())
        } else {
            RedisServers::One(urls.take(1).collect())
        }
    };
    config.tls = tls_files(&redis.tls)?;
    config.prefix.clone_from(&redis.prefix);
    config.deadline = Duration::from_nanos(redis.deadline.as_nanos());
    config.origin = origin;
    Ok(config)
}

/// What the files of `[store.redis.tls]` hold.
pub(crate) fn tls_files(tls: &StoreTls) -> Result<RedisTls, StartError> {
    let read = |name: &str, path: &Path| {
        let bytes = read(path, MAX_PEM_BYTES);
        bytes.map_err(|why| {
            let place = path.display();
            StartError::Store(format!("`{name}` is not in the file `{place}`: {why}"))
        })
    };
    let identity = tls.identity.as_ref().map(|(certificate, key)| {
        Ok::<_, StartError>(RedisIdentity {
            certificate: read("client_certificate", certificate)?,
            key: read("client_key", key)?,
        })
    });
    Ok(RedisTls {
        ca: tls.ca.as_deref().map(|path| read("ca", path)).transpose()?,
        identity: identity.transpose()?,
        server_name: tls.server_name.clone(),
    })
}

/// What the policy only names; what it is never shows.
fn look_up(name: &str, secret: &Secret) -> Result<String, StartError> {
    let absent = |place: String, why: String| {
        StartError::Store(format!("`{name}` is not in {place}: {why}"))
    };
    let found = match secret {
        Secret::Env(variable) => std::env::var(variable)
            .map_err(|error| absent(format!("the environment as {variable}"), error.to_string()))?,
        Secret::File(path) => read(path, MAX_SECRET_BYTES)
            .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
            .map_err(|error| absent(format!("the file `{}`", path.display()), error.to_string()))?,
    };
    let found = found.strip_suffix('\n').unwrap_or(&found);
    let found = found.strip_suffix('\r').unwrap_or(found);
    if found.is_empty() {
        let place = match secret {
            Secret::Env(variable) => format!("the environment as {variable}"),
            Secret::File(path) => format!("the file `{}`", path.display()),
        };
        return Err(absent(place, "it is empty".into()));
    }
    Ok(found.to_owned())
}

fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The URL with what the policy says beside it.
fn full(url: &str, login: Option<&(String, String)>, database: u16) -> String {
    let encoded = login.map(|(username, password)| (encode(username), encode(password)));
    if let Some(socket) = url.strip_prefix("unix://") {
        let mut full = format!("unix://{socket}?db={database}");
        if let Some((username, password)) = encoded {
            if !username.is_empty() {
                let _ = write!(full, "&user={username}"); // a string takes everything
            }
            let _ = write!(full, "&pass={password}");
        }
        return full;
    }
    let (scheme, address) = url.split_once("://").unwrap_or(("redis", url));
    let login = encoded.map_or(String::new(), |(username, password)| {
        format!("{username}:{password}@")
    });
    format!("{scheme}://{login}{address}/{database}")
}

/// Percent-encoding of everything that is no letter or digit (RFC 3986, section 2.1).
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // a string takes everything
        }
    }
    encoded
}

/// Looks after a shared store until the service ends.
pub(crate) async fn tend<C: Clock>(shared: Arc<Shared<C>>) {
    let mut tick = interval(TEND);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = Told::default();
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        tend_once(&shared).await;
        let servers = store.main();
        if servers.has_parts() {
            let now = shared.keeper.clock().now();
            for event in told.changes(&servers.server_health(), now) {
                shared.sink.emit(&event);
            }
        }
    }
}

/// Compares the clock of a shared store with ours until the service ends.
pub(crate) async fn compare_clocks<C: Clock>(shared: Arc<Shared<C>>) {
    let mut tick = interval(COMPARE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        if store.is_asked() {
            compare_once(&shared, store.main()).await;
        }
    }
}

/// Of several servers, the one whose clock is furthest away counts.
async fn compare_once<C: Clock>(shared: &Shared<C>, store: &RedisStore) {
    let clock = shared.keeper.clock();
    let unix = || clock.origin().unix_nanos(clock.now());
    let mut furthest: Option<i64> = None;
    for server in store.servers().await.unwrap_or_default() {
        let before = unix();
        let Ok(there) = server.clock().await else {
            continue; // whoever is away is told of elsewhere
        };
        let offset = ahead(before, there.get().saturating_mul(1_000), unix());
        if furthest.is_none_or(|known| offset.unsigned_abs() > known.unsigned_abs()) {
            furthest = Some(offset);
        }
    }
    if let Some(offset) = furthest {
        shared.metrics.clock_offset.store(offset);
    }
}

/// Looks after a shared store, and says what has changed.
pub(crate) async fn tend_once<C: Clock>(shared: &Shared<C>) {
    let Some(store) = shared.keeper.store().shared() else {
        return;
    };
    let now = shared.keeper.clock().now();
    match store.tend(now).await {
        Some(HealthChange::Down(error)) => shared.sink.emit(&Event::StoreDown { error }),
        Some(HealthChange::Up(debited)) => shared.sink.emit(&Event::StoreUp { debited }),
        None => {}
    }
    let stuck = !store.is_asked() && !has_fallback(shared);
    shared.set_stuck(stuck);
}

/// Whether any limit does something else than refuse while the store fails; without limits
/// nothing needs a store.
fn has_fallback<C: Clock>(shared: &Shared<C>) -> bool {
    let policy = shared.keeper.policy();
    let mut rules = policy.rules.iter();
    rules.len() == 0
        || shared.keeper.envoy().is_some()
        || rules.any(|rule| rule.limit.outage != Outage::Deny)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_hold_what_stands_beside_them() {
        let login = |name: &str, word: &str| Some((name.to_owned(), word.to_owned()));
        for (url, login, database, expected) in [
            ("redis://h:1", None, 0, "redis://h:1/0"),
            (
                "redis://h:1",
                login("", "p@:/"),
                3,
                "redis://:p%40%3A%2F@h:1/3",
            ),
            ("redis://h:1", login("ada", "x"), 0, "redis://ada:x@h:1/0"),
            ("rediss://h:1", login("ada", "x"), 0, "rediss://ada:x@h:1/0"),
            ("unix:///s", None, 2, "unix:///s?db=2"),
            (
                "unix:///s",
                login("ada", "&"),
                0,
                "unix:///s?db=0&user=ada&pass=%26",
            ),
        ] {
            assert_eq!(full(url, login.as_ref(), database), expected);
        }
    }

    #[test]
    fn secrets_are_looked_up_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "hunter2\n").unwrap();
        assert_eq!(
            look_up("password", &Secret::File(path.clone())).unwrap(),
            "hunter2"
        );
        std::fs::write(&path, "\n").unwrap();
        for absent in [
            Secret::File(path),
            Secret::File(directory.path().join("other")),
            Secret::Env("RATEKEEPER_TEST_IS_NOT_SET".into()),
        ] {
            let error = look_up("password", &absent).unwrap_err().to_string();
            assert!(error.contains("`password` is not in the "), "{error}");
        }
    }
}
