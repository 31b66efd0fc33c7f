//! Exit: the exit code of the command, and the message of a failure.

use std::fmt;
use std::process::ExitCode;

use ratekeeper_server::StartError;

/// The exit code of a verb that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// 0: done, or allowed.
    Done,
    /// 1: denied, or findings.
    Denied,
    /// 2: wrong usage, or an error.
    Error,
}

impl Exit {
    /// Returns `Done` if the answer is yes, and `Denied` if it is no.
    pub(crate) const fn done_if(yes: bool) -> Self {
        if yes { Self::Done } else { Self::Denied }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Denied => 1,
            Exit::Error => 2,
        })
    }
}

/// Reason why a verb could not do its work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// One sentence, lower case, and advice.
    Sentence {
        /// Shows the value and the limit.
        message: String,
        /// A concrete next step.
        hint: Option<String>,
    },
    /// Findings about a policy, already rendered.
    Findings(String),
}

/// The result of a step of a verb.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self::Sentence {
            message: message.to_string(),
            hint: None,
        }
    }

    /// Returns the message in one line, without the hint.
    pub(crate) fn sentence(&self) -> String {
        let (Self::Sentence { message, .. } | Self::Findings(message)) = self;
        message.lines().next().unwrap_or_default().to_owned()
    }

    /// Adds to the end of the message.
    pub(crate) fn sentence_after(self, more: &str) -> Self {
        match self {
            Self::Sentence { message, hint } => Self::Sentence {
                message: message + more,
                hint,
            },
            findings @ Self::Findings(_) => findings,
        }
    }

    pub(crate) fn hint(self, hint: impl fmt::Display) -> Self {
        match self {
            Self::Sentence { message, .. } => Self::Sentence {
                message,
                hint: Some(hint.to_string()),
            },
            findings @ Self::Findings(_) => findings,
        }
    }
}

/// The server's words, with its hint apart.
impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        if let StartError::Policy { report, .. } | StartError::EnvoyFiles(report) = error {
            return Self::Findings(report);
        }
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((message, hint)) => Self::new(message).hint(hint),
            None => Self::new(text),
        }
    }
}

/// Prints clap's message: help and version on stdout with 0, a mistake on stderr with 2.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // There is nowhere to report a closed pipe.
    let _ = error.print();
    if error.use_stderr() {
        Exit::Error.into()
    } else {
        Exit::Done.into()
    }
}
