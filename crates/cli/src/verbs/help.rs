//! `help`: explains a code, a command, a term, or a field of the policy.

use clap::{Args, CommandFactory, Parser};
use ratekeeper_policy::config;
use ratekeeper_server::{PROBLEMS, explain_notice, explain_problem, notice_titles};

use crate::output::{NAME, paint};
use crate::terms::{self, Term};
use crate::{Cli, Exit, Failure, Output, Result, words};

/// Explain a code such as RK0103, a command, a term such as "leaky bucket", or a field of the
/// policy
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct HelpArgs {
    /// A code from a message, a command, a term, a field; or `codes` or `terms` for the list of all
    topic: Vec<String>,
}

const HELP: &str = "\
Examples:
  ratekeeper help RK0103      meaning of the code, and how to fix the error
  ratekeeper help validate    the same as `ratekeeper validate --help`
  ratekeeper help leaky bucket    meaning of the term, and how to write it
  ratekeeper help terms       list of all terms
  ratekeeper help codes       list of all codes
  ratekeeper help missing_key, ratekeeper help bucket.size    type, default and example of a field

Exit codes: 0 explained; 2 no such code, command, term or field.";

impl HelpArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        if self.topic.is_empty() {
            return page(&["ratekeeper", "--help"], output);
        }
        let topic = self.topic.join(" ");
        if is_code(&topic) {
            return explain_code(&topic, output);
        }
        let command = Cli::command();
        let is_command = command.find_subcommand(&topic).is_some();
        match &*topic {
            "terms" => return list_terms(output),
            "codes" => return list_codes(output),
            _ => {}
        }
        let (term, field) = (terms::find(&topic), config::explain_field(&topic));
        if is_command {
            page(&["ratekeeper", &topic, "--help"], output)?;
        } else if let Some(term) = &term {
            explain_term(term, output)?;
        } else if field.is_none() {
            return Err(unknown(&topic, &command));
        }
        if let Some(field) = field {
            if is_command || term.is_some() {
                output.line("")?;
            }
            output.line(field.trim_end())?;
        }
        Ok(Exit::Done)
    }
}

/// Prints the page of `--help`, which clap returns as an error.
fn page(arguments: &[&str], output: &mut Output) -> Result<Exit> {
    let page = Cli::try_parse_from(arguments).err();
    let page = page
        .map(|help| help.render().ansi().to_string())
        .unwrap_or_default();
    output.line(page.trim_end())?;
    Ok(Exit::Done)
}

/// Returns true for codes, which begin with `RK` and a digit, or with `RK-W`.
fn is_code(topic: &str) -> bool {
    let topic = topic.to_ascii_uppercase();
    topic
        .strip_prefix("RK")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

fn explain_code(code: &str, output: &mut Output) -> Result<Exit> {
    let code = code.to_ascii_uppercase();
    if let Some(page) = config::explain(&code) {
        output.line(page.trim_end())?;
    } else if let Some(page) = explain_problem(&code).or_else(|| explain_notice(&code)) {
        output.line(format!("# {page}"))?;
    } else {
        let failure = Failure::new(format!("there is no code `{code}`"));
        let hint = "write the code in brackets after `error` or `warning`: RK0103 of error[RK0103]";
        return Err(failure.hint(hint));
    }
    Ok(Exit::Done)
}

/// Writes the definition of the term, its policy, and where to read on.
fn explain_term(term: &Term, output: &mut Output) -> Result<()> {
    output.line(paint(NAME, term.name))?;
    output.line(term.text)?;
    for line in term.policy.into_iter().flat_map(str::lines) {
        output.line(format!("    {line}").trim_end())?;
    }
    let page = format!("docs/guide/{}", term.page);
    let page = page.replace("guide/../", "").replace("docs/../", "");
    output.line(format!("more: {page}"))
}

/// Lists the names of all terms, and the first line of each.
fn list_terms(output: &mut Output) -> Result<Exit> {
    for term in terms::all() {
        let first = term.text.lines().next().unwrap_or_default();
        output.line(format!("{}: {first}", paint(NAME, term.name)))?;
    }
    Ok(Exit::Done)
}

/// Lists the codes of findings, of answers and of notices, each with its title.
fn list_codes(output: &mut Output) -> Result<Exit> {
    let titles = config::code_titles().chain(notice_titles());
    let titles = titles.filter_map(|title| title.split_once(": "));
    let problems = PROBLEMS.iter().map(|it| (it.code, it.title));
    let mut titles: Vec<_> = titles.chain(problems).collect();
    titles.sort_unstable();
    for (code, meaning) in titles {
        output.line(format!("{}: {meaning}", paint(NAME, code)))?;
    }
    Ok(Exit::Done)
}

fn unknown(topic: &str, command: &clap::Command) -> Failure {
    let verbs = command.get_subcommands().map(clap::Command::get_name);
    let failure = Failure::new(format!(
        "there is no command, code, term or field `{topic}`"
    ));
    match words::near(topic, verbs).or_else(|| terms::near(topic)) {
        Some(near) => failure.hint(format!("did you mean `ratekeeper help {near}`?")),
        None => failure.hint(
            "list the commands with `ratekeeper --help`, the terms with `ratekeeper help terms`",
        ),
    }
}
