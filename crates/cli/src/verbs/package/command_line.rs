//! Command line: the page of the guide has what `--help` prints, of every command.
//!
//! With `RATEKEEPER_REFERENCE=write` the test writes it.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use crate::Cli;

/// From the directory of the crate, in which its tests run.
const PATH: &str = "../../docs/guide/command-line.md";
const INTRODUCTION: &str = "\
# Command line

Every command of `ratekeeper`, with its options, examples and exit codes: the text of
`ratekeeper COMMAND --help`, from which this page is generated. The archive and the package of a
release have man pages as well, and completions for shells. Data goes to standard output, messages
to standard error.
";

#[test]
fn the_page_of_the_guide_is_current() {
    let page = page();
    if std::env::var("RATEKEEPER_REFERENCE").is_ok_and(|what| what == "write") {
        std::fs::write(PATH, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        written == page,
        "docs/guide/command-line.md is not current; run RATEKEEPER_REFERENCE=write cargo test -p \
         ratekeeper-cli --bin ratekeeper command_line"
    );
}

fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let mut page = INTRODUCTION.to_owned();
    add_notes(&command, &mut page);
    page.push_str("\n## Commands\n\n");
    for verb in shown(&command) {
        let (name, about) = (verb.get_name(), about(verb));
        let _ = writeln!(page, "- [`{name}`](#{name}): {about}");
    }
    for verb in shown(&command) {
        add_section(verb, "##", &mut page);
    }
    page
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|verb| !verb.is_hide_set())
}

fn about(command: &Command) -> String {
    let about = command.get_about();
    prose(&about.expect("every command is described").to_string())
}

/// Adds a command under a heading of this level, and its own commands one level below.
fn add_section(command: &Command, level: &str, page: &mut String) {
    let name = command.get_bin_name().unwrap_or_default();
    let heading = name.trim_start_matches("ratekeeper ");
    let _ = writeln!(page, "\n{level} {heading}\n\n{}", about(command));
    for alias in command.get_visible_aliases() {
        let _ = writeln!(page, "(also `ratekeeper {alias}`)");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = writeln!(page, "\n```text\n{usage}\n```");
    let arguments = command.get_arguments().filter(|it| it.get_id() != "help");
    let (positionals, options): (Vec<_>, Vec<_>) = arguments.partition(|it| it.is_positional());
    for (index, argument) in positionals.into_iter().chain(options).enumerate() {
        page.push_str(if index == 0 { "\n" } else { "" });
        add_argument(argument, page);
    }
    add_notes(command, page);
    for verb in shown(command) {
        add_section(verb, "###", page);
    }
}

fn add_argument(argument: &Arg, page: &mut String) {
    let short = argument.get_short().map(|letter| format!("-{letter}, "));
    let help = argument.get_help().map(ToString::to_string);
    let help = prose(&help.expect("every argument is described"));
    let _ = write!(page, "- `{}{argument}`: {help}", short.unwrap_or_default());
    if let Some(variable) = argument.get_env() {
        let _ = write!(page, " [env: `{}`]", variable.display());
    }
    let defaults = argument.get_default_values().iter();
    for value in defaults.filter(|_| argument.get_action().takes_values()) {
        let _ = write!(page, " [default: `{}`]", value.display());
    }
    page.push('\n');
    for value in argument.get_possible_values() {
        let help = value.get_help().map(|help| prose(&format!(": {help}")));
        let (name, help) = (value.get_name(), help.unwrap_or_default());
        let _ = writeln!(page, "  - `{name}`{help}");
    }
}

/// Adds the paragraphs below the options: prose, and examples, which are indented.
fn add_notes(command: &Command, page: &mut String) {
    let notes = command.get_after_help().map(ToString::to_string);
    for note in notes.iter().flat_map(|notes| notes.split("\n\n")) {
        let (title, lines) = note.split_once("\n  ").unwrap_or((note, ""));
        let _ = writeln!(page, "\n{}", prose(title));
        if !lines.is_empty() {
            let _ = writeln!(page, "\n```text\n{}\n```", lines.replace("\n  ", "\n"));
        }
    }
}

/// Returns the text in one line, with the marks of Markdown escaped outside of code.
fn prose(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let escaped = |part: &str| {
        part.replace('\\', r"\\")
            .replace('*', r"\*")
            .replace('<', r"\<")
    };
    let parts = words.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => escaped(part),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}
