//! Access log: a line of JSON for each request, written by a thread of its own.
//!
//! ```text
//!   request --> line, filled on the way --> response, or the client leaves --> dropped: written
//!                                                          queue of 1 MiB, full: dropped, counted
//! ```

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use ratekeeper::Answer;
use ratekeeper_gateway::{Gateway, RequestProgress};
use ratekeeper_policy::{AccessLogSettings, LoggedResponses, ProxySettings};
use rustix::fs::OFlags;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::ProxyDoor;
use crate::counter::Counter;
use crate::doors::answer::push_text;
use crate::observe::top_keys::KeyReveal;
use crate::serve::listener::Caller;
use crate::serve::log_writer::cut;
use crate::{LogWriter, StartError};

/// Maximum number of bytes of a text in a line; the rest of a longer one is left out.
const MAX_TEXT: usize = 2 << 10;

/// The log of a listener.
#[derive(Debug)]
pub(super) struct AccessLog {
    pub(super) settings: AccessLogSettings,
    pub(super) writer: LogWriter,
    /// Lines that `only` leaves, of which a part is written.
    left: AtomicU64,
}

/// The line of a request, written when it is dropped.
#[derive(Debug)]
pub(super) struct AccessLine {
    log: Arc<AccessLog>,
    json: Vec<u8>,
    start: Instant,
    /// Set while the upstream is waited for.
    sending: Option<Sending>,
    /// `None` if the client left before.
    status: Option<StatusCode>,
    /// True if the response has no body, whatever its head says.
    pub(super) is_head: bool,
    is_refused: bool,
    is_broken: bool,
    bytes: u64,
}

/// A request on its way to an upstream.
#[derive(Debug)]
struct Sending {
    gateway: Arc<Gateway>,
    progress: RequestProgress,
    since: Instant,
}

/// A file that is created anew once it was moved away or removed.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
}

impl AccessLog {
    /// Returns the log, that of `before` if it has the same settings; its file is relative to `home`,
    /// and lines that are lost are added to `dropped`.
    pub(super) fn of(
        settings: &ProxySettings,
        home: &Path,
        before: Option<&Arc<Self>>,
        dropped: &Arc<Counter>,
    ) -> Result<Option<Arc<Self>>, StartError> {
        let Some(log) = &settings.access_log else {
            return Ok(None);
        };
        let same = before.filter(|before| before.settings == *log);
        match same {
            Some(same) => Ok(Some(Arc::clone(same))),
            None => Ok(Some(Arc::new(Self::open(log.clone(), home, dropped)?))),
        }
    }

    fn open(
        settings: AccessLogSettings,
        home: &Path,
        dropped: &Arc<Counter>,
    ) -> Result<Self, StartError> {
        let failed = |error: io::Error| StartError::AccessLog(error.to_string());
        let dropped = Arc::clone(dropped);
        let writer = if let Some(file) = &settings.file {
            LogFile::open(home.join(file)).and_then(|out| LogWriter::counting(out, dropped))
        } else {
            let stdout = io::stdout().as_fd().try_clone_to_owned();
            stdout.and_then(|stdout| LogWriter::counting(File::from(stdout), dropped))
        };
        Ok(Self {
            settings,
            writer: writer.map_err(failed)?,
            left: AtomicU64::new(0),
        })
    }

    /// Returns true for each line of the part that is written.
    fn samples(&self) -> bool {
        let percent = u64::from(self.settings.sample_percent);
        let before = self.left.fetch_add(1, Ordering::Relaxed);
        before * percent / 100 != (before + 1) * percent / 100
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.writer.close();
    }
}

impl ProxyDoor {
    /// Begins the line of a request, if there is a log.
    pub(super) fn line(&self, caller: Caller<'_>, parts: &Parts) -> Option<Box<AccessLine>> {
        let log = self.access.as_ref()?;
        let policy = self.shared.keeper.look_at_policy();
        let headers = parts.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: SmallVec<[_; 24]> = headers.collect();
        let peer = caller.address.ip().to_canonical();
        let mut line = Box::new(AccessLine {
            log: Arc::clone(log),
            json: Vec::new(),
            start: Instant::now(),
            sending: None,
            status: None,
            is_head: parts.method == Method::HEAD,
            is_refused: false,
            is_broken: false,
            bytes: 0,
        });
        let host = parts.uri.authority().map(|host| host.as_str().as_bytes());
        let host = host.or_else(|| Some(parts.headers.get(header::HOST)?.as_bytes()));
        let time = Timestamp::from_nanosecond(self.shared.unix_nanos().into());
        let time = time.unwrap_or(Timestamp::MAX);
        line.text("time", &format!("{time:.6}")); // of one width
        line.text(
            "client",
            &policy.client_ip.identify(peer, &headers).to_string(),
        );
        line.text("method", parts.method.as_str());
        line.text("host", &String::from_utf8_lossy(host.unwrap_or_default()));
        line.text("path", parts.uri.path());
        if let Some(query) = parts.uri.query() {
            line.text("query", query);
        }
        Some(line)
    }
}

impl AccessLine {
    fn text(&mut self, name: &str, text: &str) {
        if self.begin(name) {
            push_text(&mut self.json, cut(text, MAX_TEXT));
        }
    }

    fn number(&mut self, name: &str, number: impl Display) {
        if self.begin(name) {
            let _ = write!(self.json, "{number}"); // memory takes everything
        }
    }

    /// Begins a field; returns false if the log does not have it.
    fn begin(&mut self, name: &str) -> bool {
        let has = self.log.settings.has(name);
        if has {
            let before = if self.json.is_empty() { '{' } else { ',' };
            let _ = write!(self.json, "{before}\"{name}\":"); // likewise
        }
        has
    }

    fn millis(&mut self, name: &str, since: Instant) {
        let micros = since.elapsed().as_micros();
        self.number(name, format_args!("{}.{:03}", micros / 1000, micros % 1000));
    }

    pub(super) fn id(&mut self, id: &HeaderValue) {
        self.text("request_id", id.to_str().unwrap_or_default());
    }

    /// Notes the limit that refuses the request.
    pub(super) fn refused(&mut self, answer: &Answer, reveal: KeyReveal<'_>) {
        self.is_refused = true;
        if let Some(by) = answer.refused_by() {
            self.text("limit", &by.rule.limit.name);
            if let Some(key) = reveal.text(by.rule, by.key) {
                self.text("key", &key);
            }
        }
    }

    /// Notes that the request goes to an upstream now.
    pub(super) fn sends(&mut self, gateway: &Arc<Gateway>, progress: &RequestProgress) {
        self.sending = Some(Sending {
            gateway: Arc::clone(gateway),
            progress: progress.clone(),
            since: Instant::now(),
        });
    }

    /// Notes the upstream that the request was sent to, and the time until now. Returns false if it
    /// was sent to none, or the upstream is noted.
    pub(super) fn upstream(&mut self) -> bool {
        let sending = self.sending.take();
        let is_sent = |it: &Sending| it.progress.is_at_work() || it.progress.was_sent();
        let Some(sent) = sending.filter(is_sent) else {
            return false;
        };
        let address = sent.gateway.sent_to(&sent.progress);
        self.text("upstream", address.unwrap_or_default());
        self.millis("upstream_ms", sent.since);
        true
    }

    pub(super) fn status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Notes that the response ends before its end.
    pub(super) fn broken(&mut self) {
        self.is_broken = true;
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let is_left = self.upstream();
        let is_failed =
            is_left || self.is_broken || self.status.is_some_and(|it| it.is_server_error());
        let is_logged = match self.log.settings.only {
            LoggedResponses::All => true,
            LoggedResponses::Refused => self.is_refused,
            LoggedResponses::Failed => is_failed && !self.is_refused,
        };
        if !is_logged || !self.log.samples() {
            return;
        }
        match self.status {
            Some(status) => self.number("status", status.as_u16()),
            None => self.number("status", "null"),
        }
        self.number("bytes", self.bytes);
        self.millis("duration_ms", self.start);
        let end: &[u8] = if self.json.is_empty() {
            b"{}\n"
        } else {
            b"}\n"
        };
        self.json.extend_from_slice(end);
        let _ = self.log.writer.clone().write_all(&self.json); // never fails
    }
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        // Without this flag the opening of a FIFO waits for a reader.
        let no_wait = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o640);
        let file = options.custom_flags(no_wait).open(&path);
        let named = |why| io::Error::other(format!("`{}`: {why}", path.display()));
        let file = file.map_err(|error| named(error.to_string()))?;
        if !file.metadata()?.is_file() {
            return Err(named("it is not a regular file".to_owned()));
        }
        Ok(Self { path, file })
    }

    fn is_at_its_path(&self) -> bool {
        let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let found = std::fs::metadata(&self.path).map(place);
        let own = self.file.metadata().map(place);
        found
            .ok()
            .zip(own.ok())
            .is_some_and(|(found, own)| found == own)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_at_its_path() {
            *self = Self::open(self.path.clone())?;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
