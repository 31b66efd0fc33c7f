//! Exit: the exit code of the command, and the message of a failure.

use std::fmt;
use std::process::ExitCode;

use ratekeeper_server::StartError;

/// The exit code of a verb that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or allowed.
    Done = 0,
    /// Denied, or findings.
    Denied = 1,
    /// Wrong usage, or an error.
    Error = 2,
}

impl Exit {
    /// Returns `Done` if the answer is yes, and `Denied` if it is no.
    pub(crate) const fn done_if(yes: bool) -> Self {
        if yes { Self::Done } else { Self::Denied }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Reason why a verb could not do its work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// One sentence, lower case, that shows the value and the limit; or findings about a policy.
    pub(crate) message: String,
    /// A concrete next step.
    pub(crate) hint: Option<String>,
    /// True for findings, which are already rendered.
    pub(crate) is_rendered: bool,
}

/// The result of a step of a verb.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            hint: None,
            is_rendered: false,
        }
    }

    /// Returns findings about a policy, which are already rendered.
    pub(crate) fn findings(rendered: String) -> Self {
        Self {
            is_rendered: true,
            ..Self::new(rendered)
        }
    }

    /// Returns the message in one line, without the hint.
    pub(crate) fn sentence(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    /// Adds the name that was probably meant as a hint, or other advice if no name is near.
    pub(crate) fn meant(
        self,
        near: Option<impl fmt::Display>,
        otherwise: impl fmt::Display,
    ) -> Self {
        match near {
            Some(near) => self.hint(format!("did you mean `{near}`?")),
            None => self.hint(otherwise),
        }
    }

    pub(crate) fn hint(self, hint: impl fmt::Display) -> Self {
        let hint = Some(hint.to_string());
        Self { hint, ..self }
    }
}

/// The server's words, with its hint apart.
impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        if let StartError::Policy { report, .. } | StartError::EnvoyFiles(report) = error {
            return Self::findings(report);
        }
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((message, hint)) => Self::new(message).hint(hint),
            None => Self::new(text),
        }
    }
}
