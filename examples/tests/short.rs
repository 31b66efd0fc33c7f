//! A program takes no more lines than with the crate that people have for its task.
//!
//! The programs of the peers lie in `peers`, compiled here, and print what ours print. A line is one
//! of code: no blank line, no comment, no import.

/// The programs of the peers.
#[expect(
    dead_code,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "compiled, not run"
)]
mod peers {
    mod axum_server;
    mod limits;
    mod smol;
    mod streams;
    mod workers;
}

/// What our program must not exceed.
enum Most {
    /// The lines of a peer's program.
    Peer(&'static str),
    /// As many lines, because no other crate does it: the program that its first user wrote.
    Lines(usize),
}
use Most::{Lines, Peer};

/// An example and what it must not exceed.
macro_rules! row {
    ($example:literal, $most:expr) => {
        (
            $example,
            include_str!(concat!("../src/bin/", $example, ".rs")),
            $most,
        )
    };
}

/// The program of a peer.
macro_rules! peer {
    ($name:literal) => {
        Peer(include_str!(concat!("peers/", $name, ".rs")))
    };
}

/// Returns the number of lines of code.
fn lines(program: &str) -> usize {
    let lines = program.lines().map(str::trim);
    let ignored = ["//", "#!", "use "];
    let is_code = |line: &&str| !line.is_empty() && !ignored.iter().any(|it| line.starts_with(it));
    lines.filter(is_code).count()
}

#[test]
fn examples_are_no_longer_than_the_programs_of_peers() {
    let table = [
        row!("governor_migration", peer!("limits")), // governor
        row!("axum", peer!("axum_server")),          // tower_governor
        row!("acquire_blocking", peer!("workers")),  // leaky-bucket
        row!("smol", peer!("smol")),                 // governor
        row!("tonic", Lines(54)),
        row!("reqwest_client", Lines(77)),
        row!("llm_token_budget", Lines(43)),
        row!("shared_by_processes", Lines(53)),
        row!("adaptive", Lines(41)),
        row!("guava_migration", Lines(16)),
    ];
    for (example, program, most) in table {
        let most = match most {
            Peer(program) => lines(program),
            Lines(lines) => lines,
        };
        let lines = lines(program);
        println!("{example}: {lines} lines of at most {most}");
        assert!(5 < lines && lines <= most, "{example}: {lines} > {most}");
    }
}

/// governor has a call for it, which saves the closure.
#[test]
fn streams_and_sinks_take_three_lines_more_than_governor_s_calls() {
    let (ours, peer) = (
        include_str!("../src/bin/streams.rs"),
        include_str!("peers/streams.rs"),
    );
    assert!(lines(ours) <= lines(peer) + 3);
}
