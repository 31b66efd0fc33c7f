//! A stage: visitors, a real proxy, the real `ratekeeper`, and an application behind.
//!
//! ```text
//!   visitor ---> proxy ------> upstream
//!   127.0.0.2+     | ^         counts what arrives
//!                  v |
//!               ratekeeper
//! ```

pub(crate) mod application;
pub(crate) mod chromium;
pub(crate) mod clock;
pub(crate) mod envoy;
pub(crate) mod in_process;
#[path = "../../../../store/tests/redis/ports.rs"]
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod sentinel;
pub(crate) mod service;
pub(crate) mod staged;
pub(crate) mod upstream;
pub(crate) mod visitor;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use self::proxy::{Around, Kind, Proxy, WhenDown};
use self::service::{Service, write_policy};
use self::upstream::Upstream;

/// A free port of loopback, as an address.
pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], ports::free_port()))
}

/// Dropped from top to bottom: the visitors' side first.
pub(crate) struct Stage {
    pub(crate) proxy: Proxy,
    pub(crate) service: Service,
    pub(crate) upstream: Upstream,
    dir: TempDir,
}

impl Stage {
    /// Starts all parts, with a policy of `limits`; `None` if the proxy is not installed.
    pub(crate) fn open(kind: Kind, limits: &str) -> Option<Self> {
        Self::open_with(kind, WhenDown::Refuse, |dir| write_policy(dir, limits))
    }

    /// The same, with the proxy's choice and a policy file made by `policy`.
    pub(crate) fn open_with(
        kind: Kind,
        when_down: WhenDown,
        policy: impl FnOnce(&Path) -> std::path::PathBuf,
    ) -> Option<Self> {
        let program = kind.program()?;
        let dir = TempDir::new().expect("the system has a temporary directory");
        let policy = policy(dir.path());
        let upstream = Upstream::start();
        let service = Service::start(dir.path(), &policy);
        let around = Around {
            dir: dir.path(),
            service: service.http(),
            upstream: upstream.address(),
            policy: &policy,
            when_down,
        };
        let proxy = Proxy::start(kind, &program, &around);
        Some(Self {
            proxy,
            service,
            upstream,
            dir,
        })
    }

    /// Address for visitors.
    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Directory of the policy file and of all other files of this test.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Writes a line past the capture of the test runner, so that it is shown.
pub(crate) fn say(line: &str) {
    // A failure cannot be reported if standard error is closed.
    let _ = writeln!(io::stderr(), "{line}");
}
