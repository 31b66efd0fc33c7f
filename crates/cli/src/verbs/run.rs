//! `run`: the service, until a signal ends it.
//!
//! ```text
//!   stdout   listening http 127.0.0.1:8080     one line a door: for scripts, and for tests
//!   stderr   what to try next, notices, reloads, the log
//! ```

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use listenfd::ListenFd;
use ratekeeper_policy::UpstreamUrl;
use ratekeeper_server::{Config, Door, Event, EventExport, LogWriter, Service};
use sd_notify::NotifyState;
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::client::TOKEN_VARIABLE;
use crate::source::{self, PolicySource};
use crate::store::StoreArgs;
use crate::{Exit, Failure, Output, Result, words};

/// Serve a policy: forwarding to an application, the check API, forward-auth for proxies, metrics
#[derive(Args)]
#[command(visible_alias = "serve", after_help = HELP)]
pub(crate) struct RunArgs {
    /// The policy file [default: ./ratekeeper.toml]
    policy: Option<PathBuf>,
    /// Unchanged configuration of Envoy's rate limit service: a file, or a directory of *.yaml;
    /// without a policy beside it, only its limits apply
    #[arg(long, value_name = "PATH")]
    envoy_config: Option<PathBuf>,
    /// Forward requests that pass to this application, by the proxy listener; several addresses are
    /// used in turn [default: the policy's]
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// Address of a listener: http, proxy, grpc or admin; port 0 takes a free one,
    /// and `unix:/PATH` is a Unix socket
    #[arg(long, value_name = "LISTENER=ADDRESS|off")]
    listen: Vec<String>,
    /// Refuse no request: limits that enforce run in shadow mode
    #[arg(long)]
    shadow: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Maximum memory of the store, for example 64MiB [default: the policy's, else at most 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = words::bytes)]
    memory: Option<usize>,
    /// Format of the log on stderr; `RATEKEEPER_LOG=debug` logs more
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Print the addresses as JSON, one object per line
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper run
  ratekeeper run --upstream http://127.0.0.1:3000
  ratekeeper run edge.toml --listen http=127.0.0.1:9000 --listen admin=off
  ratekeeper run --listen http=127.0.0.1:0 --json
  ratekeeper run --shadow --log-format json
  ratekeeper run --store redis://127.0.0.1:6379
  ratekeeper run --envoy-config /etc/ratelimit/config --listen grpc=0.0.0.0:8081

SIGHUP, and every change of the file, reload the policy; a policy with errors is refused, and
the one in force stays. SIGTERM and SIGINT finish the requests in flight, and end the service.
The admin listener listens beyond loopback only with a token in RATEKEEPER_ADMIN_TOKEN.
Sockets that systemd passes (LISTEN_FDS) serve the listeners with their addresses.

Exit codes: 0 ended by a signal; 2 usage, an error in the policy, or an address in use.";

/// How the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// Variable that sets how much is logged, in the form `info` or `info,ratekeeper_server=debug`.
const LOG_VARIABLE: &str = "RATEKEEPER_LOG";

/// Log filter without that variable: only errors of h2, because untrusted clients can make it warn.
const DEFAULT_LOG: &str = "info,h2=error";

/// Maximum time for writing the last lines at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

impl RunArgs {
    pub(crate) fn run(self, _output: &mut Output) -> Result<Exit> {
        let path = self.policy()?;
        raise_descriptors();
        let failed = |error| Failure::new(format!("cannot start the log: {error}"));
        let log = LogWriter::to_stderr().map_err(failed)?;
        let export = EventExport::new();
        self.start_log(&log, &export);
        let served = self.serve(path, &log, export);
        log.flush_within(LAST_LINES); // lines that are not read by then are lost
        served
    }

    fn serve(&self, path: Option<PathBuf>, log: &LogWriter, export: EventExport) -> Result<Exit> {
        let mut config = self.config(path, log)?;
        config.events = Some(export);
        let service = Service::start(&config)?;
        tell_systemd(NotifyState::Ready);
        let is_for_people = !self.json && self.log_format == LogFormat::Text;
        let shown = |door| service.address(door).filter(|_| is_for_people);
        if let Some(http) = shown(Door::Http) {
            let body = r#"{"request": {"ip": "192.0.2.1", "path": "/"}}"#;
            talk(
                log,
                &format!("try: curl -i http://{http}/v1/check -d '{body}'"),
            );
        }
        if let Some(proxy) = shown(Door::Proxy) {
            let url = if service.is_encrypted(Door::Proxy) {
                "-k https://" // the certificate is for a name
            } else {
                "http://"
            };
            talk(log, &format!("try: curl -i {url}{proxy}/"));
        }
        if let Some(admin) = shown(Door::Admin) {
            talk(log, &format!("dashboard: http://{admin}/"));
        }
        service.wait();
        Ok(Exit::Done)
    }

    /// Returns the policy file; `None` beside a configuration of Envoy's service without a policy.
    fn policy(&self) -> Result<Option<PathBuf>> {
        let unnamed = self.policy.is_none() && !Path::new(source::DEFAULT_FILE).exists();
        if unnamed && self.envoy_config.is_some() {
            return Ok(None);
        }
        let path = source::path_or_default(self.policy.clone())?;
        if path == Path::new("-") {
            return Err(Failure::new(
                "the policy must be a file, not standard input, because the service watches it",
            ));
        }
        let special = |kind: std::fs::FileType| !kind.is_file() && !kind.is_dir();
        if std::fs::metadata(&path).is_ok_and(|found| special(found.file_type())) {
            let message = format!("`{}` is not a regular file", path.display());
            return Err(Failure::new(message).hint(
                "write the policy to a file: the service reads it again whenever it changes",
            ));
        }
        PolicySource::read(&path)?; // errors of a file have better messages here than at start
        Ok(Some(path))
    }

    fn config(&self, path: Option<PathBuf>, writer: &LogWriter) -> Result<Config> {
        let mut config = Config::new("");
        config.policy = path;
        config.envoy_config.clone_from(&self.envoy_config);
        for upstream in &self.upstream {
            let url = upstream.parse::<UpstreamUrl>().map_err(|error| {
                Failure::new(error.reason).hint("write for example http://127.0.0.1:3000")
            })?;
            config.upstream.push(url);
        }
        for listen in &self.listen {
            config = config.listen(listen)?;
        }
        config.sockets = passed_sockets()?.into_iter().map(Arc::new).collect();
        config.store = self.store.choice()?;
        config.memory_budget = self.memory;
        config.admin_token = std::env::var(TOKEN_VARIABLE).ok();
        config.shadow = self.shadow;
        config.signals = true;
        let (json, log) = (self.json, self.log_format);
        let talk = writer.clone();
        config.log = Some(writer.clone());
        config.explain = Some(super::explain::about);
        Ok(config.on_event(move |event| match event {
            Event::Listening { door, address } if json => print(
                &json!({
                    "event": "listening",
                    "listener": door.to_string(),
                    "address": address.to_string(),
                })
                .to_string(),
            ),
            Event::Listening { .. } => print(&event.to_string()),
            _ => show(event, log, &talk),
        }))
    }

    fn start_log(&self, writer: &LogWriter, export: &EventExport) {
        let filter = EnvFilter::try_from_env(LOG_VARIABLE);
        let filter = filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
        let writer = writer.clone();
        let log = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .log_internal_errors(false);
        let log = match self.log_format {
            LogFormat::Json => log.json().flatten_event(true).with_filter(filter).boxed(),
            LogFormat::Text => {
                // Events are already shown in words: see `show`.
                let quiet = format!("{}=off", Event::TARGET).parse();
                let filter = quiet.into_iter().fold(filter, EnvFilter::add_directive);
                let colour = anstream::AutoStream::choice(&std::io::stderr());
                let ansi = colour != anstream::ColorChoice::Never;
                log.with_target(false)
                    .with_ansi(ansi)
                    .with_filter(filter)
                    .boxed()
            }
        };
        // The filter is that of the log: events are exported whatever it leaves out.
        let subscriber = tracing_subscriber::registry().with(log);
        subscriber.with(export.layer()).init();
        // The standard hook would wait for the reader of standard error.
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or_default();
            tracing::error!(event = "panic", thread, "{panic}");
        }));
    }
}

/// Prints the address of a listener, which is data.
fn print(line: &str) {
    let mut output = Output::new();
    if let Err(failure) = output.line(line) {
        output.failure(&failure); // the service runs, even if the message cannot be written
    }
}

/// Shows an event as a message with its time, unless the log is for machines.
fn show(event: &Event, format: LogFormat, log: &LogWriter) {
    if matches!(event, Event::Stopping) {
        tell_systemd(NotifyState::Stopping);
    }
    if format == LogFormat::Text {
        talk(log, format!("{:.6} {event}", Timestamp::now()).trim_end());
    }
}

/// Returns the listening sockets that systemd has opened for this process.
fn passed_sockets() -> Result<Vec<OwnedFd>> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::with_capacity(passed.len());
    for index in 0..passed.len() {
        let socket = if let Ok(tcp) = passed.take_tcp_listener(index) {
            tcp.map(OwnedFd::from)
        } else {
            let unix = passed.take_unix_listener(index);
            let failed = |error| Failure::new(format!("a passed socket cannot be used: {error}"));
            unix.map_err(failed)?.map(OwnedFd::from)
        };
        sockets.extend(socket);
    }
    Ok(sockets)
}

/// Tells systemd the state of the service, if it waits for that (`Type=notify`).
fn tell_systemd(state: NotifyState<'_>) {
    // The service works without it; a unit that waits in vain reports a time-out.
    let _ = sd_notify::notify(&[state]);
}

/// Raises the limit of open files to its hard limit, because each connection needs one.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // If this is refused, the service bounds its connections by the limit, and says so.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Writes a line for people through the log, so that it does not block.
fn talk(log: &LogWriter, text: &str) {
    // One write, so that it is queued or dropped whole; this writer does not fail.
    let _ = log.clone().write_all(format!("{text}\n").as_bytes());
}
