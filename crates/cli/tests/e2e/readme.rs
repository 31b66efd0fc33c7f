//! The commands of the README and of the first policy are run, and print the same as on the page.
//!
//! A policy of a page is added to `ratekeeper.toml`, and the service is started again to read it.
//! Figures that depend on the moment (`..._ms`, `remaining`, `r=`, `t=`, waits, dates, lengths, ids) are
//! compared as "a number"; everything else to the letter.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};

const README: &str = include_str!("../../../../README.md");
const FIRST_POLICY: &str = include_str!("../../../../docs/guide/first-policy.md");
/// The part of the README after the commands.
const AFTER_THE_COMMANDS: &str = "\n## The policy\n";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The README's calls of the binary that this test uses: installed, and from a checkout.
const COMMANDS: [&str; 2] = ["ratekeeper ", "cargo run --release -p ratekeeper-cli -- "];
/// A command that would build that binary again.
const NOT_HERE: &str = "cargo install --locked --path crates/cli";
/// The README's application.
const APPLICATION: &str = r#"python3 -c 'from wsgiref.simple_server import *; make_server("127.0.0.1", 3000, lambda _, start: start("200 OK", []) and [b"hello\n"]).serve_forever()' &"#;
const APPLICATION_ADDRESS: &str = "127.0.0.1:3000";
const START_WITHIN: Duration = Duration::from_secs(20);

enum Step {
    /// Lines to add to the policy.
    Add(String),
    /// A command, and its output on the page.
    Run { command: String, shown: String },
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        if let Some(lines) = block.strip_prefix("toml\n") {
            steps.push(Step::Add(lines.to_owned()));
        }
        let Some(console) = block.strip_prefix("console\n") else {
            continue;
        };
        for line in console.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step::Run {
                    command: command.to_owned(),
                    shown: String::new(),
                }),
                (None, Some(Step::Run { shown, .. })) => *shown += &[line, "\n"].concat(),
                (None, _) => panic!("a console block begins with output: {line}"),
            }
        }
    }
    steps
}

/// A service of the README, at free ports; its output shows the README's ports.
struct Running {
    process: Process,
    doors: Vec<(String, &'static str)>,
}

impl Running {
    fn start(arguments: &str, dir: &Path) -> Self {
        let listener = match arguments {
            "run" => "proxy=127.0.0.1:0",
            _ => "http=127.0.0.1:0",
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
        command
            .args(arguments.split(' '))
            .args(["--listen", listener, "--listen", "admin=127.0.0.1:0"])
            .current_dir(dir);
        let process = Process::start("ratekeeper", &mut command, dir.join("out"), dir.join("log"));
        let doors = clock::poll(
            "the line with the dashboard, the last",
            START_WITHIN,
            || {
                let (output, log) = (process.output(), process.log());
                log.contains("dashboard: ").then(|| {
                    let addresses = output
                        .lines()
                        .filter_map(|line| Some(line.rsplit_once(' ')?.1.to_owned()));
                    addresses
                        .zip(["127.0.0.1:8080", "127.0.0.1:9090"])
                        .collect()
                })
            },
        );
        Self {
            process,
            doors: doors.unwrap_or_else(|error| panic!("{error}")),
        }
    }

    /// Returns its output, with the README's ports, and without notices about this machine.
    fn printed(&self) -> String {
        let printed = self.process.output() + &self.process.log();
        let lines = printed.lines().filter(|line| !line.contains(" notice: "));
        let printed = lines.flat_map(|line| [line, "\n"]).collect();
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

/// Starts the README's application at a free port.
fn application(dir: &Path) -> (Process, SocketAddr) {
    let address = free_address();
    let line = APPLICATION.trim_end_matches(" &");
    let line = line.replace("3000", &address.port().to_string());
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec {line}")])
        .current_dir(dir);
    let process = Process::start(
        "application",
        &mut command,
        dir.join("app"),
        dir.join("app.log"),
    );
    let listens = clock::poll("the application", START_WITHIN, || {
        TcpStream::connect(address).ok()
    });
    listens.unwrap_or_else(|error| panic!("{error}"));
    (process, address)
}

fn shell(command: &str, dir: &Path) -> String {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir)
        .output();
    let output = output.expect("there is a shell");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Replaces volatile numbers by `N`, and removes trailing blanks and carriage returns.
fn steady(text: &str) -> String {
    const BEFORE_A_NUMBER: [&str; 10] = [
        "_ms\":",
        "\"retry_after\":",
        "\"remaining\":",
        ";r=",
        ";t=",
        "retry-after: ",
        "content-length: ",
        "date: ",
        "x-request-id: ",
        "Try again in ",
    ];
    let mut steady = String::new();
    for line in text.lines() {
        let mut line = line.trim_end().to_owned();
        for mark in BEFORE_A_NUMBER {
            let mut parts = line.split(mark);
            let first = parts.next().unwrap_or_default().to_owned();
            line = parts.fold(first, |line, rest| {
                let rest = match mark {
                    "date: " | "x-request-id: " => "",
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
fn every_command_of_the_readme_does_what_is_shown() {
    let commands = README.split(AFTER_THE_COMMANDS).next();
    play(&steps(commands.expect("a part")), 9);
}

#[test]
fn every_command_of_the_first_policy_does_what_is_shown() {
    play(&steps(FIRST_POLICY), 14);
}

/// Does the steps of a page, of which there are at least `least`.
fn play(steps: &[Step], least: usize) {
    if process::find("curl").is_none() || process::find("python3").is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    let dir = dir.path();
    symlink(Path::new(ROOT).join("examples"), dir.join("examples")).expect("it is writable");
    let (_application, application) = application(dir);
    let application = application.to_string();
    let mut policy = String::new();
    let mut service: Option<Running> = None;
    assert!(steps.len() >= least, "a page lost its commands");
    for step in steps {
        match step {
            Step::Add(lines) => {
                policy += &lines.replace(APPLICATION_ADDRESS, &application);
                std::fs::write(dir.join("ratekeeper.toml"), &policy).expect("it is writable");
                service = service.take().map(|running| {
                    drop(running);
                    Running::start("run", dir)
                });
            }
            Step::Run { command, shown } => {
                let here = command.replace(APPLICATION_ADDRESS, &application);
                let Some(printed) = run(&here, &mut service, dir) else {
                    continue;
                };
                assert_eq!(steady(&printed), steady(shown), "$ {command}");
            }
        }
    }
}

/// Runs a command of a page, and returns its output; `None` if it is not for this test.
fn run(command: &str, service: &mut Option<Running>, dir: &Path) -> Option<String> {
    if command == NOT_HERE || command.starts_with("python3 ") {
        return None;
    }
    let mut calls = COMMANDS.iter();
    let Some(arguments) = calls.find_map(|call| command.strip_prefix(call)) else {
        let here = service.as_ref().map(|running| running.here(command));
        return Some(shell(here.as_deref().unwrap_or(command), dir));
    };
    if !arguments.starts_with("run") {
        let program = env!("CARGO_BIN_EXE_ratekeeper");
        return Some(shell(&format!("{program} {arguments}"), dir));
    }
    drop(service.take());
    let running = service.insert(Running::start(arguments, dir));
    Some(running.printed())
}
