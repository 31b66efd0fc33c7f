//! Output: data on stdout, talk on stderr; colour only on a terminal, never with `NO_COLOR`.
//!
//! Verbs write colour always; the stream takes it out where it does not belong.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anstream::{AutoStream, stderr, stdout};
use clap::builder::styling::{AnsiColor, Style};

use crate::Failure;

/// Of refusals and errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Of admissions.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Of warnings and of what would be refused.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Of names.
pub(crate) const NAME: Style = Style::new().bold();

/// The two streams of the command. Not locked: the service logs beside it.
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

    /// Characters of a line: those of the terminal, and 80 where there is none.
    pub(crate) fn width() -> usize {
        const USUAL: usize = 80;
        if !io::stdout().is_terminal() {
            return USUAL;
        }
        terminal_size::terminal_size().map_or(USUAL, |(width, _)| usize::from(width.0))
    }

    /// A line of data.
    ///
    /// # Errors
    /// When it cannot be written; a reader that closed the pipe has had enough, which is
    /// no error.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        let text = text.as_ref();
        written(writeln!(self.data, "{text}").and_then(|()| self.data.flush()))
    }

    /// A JSON document on one line.
    pub(crate) fn json(&mut self, document: &serde_json::Value) -> Result<(), Failure> {
        self.line(document.to_string())
    }

    /// A line of talk. Nobody is told if it cannot be written: there is nowhere left.
    pub(crate) fn talk(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.talk, "{}", text.as_ref());
    }

    /// Says why the command failed.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Sentence { message, hint } => {
                self.talk(format!("{}: {message}", paint(BAD, "error")));
                if let Some(hint) = hint {
                    self.talk(format!("  hint: {hint}"));
                }
            }
            Failure::Findings(rendered) => self.talk(rendered.trim_end()),
        }
    }
}

/// Bytes written at once.
const BLOCK: usize = 64 << 10;

/// Data without colour on its way to stdout, written when 64 KiB have come together or at [`BlockWriter::flush`].
pub(crate) struct BlockWriter(BufWriter<StdoutLock<'static>>);

impl BlockWriter {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(BLOCK, io::stdout().lock()))
    }

    /// # Errors
    /// As [`Output::line`].
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        written(self.0.write_all(data))
    }

    /// # Errors
    /// As [`Output::line`].
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        written(self.0.flush())
    }
}

/// A reader that closed the pipe has had enough, which is no error.
fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "cannot write to standard output: {why}"
        ))),
        _ => Ok(()),
    }
}

/// `text` in a style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
