//! `cargo xtask test`: installs the programs that the tests drive, then runs every test.
//!
//! The end-to-end tests put real proxies in front of a real service. They are Debian
//! packages; on another system the chore names what is missing, and the tests that need it
//! say so and pass by.

use std::env;
use std::path::Path;
use std::process::Command;

/// Program, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 4] = [
    ("nginx", "nginx"),
    ("caddy", "caddy"),
    ("haproxy", "haproxy"),
    ("curl", "curl"),
];

/// Directories of servers, which are not on every user's PATH.
const SERVER_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Installs, then tests.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    install(&missing())?;
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut tests = Command::new(cargo);
    tests
        .args(["test", "--workspace", "--no-fail-fast"])
        .current_dir(root);
    if run_command(&mut tests)? {
        Ok("every test passed".into())
    } else {
        Err("tests failed".into())
    }
}

/// The packages whose program is not on this machine.
fn missing() -> Vec<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let here = |program: &str| {
        let mut directories = env::split_paths(&path).chain(
            SERVER_DIRECTORIES
                .iter()
                .map(|directory| (*directory).into()),
        );
        directories.any(|directory| directory.join(program).is_file())
    };
    PROGRAMS
        .iter()
        .filter(|(program, _)| !here(program))
        .map(|(_, package)| *package)
        .collect()
}

fn install(packages: &[&str]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !Path::new("/usr/bin/apt-get").is_file() {
        crate::say(&format!(
            "not installed: {list}; the tests that need them are skipped"
        ));
        return Ok(());
    }
    crate::say(&format!("installing {list} (Debian packages)"));
    for arguments in [
        vec!["update"],
        [&["install", "-y", "--no-install-recommends"], packages].concat(),
    ] {
        if !run_command(&mut as_root(&arguments))? {
            return Err(format!(
                "could not install {list}: install them yourself and try again"
            ));
        }
    }
    Ok(())
}

/// `apt-get`, by way of `sudo` unless we are root.
fn as_root(arguments: &[&str]) -> Command {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    let mut command = if is_root {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg("apt-get");
        sudo
    };
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Runs to the end; whether it succeeded.
fn run_command(command: &mut Command) -> Result<bool, String> {
    let status = command.status();
    let status = status
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    Ok(status.success())
}
