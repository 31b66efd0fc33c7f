//! Source: a policy file, read and compiled; each kind of failure has its own message.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ratekeeper::{Clock, SystemClock, read_policy_files};
use ratekeeper_core::Origin;
use ratekeeper_policy::Policy;
use ratekeeper_policy::config::{self, Colour, Context, Diagnostic, Loaded, PolicyFiles};

use crate::{Failure, Output, Result};

/// Policy file that is used when none is named.
pub(crate) const DEFAULT_FILE: &str = "ratekeeper.toml";

/// Maximum size of a policy.
const MAX_BYTES: u64 = config::MAX_BYTES as u64;

/// Start of virtual time: 2026-01-05, 00:00 UTC, a Monday. Fixed, so that the same call shows the
/// same picture; windows of an hour, a day or a week begin with it.
pub(crate) const BEGINNING: Origin = Origin::from_unix_nanos(1_767_571_200_000_000_000);

/// The text of a policy file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PolicySource {
    /// As the user wrote it; used in messages.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The files that it names, relative to its directory.
    pub(crate) files: PolicyFiles,
}

/// Returns the file that `named` means.
///
/// # Errors
/// Returns an error if none is named and the default does not exist.
pub(crate) fn path_or_default(named: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path);
    }
    let path = PathBuf::from(DEFAULT_FILE);
    if path.exists() {
        return Ok(path);
    }
    let message = format!("no policy is named, and there is no ./{DEFAULT_FILE}");
    Err(Failure::new(message).hint("write a commented policy to start from with `ratekeeper init`"))
}

impl PolicySource {
    /// Reads `path`; `-` is standard input.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Self::from_reader("<stdin>", Path::new(""), io::stdin().lock());
        }
        let name = path.display().to_string();
        if path.is_dir() {
            return Err(directory(path));
        }
        match File::open(path) {
            Ok(file) => {
                let home = path.parent().unwrap_or(Path::new(""));
                Self::from_reader(&name, home, file)
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Err(missing(path)),
            Err(why) => Err(Failure::new(format!("cannot open `{name}`: {why}"))),
        }
    }

    fn from_reader(name: &str, home: &Path, reader: impl Read) -> Result<Self> {
        let mut bytes = Vec::new();
        reader
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|why| Failure::new(format!("cannot read `{name}`: {why}")))?;
        if bytes.len() as u64 > MAX_BYTES {
            let message = format!("`{name}` is larger than {} MiB", MAX_BYTES >> 20);
            return Err(Failure::new(message)
                .hint("check that it is a policy: a limit takes about 100 bytes"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self {
                name: name.into(),
                files: read_policy_files(&text, home),
                text,
            }),
            Err(error) => Err(not_utf8(name, &error)),
        }
    }

    /// Compiles the text, and writes warnings to `output`.
    ///
    /// # Errors
    /// Returns the findings, rendered.
    pub(crate) fn policy(&self, origin: Origin, output: &mut Output) -> Result<Policy> {
        match self.parse(origin) {
            Ok(loaded) => {
                for text in config::brief(&self.name, &self.text, &loaded.warnings, Colour::Always)
                {
                    output.talk(text.trim_end());
                }
                Ok(loaded.policy)
            }
            Err(findings) => Err(Failure::findings(self.render(&findings))),
        }
    }

    /// Compiles the text at the current time, with the files beside it.
    ///
    /// # Errors
    /// Returns the findings.
    pub(crate) fn parse(&self, origin: Origin) -> Result<Loaded, Vec<Diagnostic>> {
        let clock = SystemClock::new();
        let unix_nanos = clock.origin().unix_nanos(clock.now());
        let now = origin.time_at(unix_nanos);
        config::parse_file(&self.text, &self.files, Context::from(origin), now)
    }

    /// Renders findings for people, in colour; the stream removes the colour where necessary.
    pub(crate) fn render(&self, findings: &[Diagnostic]) -> String {
        config::render(&self.name, &self.text, findings, Colour::Always)
    }
}

fn missing(path: &Path) -> Failure {
    Failure::new(format!("there is no file `{}`", path.display()))
        .hint("write a commented policy to start from with `ratekeeper init`")
}

fn directory(path: &Path) -> Failure {
    let inside = Some(path.join(DEFAULT_FILE)).filter(|inside| inside.is_file());
    Failure::new(format!("`{}` is a directory", path.display())).meant(
        inside.as_deref().map(Path::display),
        "name the policy file itself",
    )
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> Failure {
    let bytes = error.as_bytes();
    let at = error.utf8_error().valid_up_to();
    let line = bytes[..at].split(|byte| *byte == b'\n').count();
    let byte = bytes.get(at).copied().unwrap_or_default();
    Failure::new(format!(
        "`{name}` is not UTF-8: byte 0x{byte:02x} on line {line}"
    ))
    .hint("save the file as UTF-8; a policy is text in TOML 1.0")
}
