//! Store choice: a store named on a command line, in place of the policy's.
//!
//! ```text
//!   memory://
//!   redis://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..][/DATABASE][?cluster]   rediss:// by TLS
//!   redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/MASTER[/DATABASE]
//!   unix:///PATH
//! ```
//!
//! All else that the policy says (prefix, deadline, login, nodes) still holds, and only
//! the policy has a login for sentinels. The address is judged by the policy language
//! itself, so that both accept the same.

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;

use ratekeeper_core::Origin;
use ratekeeper_policy::config::{self, Context};
use ratekeeper_policy::{RedisSettings, SentinelSettings};

use crate::StartError;
use crate::percent::percent_decoded;

/// The schemes of stores; the policy language decides which of them are built.
const SCHEMES: [&str; 7] = [
    "redis",
    "rediss",
    "unix",
    "valkey",
    "valkeys",
    "redis+sentinel",
    "rediss+sentinel",
];
/// Suffix of a scheme for the addresses of sentinels.
const OF_SENTINELS: &str = "+sentinel";
/// Maximum length of the text.
const MAX_BYTES: usize = 4 << 10;

/// Where the counters are, whatever the policy says.
///
/// # Examples
/// ```
/// use ratekeeper_server::StoreChoice;
/// assert!(matches!("memory://".parse(), Ok(StoreChoice::Memory)));
/// assert!("redis://127.0.0.1:6379".parse::<StoreChoice>().is_ok());
/// assert!("mysql://127.0.0.1".parse::<StoreChoice>().is_err());
/// ```
#[derive(Clone, Debug)]
pub enum StoreChoice {
    /// In the memory of this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<StoreAddress>),
}

/// The address of a shared store, and the login to it.
#[derive(Clone, derive_more::Debug)]
pub struct StoreAddress {
    /// Address, and defaults for all else.
    settings: RedisSettings,
    database: Option<u16>,
    #[debug(skip)]
    login: Option<Login>,
}

/// A name, which may be empty, and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
}

/// How to reach a shared store: by settings of a policy, of a command line, or both.
#[derive(Clone, derive_more::Debug)]
pub struct StoreSettings {
    /// The settings of a policy.
    pub redis: RedisSettings,
    /// Replaces the username and the password of `redis`.
    #[debug(skip)]
    pub(crate) login: Option<Login>,
}

impl StoreSettings {
    /// Returns the same settings, with the paths of a policy that lies in `home`.
    #[must_use]
    pub fn at_home(self, home: &Path) -> Self {
        Self {
            redis: self.redis.at_home(home),
            ..self
        }
    }

    /// Returns the store of a policy's settings, unless another was chosen; `None` for memory.
    pub fn of(policy: Option<&RedisSettings>, chosen: Option<&StoreChoice>) -> Option<Self> {
        match chosen {
            None => policy.map(|redis| Self {
                redis: redis.clone(),
                login: None,
            }),
            Some(StoreChoice::Memory) => None,
            Some(StoreChoice::Redis(address)) => {
                let own = &address.settings;
                let mut redis = policy.unwrap_or(own).clone();
                redis.urls.clone_from(&own.urls);
                redis.cluster = own.cluster;
                let in_policy = redis.sentinel.take();
                redis.sentinel = own.sentinel.clone().map(|own| match in_policy {
                    // Only a policy can have a login for sentinels.
                    Some(known) => SentinelSettings {
                        master: own.master,
                        ..known
                    },
                    None => own,
                });
                redis.database = match address.database {
                    Some(database) => database,
                    None if own.cluster => 0,
                    None => redis.database,
                };
                Some(Self {
                    redis,
                    login: address.login.clone(),
                })
            }
        }
    }
}

impl FromStr for StoreChoice {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        if matches!(text, "memory" | "memory:" | "memory://") {
            return Ok(Self::Memory);
        }
        let printable = text.chars().all(|c| !c.is_control() && !"\"\\".contains(c));
        let parts = text.split_once("://");
        let Some((scheme, rest)) = parts.filter(|_| printable && text.len() <= MAX_BYTES) else {
            return Err(refused("it is not a URL", FORMS));
        };
        if !SCHEMES.contains(&scheme) {
            let scheme: String = scheme.chars().take(20).collect();
            let what = format!("unknown scheme `{scheme}`");
            return Err(refused(&what, FORMS));
        }
        let (rest, cluster) = match rest.split_once('?') {
            None => (rest, false),
            Some((rest, "cluster" | "cluster=true")) => (rest, true),
            Some((rest, "cluster=false")) => (rest, false),
            Some(_) => return Err(refused("only `cluster` may follow the `?`", FORMS)),
        };
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(read_login(login)?), rest),
            None => (None, rest),
        };
        let (addresses, path) = match scheme {
            "unix" => (rest, ""),
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        let (scheme, master, number) = match scheme.strip_suffix(OF_SENTINELS) {
            Some(scheme) => {
                let (master, number) = path.split_once('/').unwrap_or((path, ""));
                (scheme, Some(master), number)
            }
            None => (scheme, None, path),
        };
        if master == Some("") {
            let what = "the name of the primary is missing";
            let hint = "redis+sentinel://HOST:PORT,HOST:PORT/MASTER, as in \
                 redis+sentinel://10.0.0.1:26379/mymaster";
            return Err(refused(what, hint));
        }
        let database = read_database(number)?;
        let urls = addresses
            .split(',')
            .map(|at| format!("\"{scheme}://{at}\""));
        let settings = judge(&urls.collect::<Vec<_>>(), cluster, master, database)?;
        Ok(Self::Redis(Box::new(StoreAddress {
            settings,
            database,
            login,
        })))
    }
}

/// The accepted forms, shown for any other text.
const FORMS: &str = "memory://, redis://HOST:PORT (rediss:// by TLS), redis://HOST:PORT,HOST:PORT (a cluster), \
     redis+sentinel://HOST:PORT,HOST:PORT/MASTER, or unix:///PATH";

/// Returns `None` if there is no number.
fn read_database(number: &str) -> Result<Option<u16>, StartError> {
    let wrong = || refused("the path of the URL is not a database number", FORMS);
    let number = Some(number).filter(|number| !number.is_empty());
    let read = |number: &str| number.parse().map_err(|_| wrong());
    number.map(read).transpose()
}

/// The text itself may hold a password, so it is not shown.
fn refused(what: &str, hint: &str) -> StartError {
    StartError::StoreUrl {
        message: what.to_owned(),
        hint: hint.to_owned(),
    }
}

/// `user:password`, `:password`
fn read_login(text: &str) -> Result<Login, StartError> {
    let hint = "redis://:PASSWORD@HOST:PORT, or redis://USER:PASSWORD@HOST:PORT, with %40 for @";
    let (username, password) = text
        .split_once(':')
        .filter(|(_, password)| !password.is_empty())
        .ok_or_else(|| refused("the user name has no password", hint))?;
    let decoded = |part| {
        percent_decoded(part)
            .ok_or_else(|| refused("a `%` does not begin a percent-encoded byte", hint))
    };
    Ok(Login {
        username: decoded(username)?,
        password: decoded(password)?,
    })
}

/// Returns the settings that the policy language makes of such addresses, each in quotes.
fn judge(
    urls: &[String],
    cluster: bool,
    master: Option<&str>,
    database: Option<u16>,
) -> Result<RedisSettings, StartError> {
    let url = match urls {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let mut policy = format!("version = 1\n[store.redis]\nurl = {url}\n");
    if cluster && (urls.len() == 1 || master.is_some()) {
        policy.push_str("cluster = true\n");
    }
    if let Some(master) = master {
        let _ = writeln!(policy, "sentinel = {{ master = \"{master}\" }}"); // as below
    }
    if let Some(database) = database {
        let _ = writeln!(policy, "database = {database}"); // a string takes everything
    }
    policy.push_str("[[limit]]\nname = \"any\"\nkey = [\"all\"]\nlimit = \"1/1s\"\n");
    let context = Context::from(Origin::UNIX);
    match config::parse(&policy, context) {
        Ok(loaded) => loaded
            .policy
            .settings
            .redis
            .ok_or_else(|| refused("it is not a URL", FORMS)),
        Err(findings) => {
            let first = findings.into_iter().next();
            let (message, help) = first.map_or((String::new(), None), |first| {
                (format!("{}: {}", first.message, first.label), first.help)
            });
            Err(refused(&message, help.as_deref().unwrap_or(FORMS)))
        }
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_policy::Secret;

    use super::*;

    fn settings(text: &str) -> (RedisSettings, Option<Login>) {
        let chosen: StoreChoice = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let settings = StoreSettings::of(None, Some(&chosen)).unwrap();
        (settings.redis, settings.login)
    }

    #[test]
    fn addresses_are_read() {
        for (text, urls, cluster, database) in [
            ("redis://h", vec!["redis://h:6379"], false, 0),
            ("redis://h:1/", vec!["redis://h:1"], false, 0),
            ("redis://h:1/3", vec!["redis://h:1"], false, 3),
            ("redis://[::1]:1", vec!["redis://[::1]:1"], false, 0),
            ("redis://h:1?cluster", vec!["redis://h:1"], true, 0),
            (
                "redis://a:1,b:2",
                vec!["redis://a:1", "redis://b:2"],
                true,
                0,
            ),
            ("rediss://h:1", vec!["rediss://h:1"], false, 0),
            ("unix:///run/r.sock", vec!["unix:///run/r.sock"], false, 0),
        ] {
            let (redis, login) = settings(text);
            assert_eq!(redis.urls, urls, "{text}");
            assert_eq!(
                (redis.cluster, redis.database),
                (cluster, database),
                "{text}"
            );
            assert!(login.is_none());
        }
    }

    #[test]
    fn logins_are_read_and_not_shown() {
        for (text, username, password) in [
            ("redis://:p%40ss@h:1", "", "p@ss"),
            ("redis://ada:a@b:c@h:1", "ada", "a@b:c"),
        ] {
            let (redis, login) = settings(text);
            let login = login.unwrap();
            assert_eq!((&*login.username, &*login.password), (username, password));
            assert_eq!(redis.urls, ["redis://h:1"]);
            let shown = format!("{:?}", text.parse::<StoreChoice>());
            assert!(!shown.contains("p@ss") && !shown.contains("a@b"), "{shown}");
        }
    }

    #[test]
    fn other_store_settings_of_the_policy_are_kept() {
        let policy = RedisSettings {
            prefix: "edge".into(),
            database: 2,
            ..settings("redis://a:1,b:2").0
        };
        let over = |text: &str| {
            let chosen = text.parse().unwrap();
            StoreSettings::of(Some(&policy), Some(&chosen)).map(|settings| settings.redis)
        };
        let one = over("redis://h:1").unwrap();
        assert_eq!(one.urls, ["redis://h:1"]);
        assert_eq!(
            (&*one.prefix, one.cluster, one.database),
            ("edge", false, 2)
        );
        assert_eq!(over("redis://h:1/5").unwrap().database, 5);
        assert_eq!(over("redis://h:1?cluster").unwrap().database, 0);
        assert!(over("memory://").is_none());
        let untouched = StoreSettings::of(Some(&policy), None).unwrap();
        assert_eq!(untouched.redis, policy);
    }

    #[test]
    fn sentinels_are_read() {
        let tls = "rediss+sentinel://a:1,[::1]/edge.main/3";
        for (text, urls, master, database) in [
            (
                "redis+sentinel://a,b:2/mymaster",
                vec!["redis://a:26379", "redis://b:2"],
                "mymaster",
                0,
            ),
            (
                tls,
                vec!["rediss://a:1", "rediss://[::1]:26379"],
                "edge.main",
                3,
            ),
            ("redis+sentinel://:pass@a:1/m/", vec!["redis://a:1"], "m", 0),
        ] {
            let (redis, login) = settings(text);
            assert_eq!((redis.urls, redis.database), (own(&urls), database));
            assert!(!redis.cluster);
            assert_eq!(redis.sentinel.unwrap().master, master, "{text}");
            // The login is that of the servers.
            assert_eq!(login.is_some(), text.contains("pass"), "{text}");
        }
    }

    fn own(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|&url| url.into()).collect()
    }

    #[test]
    fn sentinel_logins_come_from_the_policy() {
        let password = Some(Secret::Env("SENTINEL_PASSWORD".into()));
        let mut policy = settings("redis+sentinel://a:1/main").0;
        policy
            .sentinel
            .as_mut()
            .unwrap()
            .password
            .clone_from(&password);
        let over = |text: &str| {
            let chosen = text.parse().unwrap();
            StoreSettings::of(Some(&policy), Some(&chosen))
                .unwrap()
                .redis
        };
        let other = over("redis+sentinel://b:2/other");
        assert_eq!(other.urls, ["redis://b:2"]);
        let sentinel = other.sentinel.unwrap();
        assert_eq!((&*sentinel.master, sentinel.password), ("other", password));
        assert_eq!(
            over("redis://h:1").sentinel,
            None,
            "a single server has no sentinel"
        );
    }

    #[test]
    fn invalid_urls_are_refused_without_showing_their_secrets() {
        for (text, words) in [
            ("", "not a URL"),
            ("127.0.0.1:6379", "not a URL"),
            ("mysql://h", "unknown scheme `mysql`"),
            ("redis://", "expected HOST:PORT"),
            ("redis://h:x", "expected HOST:PORT"),
            ("redis://h:1/x", "not a database number"),
            ("redis://h:1?tls", "may follow the `?`"),
            ("redis://a:1,b:2/3", "database"),
            ("redis://secret@h:1", "no password"),
            ("sentinel://h:1/m", "redis+sentinel://"),
            ("redis+sentinel://h:1", "name of the primary"),
            ("redis+sentinel://h:1/", "name of the primary"),
            ("redis+sentinel://h:1/m/x", "not a database number"),
            ("redis+sentinel://h:1/m?cluster", "not a cluster"),
            ("redis+sentinel://h:x/m", "expected HOST:PORT"),
            ("redis+sentinel://:secret@/m", "expected HOST:PORT"),
            ("redis://:secret%4@h:1", "`%`"),
            ("redis://:secret\"@h:1", "not a URL"),
            ("valkey://:secret@h:1", "redis://"),
        ] {
            let error = text.parse::<StoreChoice>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(error.contains("\nhint: "), "{text}: {error}");
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }
}
