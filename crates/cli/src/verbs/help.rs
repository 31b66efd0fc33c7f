//! `help`: explains a code, or a verb.

use clap::{Args, CommandFactory, Parser};
use ratekeeper_policy::config;
use ratekeeper_server::PROBLEMS;

use crate::{Cli, Exit, Failure, Output, words};

/// Explain a code such as RK0103, or a verb
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Help {
    /// A code that a message showed, or a verb
    topic: Option<String>,
}

const HELP: &str = "\
Examples:
  ratekeeper help RK0103      what the code means, and how to mend it
  ratekeeper help validate    the same as `ratekeeper validate --help`

Exit codes: 0 explained; 2 nothing by that name.";

impl Help {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        let Some(topic) = self.topic else {
            return page(&["ratekeeper", "--help"], output);
        };
        if is_code(&topic) {
            return explain_code(&topic, output);
        }
        let command = Cli::command();
        if command.find_subcommand(&topic).is_none() {
            return Err(unknown(&topic, &command));
        }
        page(&["ratekeeper", &topic, "--help"], output)
    }
}

/// What `--help` prints: clap answers it as an error that is none.
fn page(arguments: &[&str], output: &mut Output) -> Result<Exit, Failure> {
    let page = Cli::try_parse_from(arguments).err();
    let page = page
        .map(|help| help.render().ansi().to_string())
        .unwrap_or_default();
    output.line(page.trim_end())?;
    Ok(Exit::Done)
}

/// Codes begin with `RK` and a digit, or `RK-W`.
fn is_code(topic: &str) -> bool {
    let topic = topic.to_ascii_uppercase();
    topic
        .strip_prefix("RK")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

fn explain_code(code: &str, output: &mut Output) -> Result<Exit, Failure> {
    let code = code.to_ascii_uppercase();
    if let Some(page) = config::explain(&code) {
        output.line(page.trim_end())?;
    } else if let Some(problem) = PROBLEMS.iter().find(|problem| problem.code == code) {
        let (status, title) = (problem.status, problem.title);
        output.line(format!("{code}: {title} (HTTP {status})"))?;
        output.line(
            "\nThe service refuses a call with this problem document; its `detail` shows the",
        )?;
        output.line("value it refuses, and what would fit.")?;
    } else {
        let failure = Failure::new(format!("there is no code `{code}`"));
        let hint = "a code stands in brackets after `error` or `warning`, as in error[RK0103]";
        return Err(failure.hint(hint));
    }
    Ok(Exit::Done)
}

fn unknown(topic: &str, command: &clap::Command) -> Failure {
    let verbs = command.get_subcommands().map(clap::Command::get_name);
    let failure = Failure::new(format!("there is no verb or code `{topic}`"));
    match words::near(topic, verbs) {
        Some(near) => failure.hint(format!("did you mean `ratekeeper help {near}`?")),
        None => failure.hint("`ratekeeper --help` lists the verbs"),
    }
}
