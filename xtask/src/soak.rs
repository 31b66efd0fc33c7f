//! `cargo xtask soak [--minutes N]`: the soak test of the command, for longer than in the tests.
//!
//! Every door is under load, the policy is reloaded each second and Redis killed each minute; then
//! the gateway beside nginx, before an application that hangs and dies. At the end memory,
//! descriptors and threads must be flat and every bound kept.

use std::path::Path;
use std::process::Command;

/// Length of the test unless stated.
const MINUTES: &str = "30";

pub(crate) fn run(root: &Path) -> Result<String, String> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let minutes = match arguments[..] {
        [] => MINUTES,
        ["--minutes", minutes] => minutes,
        _ => return Err("write `--minutes N`".into()),
    };
    if !minutes.parse::<u32>().is_ok_and(|minutes| minutes > 0) {
        return Err(format!("`{minutes}` must be whole minutes, at least 1"));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ended = Command::new(cargo)
        .current_dir(root)
        .env("RATEKEEPER_SOAK_MINUTES", minutes)
        .args(["test", "-p", "ratekeeper-cli", "--test", "e2e"])
        .args(["--", "soak::", "--nocapture", "--test-threads=1"])
        .status()
        .map_err(|why| format!("cargo does not start: {why}"))?;
    if ended.success() {
        Ok(format!("{minutes} min without growth"))
    } else {
        Err("see above".into())
    }
}
