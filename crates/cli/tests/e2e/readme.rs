//! The README's commands are run, and print the same as in the README.
//!
//! Figures that depend on the moment (`..._ms`, `remaining`, `r=`, `t=`, waits, dates, lengths, ids) are
//! compared as "a number"; everything else to the letter.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::clock;
use crate::harness::ports::free_address;
use crate::harness::process::{self, Process};

const README: &str = include_str!("../../../../README.md");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The README's call of the binary that this test uses.
const COMMAND: &str = "cargo run --release -p ratekeeper-cli -- ";
/// A command that would run this very test again.
const NOT_HERE: &str = "cargo xtask test";
/// The README's application.
const APPLICATION: &str = "python3 -m http.server 3000 --bind 127.0.0.1 &";
const APPLICATION_ADDRESS: &str = "127.0.0.1:3000";
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

    /// Returns its output, with the README's ports, and without notices about this machine.
    fn printed(&self) -> String {
        let printed = self.process.output() + &self.process.log();
        let lines = printed.lines().filter(|line| !line.starts_with("notice: "));
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
    let (program, arguments) = APPLICATION
        .trim_end_matches(" &")
        .split_once(' ')
        .expect("it has arguments");
    let port = address.port().to_string();
    let arguments = arguments.replace("3000", &port);
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).current_dir(dir);
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
fn every_command_does_what_is_shown() {
    if process::find("curl").is_none() || process::find("python3").is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("the system has a temporary directory");
    let dir = dir.path();
    symlink(Path::new(ROOT).join("examples"), dir.join("examples")).expect("it is writable");
    let (_application, application) = application(dir);
    let application = application.to_string();
    let mut service: Option<Running> = None;
    let steps = steps();
    assert!(steps.len() >= 9, "the README lost its commands");
    for step in steps {
        let command = step.command.replace(APPLICATION_ADDRESS, &application);
        let printed = if [NOT_HERE, APPLICATION].contains(&step.command.as_str()) {
            continue;
        } else if let Some(arguments) = command.strip_prefix(COMMAND) {
            if arguments.starts_with("run") {
                drop(service.take());
                let running = Running::start(arguments, dir);
                let printed = running.printed();
                service = Some(running);
                printed
            } else {
                let program = env!("CARGO_BIN_EXE_ratekeeper");
                shell(&format!("{program} {arguments}"), dir)
            }
        } else {
            let command = service.as_ref().map(|running| running.here(&command));
            shell(&command.unwrap_or(step.command.clone()), dir)
        };
        assert_eq!(steady(&printed), steady(&step.shown), "$ {}", step.command);
    }
}
