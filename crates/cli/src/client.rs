//! Client: calls a running service over plain HTTP, by TCP or a Unix socket, with a time-out and
//! a bound.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::http::Request;
use ureq::http::request::Builder;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::{Agent, AsSendBody};

use crate::unix_connector::UnixConnector;
use crate::{Failure, Output, Result, words};

/// Maximum time for one answer of the service.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Variable with the token that admin calls present.
pub(crate) const TOKEN_VARIABLE: &str = "RATEKEEPER_ADMIN_TOKEN";

/// Maximum size of an answer; a check answers with about 200 bytes for each limit.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Where the service is.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// URL of the running service, or `unix:/PATH`
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    #[arg(env = "RATEKEEPER_SERVER", hide_env_values = true)]
    pub(crate) server: String,
}

/// Where the admin listener of the service is.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminArgs {
    /// URL of the admin listener of the running service, or `unix:/PATH`
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090")]
    #[arg(env = "RATEKEEPER_ADMIN_SERVER", hide_env_values = true)]
    pub(crate) server: String,
}

/// A call of the admin listener, and how its answer is printed.
#[derive(Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    server: AdminArgs,
    /// Print the service's JSON answer unchanged
    #[arg(long)]
    pub(crate) json: bool,
}

/// A key of a limit.
#[derive(Args)]
pub(crate) struct KeyArgs {
    /// Name of the limit in the policy
    pub(crate) limit: String,
    /// Value of each part of its key, in the order of the policy
    #[arg(value_name = "VALUE")]
    key: Vec<String>,
}

/// A client of a running service.
pub(crate) struct Client {
    agent: Agent,
    /// As the user named it.
    server: String,
    /// Begins the URL of each call.
    base: String,
    /// Presented with each call, if there is one.
    token: Option<String>,
}

impl Client {
    /// Creates a client of the service at `server`: a URL, an address, or `unix:/PATH`.
    pub(crate) fn new(server: &str) -> Result<Self> {
        let server = server.trim_end_matches('/');
        let socket = server.strip_prefix("unix:");
        let base = match socket {
            Some(_) => "http://127.0.0.1".to_owned(), // of the field `host` only
            None if server.contains("://") => server.to_owned(),
            None => format!("http://{server}"),
        };
        if !base.starts_with("http://") {
            return Err(Failure::new(format!(
                "`{server}` is not supported; expected a URL that begins with http://"
            ))
            .hint("use the http listener on loopback: --server http://127.0.0.1:8080"));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Ok(Self {
            agent: match socket {
                Some(path) => {
                    let connector = UnixConnector(path.into());
                    Agent::with_parts(config, connector, DefaultResolver::default())
                }
                None => config.into(),
            },
            server: socket.map_or(&*base, |_| server).to_owned(),
            base,
            token: None,
        })
    }

    /// Creates a client of the admin listener, with the token of the environment.
    pub(crate) fn of_admin(admin: &AdminArgs) -> Result<Self> {
        let token = std::env::var(TOKEN_VARIABLE).ok();
        let client = Self::new(&admin.server)?;
        Ok(Self { token, ..client })
    }

    /// Returns true if the service behind the admin listener is ready.
    pub(crate) fn is_ready(&self) -> Result<bool> {
        let url = format!("{}/readyz", self.base);
        let answer = self.agent.get(&url).call();
        let answer = answer.map_err(|why| self.unreachable(&why))?;
        Ok(answer.status().is_success())
    }

    /// Calls `path` with a query; returns as [`post`](Self::post).
    pub(crate) fn call(&self, method: &str, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let pairs = query
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encoded(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        let url = format!("{}{path}?{query}", self.base);
        self.send(path, Request::builder().method(method).uri(url), ())
    }

    /// Posts `body` to `path`; returns the JSON of a 200.
    ///
    /// # Errors
    /// Returns an error without a service, without an answer in time or with an answer that is not
    /// JSON, and in the service's words if it refuses the call itself.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let request = Request::post(format!("{}{path}", self.base));
        let request = request.header("content-type", "application/json");
        self.send(path, request, body.to_string())
    }

    fn send(&self, path: &str, mut request: Builder, body: impl AsSendBody) -> Result<Value> {
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(body).map_err(ureq::Error::from);
        let sent = request.and_then(|request| self.agent.run(request));
        let mut response = sent.map_err(|why| self.unreachable(&why))?;
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .read_to_string()
            .map_err(|why| self.unreachable(&why))?;
        let answer: Option<Value> = serde_json::from_str(&text).ok();
        match answer {
            Some(answer) if status.is_success() => Ok(answer),
            Some(problem) if problem["detail"].is_string() => Err(refused(&problem)),
            _ => Err(Failure::new(format!(
                "the answer of {}{path}, {status}, is not one of ratekeeper",
                self.server
            ))
            .hint(
                "name the http listener with --server; a gateway answers as its application does",
            )),
        }
    }

    fn unreachable(&self, why: &ureq::Error) -> Failure {
        let server = &self.server;
        match why {
            ureq::Error::ConnectionFailed => self.no_listener(),
            ureq::Error::Io(why)
                if matches!(
                    why.kind(),
                    ErrorKind::ConnectionRefused | ErrorKind::NotFound
                ) =>
            {
                self.no_listener()
            }
            ureq::Error::BadUri(why) => Failure::new(format!("`{server}` is not a URL: {why}"))
                .hint("write for example --server http://127.0.0.1:8080"),
            ureq::Error::Timeout(_) => Failure::new(format!(
                "{server} did not answer within {} s",
                TIMEOUT.as_secs()
            )),
            why => Failure::new(format!("{server} cannot be called: {why}")),
        }
    }

    fn no_listener(&self) -> Failure {
        Failure::new(format!("nothing listens at {}", self.server))
            .hint("start the service with `ratekeeper run`, or name another with --server")
    }
}

impl KeyArgs {
    /// Returns the values as parameters of a query.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.key.iter().map(|value| ("key", &**value))
    }
}

/// Returns the key of an answer on one line.
pub(crate) fn key_text(answer: &Value) -> String {
    let parts = answer["key"].as_array().into_iter().flatten();
    let parts: Vec<&str> = parts.filter_map(Value::as_str).collect();
    words::key(&parts)
}

impl CallArgs {
    pub(crate) fn client(&self) -> Result<Client> {
        Client::of_admin(&self.server)
    }

    pub(crate) fn show(&self, answer: &Value, output: &mut Output, text: String) -> Result<()> {
        if self.json {
            output.json(answer)
        } else {
            output.line(text)
        }
    }
}

/// Encodes all bytes but letters, digits and `-._~`.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // a string takes everything
        }
    }
    encoded
}

/// Returns the service's own words: `detail`, and `hint: ..` where it has one.
fn refused(problem: &Value) -> Failure {
    let detail = problem["detail"].as_str().unwrap_or_default();
    let (message, hint) = match detail.split_once("hint: ") {
        Some((message, hint)) => (message.trim_end_matches([';', ' ', '\n']), Some(hint)),
        None => (detail, None),
    };
    let code = problem["code"].as_str();
    let code = code.map_or(String::new(), |code| format!(" [{code}]"));
    Failure {
        hint: hint.map(str::to_owned),
        ..Failure::new(format!("{message}{code}"))
    }
}
