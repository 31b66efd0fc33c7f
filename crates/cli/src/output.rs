//! Output: data on stdout, messages on stderr; colour only on a terminal, never with `NO_COLOR`.
//!
//! Verbs always write colour; the stream removes it where necessary.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstream::{AutoStream, stderr, stdout};
use clap::builder::styling::{AnsiColor, Style};

use crate::{Failure, Result};

/// Style of refusals and errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of admissions.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of warnings and of requests that would be refused.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Style of names.
pub(crate) const NAME: Style = Style::new().bold();

/// The two streams of the command. Not locked, because the service logs beside it.
pub(crate) struct Output {
    data: AutoStream<io::Stdout>,
    talk: AutoStream<io::Stderr>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            data: stdout(),
            talk: stderr(),
        }
    }

    /// Returns the characters of a line: those of the terminal, or 80 without one.
    pub(crate) fn width() -> usize {
        const USUAL: usize = 80;
        if !io::stdout().is_terminal() {
            return USUAL;
        }
        terminal_size::terminal_size().map_or(USUAL, |(width, _)| usize::from(width.0))
    }

    /// Writes a line of data.
    ///
    /// # Errors
    /// Returns an error if it cannot be written; a reader that closed the pipe is not an error.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        let text = text.as_ref();
        written(writeln!(self.data, "{text}").and_then(|()| self.data.flush()))
    }

    /// Writes a JSON document on one line.
    pub(crate) fn json(&mut self, document: &serde_json::Value) -> Result<()> {
        self.line(document.to_string())
    }

    /// Writes a message to stderr. A failed write is ignored, because there is nowhere to report
    /// it.
    pub(crate) fn talk(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.talk, "{}", text.as_ref());
    }

    /// Writes a message over the one before it on the last line of stderr; an empty one clears it.
    pub(crate) fn transient(&mut self, text: &str) {
        let _ = write!(self.talk, "\r\x1b[2K{text}").and_then(|()| self.talk.flush());
    }

    /// Writes why the command failed.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        let message = &failure.message;
        if failure.is_rendered {
            self.talk(message.trim_end());
        } else {
            self.talk(format!("{}: {message}", paint(BAD, "error")));
        }
        if let Some(hint) = &failure.hint {
            self.talk(format!("  hint: {hint}"));
        }
    }
}

/// Returns an error if data could not be written, but ignores a closed pipe, because a reader may
/// stop early.
pub(crate) fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "cannot write to standard output: {why}"
        ))),
        _ => Ok(()),
    }
}

/// Says that a file cannot be written.
pub(crate) fn unwritable(path: &Path, why: &io::Error) -> Failure {
    Failure::new(format!("cannot write `{}`: {why}", path.display()))
}

/// Returns `text`, each run of one of its ASCII characters in the style of that character.
pub(crate) fn paint_runs(text: &str, style: impl Fn(u8) -> Option<Style>) -> String {
    let runs = text.as_bytes().chunk_by(|a, b| a == b);
    let painted = runs.map(|run| {
        let text = String::from_utf8_lossy(run);
        match run.first().and_then(|it| style(*it)) {
            Some(style) => paint(style, &text),
            None => text.into_owned(),
        }
    });
    painted.collect()
}

/// Returns `text` in a style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
