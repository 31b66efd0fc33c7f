//! Dial: how a server is reached: its address, the name that it must prove, and the login.
//!
//! ```text
//!   redis://   TCP ------------------> greetings, login, database --> a connection
//!   rediss://  TCP --> TLS --> PING -^
//!   unix://    socket ---------------^
//! ```
//!
//! Only greetings are sent here, so a call that finds no connection has not run.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisResult,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::tls::ServerTls;
use crate::StoreError;
use crate::redis::config::RedisLogin;
use crate::redis::trouble::Trouble;

/// Errors without a code that a server answers with.
const REFUSALS: [ErrorKind; 2] = [
    ErrorKind::AuthenticationFailed,
    ErrorKind::RESP3NotSupported,
];

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How a server is reached.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct Dial {
    address: ServerAddress,
    /// Shared with clones, which are renewed together.
    #[debug(skip)]
    login: Arc<RwLock<RedisConnectionInfo>>,
    #[debug(skip)]
    tls: Option<ServerTls>,
}

impl Dial {
    /// Creates a dial from a URL; `tls` is used if its scheme is `rediss`.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if it is not the URL of a server.
    pub(crate) fn new(url: &str, tls: &ServerTls) -> Result<Self, StoreError> {
        let misconfigured = |why: String| StoreError::Misconfigured(why);
        let (plain, tls) = match url.split_once("://") {
            Some(("rediss" | "valkeys", rest)) => (format!("redis://{rest}"), Some(tls.clone())),
            _ => (url.to_owned(), None),
        };
        let info = plain.into_connection_info();
        let info = info.map_err(|error| misconfigured(error.to_string()))?;
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => ServerAddress::Tcp {
                host: host.clone(),
                port: *port,
            },
            ConnectionAddr::Unix(path) => ServerAddress::Socket(path.clone()),
            _ => return Err(misconfigured("the URL has an unknown scheme".into())),
        };
        Ok(Self {
            address,
            login: Arc::new(RwLock::new(info.redis_settings().clone())),
            tls,
        })
    }

    pub(crate) const fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Uses the login of `like` for new connections of this dial and all its clones.
    pub(crate) fn renew_login(&self, like: &Self) {
        let login = like.login.read().clone();
        *self.login.write() = login;
    }

    /// Returns a dial to another address, reached in the same way; `None` for a socket. An empty
    /// `host` means this one's: clusters answer so for the node that was asked.
    pub(crate) fn to(&self, host: &str, port: u16) -> Option<Self> {
        let ServerAddress::Tcp { host: known, .. } = &self.address else {
            return None;
        };
        let host = if host.is_empty() { known } else { host };
        Some(Self {
            address: ServerAddress::Tcp {
                host: host.to_owned(),
                port,
            },
            ..self.clone()
        })
    }

    /// Replaces the login, which is no longer shared with clones.
    pub(crate) fn log_in(mut self, login: &RedisLogin) -> Self {
        let mut info = RedisConnectionInfo::default().set_db(login.database.into());
        if let Some(username) = &login.username {
            info = info.set_username(username);
        }
        if let Some(password) = &login.password {
            info = info.set_password(password);
        }
        self.login = Arc::new(RwLock::new(info));
        self
    }

    /// Connects and logs in. Each answer must come within `patience`, as must those to calls.
    ///
    /// # Errors
    /// [`Trouble::Absent`] if no trusted server is reached, [`Trouble::Refused`] if the login is
    /// refused, [`Trouble::Later`] if the server is not ready. Nothing has run.
    pub(crate) async fn connect(&self, patience: Duration) -> Result<ServerConnection, Trouble> {
        self.connect_by(config(patience), patience).await
    }

    async fn connect_by(
        &self,
        config: AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<ServerConnection, Trouble> {
        let absent = |why: &dyn fmt::Display| Trouble::Absent(format!("{}: {why}", self.address));
        let made = timeout(patience, self.open(config)).await;
        let made = made.map_err(|_| {
            let kind = if self.tls.is_some() { "TLS " } else { "" };
            let waited = patience.as_millis();
            absent(&format_args!("no {kind}connection within {waited} ms"))
        })?;
        made.map_err(|error| match error.code() {
            Some("LOADING" | "MASTERDOWN") => Trouble::Later(error.to_string()),
            None if !REFUSALS.contains(&error.kind()) => absent(&error),
            _ => Trouble::Refused(error.to_string()),
        })
    }

    /// Connects to a server that publishes messages, and hands each to `send`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); also if the server does not speak RESP3.
    pub(crate) async fn connect_to_listen<E: 'static>(
        self,
        patience: Duration,
        send: impl Fn(PushInfo) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<ServerConnection, Trouble> {
        let login = self.login.read().clone();
        let listening = Self {
            login: Arc::new(RwLock::new(login.set_protocol(ProtocolVersion::RESP3))),
            ..self
        };
        let config = config(patience).set_push_sender(send);
        listening.connect_by(config, patience).await
    }

    async fn open(&self, config: AsyncConnectionConfig) -> RedisResult<ServerConnection> {
        match &self.address {
            ServerAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                match &self.tls {
                    Some(tls) => {
                        let stream = tls.shake_hands(stream, host).await?;
                        self.greet(stream, config).await
                    }
                    None => self.greet(stream, config).await,
                }
            }
            ServerAddress::Socket(path) => {
                let stream = UnixStream::connect(path).await?;
                self.greet(stream, config).await
            }
        }
    }

    async fn greet<S>(
        &self,
        stream: S,
        config: AsyncConnectionConfig,
    ) -> RedisResult<ServerConnection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let login = self.login.read().clone();
        let greeted = MultiplexedConnection::new_with_config(&login, stream, config).await;
        ServerConnection::carried(greeted)
    }
}

fn config(patience: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(patience))
        .set_response_timeout(Some(patience))
}

/// Uses the login of each URL for new connections of its dial. All URLs are checked first.
pub(crate) fn renew_logins<'a>(
    known: impl IntoIterator<Item = &'a Dial>,
    urls: impl IntoIterator<Item = &'a String>,
) -> Result<(), StoreError> {
    let new = urls
        .into_iter()
        .map(|url| Dial::new(url, &ServerTls::default()));
    let new = new.collect::<Result<Vec<_>, _>>()?;
    let known: Vec<&Dial> = known.into_iter().collect();
    if !known
        .iter()
        .map(|dial| dial.address())
        .eq(new.iter().map(Dial::address))
    {
        return Err(other_servers());
    }
    for (known, new) in known.iter().zip(&new) {
        known.renew_login(new);
    }
    Ok(())
}

pub(crate) fn other_servers() -> StoreError {
    StoreError::Misconfigured("a store cannot change to other servers; create a new one".into())
}

/// A connection; closed when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    pub(crate) connection: MultiplexedConnection,
    carrier: Arc<Carrier>,
}

/// The task that moves a connection's bytes.
struct Carrier(AbortHandle);

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ServerConnection {
    /// Returns true if the connection has ended, for example because the server closed it while it
    /// was idle: a request on it would not run.
    pub(crate) fn has_ended(&self) -> bool {
        self.carrier.0.is_finished()
    }

    fn carried<D>(made: RedisResult<(MultiplexedConnection, D)>) -> RedisResult<Self>
    where
        D: Future<Output = ()> + Send + 'static,
    {
        let (connection, driver) = made?;
        Ok(Self {
            connection,
            carrier: Arc::new(Carrier(tokio::spawn(driver).abort_handle())),
        })
    }
}

/// Returns true if a URL is one of TLS.
pub(crate) fn is_encrypted(url: &str) -> bool {
    url.starts_with("rediss://") || url.starts_with("valkeys://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_and_as_whom() {
        for (url, address, username, database) in [
            ("redis://h", "h:6379", None, 0),
            ("redis://ada:p@h:1/3", "h:1", Some("ada"), 3),
            ("redis://[::1]:1", "[::1]:1", None, 0),
            ("unix:///s?db=2", "/s", None, 2),
        ] {
            let dial = Dial::new(url, &ServerTls::default()).unwrap();
            assert_eq!(dial.address().to_string(), address);
            assert_eq!(dial.login.read().username(), username);
            assert_eq!(dial.login.read().db(), database);
        }
        for url in ["", "h:1", "http://h", "redis://"] {
            let refused = Dial::new(url, &ServerTls::default());
            assert!(
                matches!(refused, Err(StoreError::Misconfigured(_))),
                "{url}"
            );
        }
    }

    #[test]
    fn another_address_is_reached_in_the_same_way() {
        let dial = Dial::new("redis://ada:p@h:1/3", &ServerTls::default()).unwrap();
        let there = dial.to("other", 2).unwrap();
        assert_eq!(there.address().to_string(), "other:2");
        assert_eq!(there.login.read().password(), Some("p"));
        dial.renew_login(&Dial::new("redis://bob:q@h:1/3", &ServerTls::default()).unwrap());
        assert_eq!(
            there.login.read().username(),
            Some("bob"),
            "both dials use the new login"
        );
        assert_eq!(dial.to("", 2).unwrap().address().to_string(), "h:2");
        let socket = Dial::new("unix:///s", &ServerTls::default()).unwrap();
        assert!(socket.to("h", 1).is_none());
    }
}
