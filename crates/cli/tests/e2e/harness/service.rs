//! `ratekeeper run` as users start it, on free loopback ports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clock;
use super::process::Process;
use super::visitor::Visitor;

const START_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Service {
    pub(crate) process: Process,
    http: SocketAddr,
    grpc: SocketAddr,
    admin: SocketAddr,
}

/// The admin listener: any free port and no token unless stated.
#[derive(Clone, Copy, Default)]
pub(crate) struct Admin<'a> {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) token: Option<&'a str>,
}

impl Service {
    /// Starts on any free port.
    pub(crate) fn start(dir: &Path, policy: &Path) -> Self {
        Self::start_at(dir, policy, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts with the HTTP door at `http`.
    pub(crate) fn start_at(dir: &Path, policy: &Path, http: SocketAddr) -> Self {
        Self::start_both(
            dir,
            policy,
            (http, SocketAddr::from(([127, 0, 0, 1], 0))),
            &[],
            Admin::default(),
        )
    }

    /// Starts with further options.
    pub(crate) fn start_with(dir: &Path, policy: &Path, options: &[&str]) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_both(dir, policy, (free, free), options, Admin::default())
    }

    /// Starts with the gRPC door at `grpc`.
    pub(crate) fn start_grpc_at(dir: &Path, policy: &Path, grpc: SocketAddr) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_both(dir, policy, (free, grpc), &[], Admin::default())
    }

    /// Starts with the admin listener at an address, and a token.
    pub(crate) fn start_admin(dir: &Path, policy: &Path, admin: Admin<'_>) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_both(dir, policy, (free, free), &[], admin)
    }

    fn start_both(
        dir: &Path,
        policy: &Path,
        (http, grpc): (SocketAddr, SocketAddr),
        options: &[&str],
        admin: Admin<'_>,
    ) -> Self {
        let address = admin.address.unwrap_or(([127, 0, 0, 1], 0).into());
        let token = admin.token.map(|token| ("RATEKEEPER_ADMIN_TOKEN", token));
        let mut process = Process::start(
            "ratekeeper",
            Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
                .envs(token)
                .arg("run")
                .arg(policy)
                .args(["--listen", &format!("http={http}")])
                .args(["--listen", &format!("grpc={grpc}")])
                .args(["--listen", &format!("admin={address}"), "--json"])
                .args(options)
                .current_dir(dir),
            dir.join("ratekeeper.out"),
            dir.join("ratekeeper.log"),
        );
        let doors = clock::poll("three listeners of ratekeeper", START_WITHIN, || {
            assert!(process.ended().is_none(), "ratekeeper ended at its start");
            let output = process.output();
            let grpc = door(&output, "grpc")?;
            Some((door(&output, "http")?, grpc, door(&output, "admin")?))
        });
        let (http, grpc, admin) = doors.unwrap_or_else(|error| panic!("{error}"));
        Self {
            process,
            http,
            grpc,
            admin,
        }
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the value of the metric with exactly this name and these labels.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = Visitor::at(1).get(self.admin, "/metrics").body;
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
            .unwrap_or_else(|| panic!("no metric {series} in:\n{text}"))
    }
}

/// Returns the address in the line that reports `door` as listening.
fn door(output: &str, door: &str) -> Option<SocketAddr> {
    output
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|event| event["event"] == "listening" && event["listener"] == door)?["address"]
        .as_str()?
        .parse()
        .ok()
}

/// Writes a policy file: the trust that the proxies need, then `limits`.
pub(crate) fn write_policy(dir: &Path, limits: &str) -> PathBuf {
    let path = dir.join("policy.toml");
    std::fs::write(&path, policy(limits)).expect("the test's directory is writable");
    path
}

/// Returns the text of a policy that trusts only the proxies (127.0.0.1).
pub(crate) fn policy(limits: &str) -> String {
    format!("version = 1\n\n[client_ip]\ntrusted_proxies = [\"127.0.0.1/32\"]\n\n{limits}\n")
}
