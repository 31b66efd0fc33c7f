//! Redis settings: the connection to a shared store, from the settings of a policy and the secrets
//! and files that they name.
//!
//! ```text
//!   url       "redis://h:1"             \
//!   username  "env:REDIS_USERNAME"       >  redis://ada:p%40ss@h:1/3, certificates and keys
//!   password  "file:/run/secrets/redis" /
//! ```

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ratekeeper_policy::{NodeName, RedisSettings, Secret, StoreTls};
use ratekeeper_store::{
    RedisConfig, RedisIdentity, RedisLogin, RedisSentinels, RedisServers, RedisTls, StoreError,
};

use super::policy_files::read_start;

/// Longest secret read from a file.
const MAX_SECRET_BYTES: u64 = 4 << 10;
/// Bytes of a certificate or key file.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// Returns the connection for these settings: secrets and certificates are read now. `login` is a
/// name, which may be empty, and a password, in place of those that the settings name. Paths are
/// used as they are: see [`RedisSettings::at_home`].
///
/// # Errors
/// [`StoreError::Misconfigured`] if a secret or a certificate is missing from its place in the
/// settings.
///
/// ```
/// use ratekeeper::policy::config::{self, Context};
/// use ratekeeper::redis_config;
///
/// let text = "version = 1\n[store.redis]\nurl = \"redis://127.0.0.1:6379\"\nprefix = \"checkout\"\n\
///             [[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1s\"\n";
/// let policy = config::parse(text, Context::default()).unwrap().policy;
/// let config = redis_config(policy.settings.redis.as_ref().unwrap(), None)?;
/// assert_eq!(config.prefix, "checkout");
/// # Ok::<(), ratekeeper::store::StoreError>(())
/// ```
pub fn redis_config(
    redis: &RedisSettings,
    login: Option<(String, String)>,
) -> Result<RedisConfig, StoreError> {
    let secret = |name, secret: &Option<Secret>| {
        let found = secret.as_ref().map(|secret| read_secret(name, secret));
        found.transpose().map_err(StoreError::Misconfigured)
    };
    let (username, password) = if let Some((username, password)) = login {
        (
            Some(username).filter(|name| !name.is_empty()),
            Some(password),
        )
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
    if let Some(node) = &redis.node {
        config.node = node_name(node)?;
    }
    Ok(config)
}

/// Returns the name of this process.
fn node_name(node: &NodeName) -> Result<String, StoreError> {
    let name = match node {
        NodeName::Text(name) => return Ok(name.clone()),
        NodeName::Env(name) => name,
    };
    read_secret("node", &Secret::Env(name.clone())).map_err(StoreError::Misconfigured)
}

/// Reads the files of `[store.redis.tls]`.
fn tls_files(tls: &StoreTls) -> Result<RedisTls, StoreError> {
    let read = |name: &str, path: &Path| {
        let bytes = read_start(path, MAX_PEM_BYTES);
        bytes.map_err(|why| {
            let place = path.display();
            StoreError::Misconfigured(format!(
                "cannot read `{name}` from the file `{place}`: {why}"
            ))
        })
    };
    let identity = tls.identity.as_ref().map(|(certificate, key)| {
        Ok::<_, StoreError>(RedisIdentity {
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

/// Reads the secret of the field `name` from the place that the policy names; a line end at its
/// end does not count.
///
/// # Errors
/// Why there is none, with the field and the place: it is missing or empty. The value is never shown.
///
/// ```
/// use ratekeeper::policy::Secret;
/// use ratekeeper::read_secret;
/// let missing = read_secret("password", &Secret::Env("NO_SUCH_VARIABLE".into()));
/// assert!(missing.is_err_and(|why| why.contains("NO_SUCH_VARIABLE")));
/// ```
pub fn read_secret(name: &str, secret: &Secret) -> Result<String, String> {
    let place = match secret {
        Secret::Env(variable) => format!("the environment variable {variable}"),
        Secret::File(path) => format!("the file `{}`", path.display()),
    };
    let absent = |why: &dyn Display| format!("cannot read `{name}` from {place}: {why}");
    let found = match secret {
        Secret::Env(variable) => std::env::var(variable).map_err(|why| absent(&why))?,
        Secret::File(path) => read_start(path, MAX_SECRET_BYTES)
            .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
            .map_err(|why| absent(&why))?,
    };
    let found = found.strip_suffix('\n').unwrap_or(&found);
    let found = found.strip_suffix('\r').unwrap_or(found);
    if found.is_empty() {
        return Err(absent(&"the value is empty"));
    }
    Ok(found.to_owned())
}

/// Returns the URL with the login and database of the policy.
fn full(url: &str, login: Option<&(String, String)>, database: u16) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_hold_the_login_and_the_database() {
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
    fn secrets_are_read_from_their_files_and_variables() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "hunter2\n").unwrap();
        assert_eq!(
            read_secret("password", &Secret::File(path.clone())).unwrap(),
            "hunter2"
        );
        std::fs::write(&path, "\n").unwrap();
        for absent in [
            Secret::File(path),
            Secret::File(directory.path().join("other")),
            Secret::Env("RATEKEEPER_TEST_IS_NOT_SET".into()),
        ] {
            let error = read_secret("password", &absent).unwrap_err();
            assert!(
                error.starts_with("cannot read `password` from the "),
                "{error}"
            );
        }
    }
}
