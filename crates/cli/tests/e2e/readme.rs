//! The README's commands are run, and print the same as in the README.
//!
//! Figures that depend on the moment (`..._ms`, `remaining`, `r=`, `t=`, waits, dates, lengths) are
//! compared as "a number"; everything else to the letter.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::clock;
use crate::harness::process::{self, Process};

const README: &str = include_str!("../../../../README.md");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The README's call of the binary that this test uses.
const COMMAND: &str = "cargo run --release -p ratekeeper-cli -- ";
/// A command that would run this very test again.
const NOT_HERE: &str = "cargo xtask test";
const START_WITHIN: Duration = Duration::from_secs(20);

/// A command of the README, and its output there.
struct Step {
    command: String,
    shown: String,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let blocks = README.split("```console\n").skip(1);
    for block in blocks.filter_map(|rest| rest.split("```").next()) {
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    steps.push(Step {
                        command: command.to_owned(),
                        shown: String::new(),
                    });
                }
                (None, Some(step)) => step.shown += &[line, "\n"].concat(),
                (None, None) => panic!("a console block begins with output: {line}"),
            }
        }
    }
    steps
}

/// The service of the README's first command, at free ports; its output shows the README's ports.
struct Running {
    process: Process,
    doors: Vec<(String, &'static str)>,
}

impl Running {
    fn start(arguments: &str, dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
        command
            .args(arguments.split(' '))
            .args([
                "--listen",
                "http=127.0.0.1:0",
                "--listen",
                "admin=127.0.0.1:0",
            ])
            .current_dir(ROOT);
        let process = Process::start("ratekeeper", &mut command, dir.join("out"), dir.join("log"));
        let doors = clock::poll("the line with the first command", START_WITHIN, || {
            let (output, log) = (process.output(), process.log());
            log.contains("try: ").then(|| {
                let addresses = output
                    .lines()
                    .filter_map(|line| Some(line.rsplit_once(' ')?.1.to_owned()));
                addresses
                    .zip(["127.0.0.1:8080", "127.0.0.1:9090"])
                    .collect()
            })
        });
        Self {
            process,
            doors: doors.unwrap_or_else(|error| panic!("{error}")),
        }
    }

    /// Returns its output, with the README's ports.
    fn printed(&self) -> String {
        let printed = self.process.output() + &self.process.log();
        self.doors
            .iter()
            .fold(printed, |text, (here, there)| text.replace(here, there))
    }

    /// Returns a command of the README, with the ports of this service.
    fn here(&self, command: &str) -> String {
        self.doors
            .iter()
            .fold(command.to_owned(), |text, (here, there)| {
                text.replace(there, here)
            })
    }
}

fn shell(command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(ROOT)
        .output();
    let output = output.expect("there is a shell");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Replaces volatile numbers by `N`, and removes trailing blanks and carriage returns.
fn steady(text: &str) -> String {
    const BEFORE_A_NUMBER: [&str; 7] = [
        "_ms\":",
        "\"remaining\":",
        ";r=",
        ";t=",
        "retry-after: ",
        "content-length: ",
        "date: ",
    ];
    let mut steady = String::new();
    for line in text.lines() {
        let mut line = line.trim_end().to_owned();
        for mark in BEFORE_A_NUMBER {
            let mut parts = line.split(mark);
            let first = parts.next().unwrap_or_default().to_owned();
            line = parts.fold(first, |line, rest| {
                let rest = match mark {
                    "date: " => "",
                    _ => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
                };
                format!("{line}{mark}N{rest}")
            });
        }
        steady += &(line + "\n");
    }
    steady.trim_end().to_owned()
}

#[test]
fn every_command_does_what_is_shown() {
    if process::find("curl").is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    let mut service = None;
    let steps = steps();
    assert!(steps.len() >= 6, "the README lost its commands");
    for step in steps {
        let command = step.command.as_str();
        let printed = if command == NOT_HERE {
            continue;
        } else if let Some(arguments) = command.strip_prefix(COMMAND) {
            if arguments.starts_with("run ") {
                let running = Running::start(arguments, dir.path());
                let printed = running.printed();
                service = Some(running);
                printed
            } else {
                shell(&format!("{} {arguments}", env!("CARGO_BIN_EXE_ratekeeper")))
            }
        } else {
            let service: &Running = service
                .as_ref()
                .expect("the README starts the service first");
            shell(&service.here(command))
        };
        assert_eq!(steady(&printed), steady(&step.shown), "$ {command}");
    }
}
