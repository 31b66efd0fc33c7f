//! A real nginx, Caddy or HAProxy, with the same text as users: the snippet, its addresses
//! replaced, around it only the lines that keep the program in the foreground, in the test's
//! directory and off the privileged ports.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clock;
use super::free_address;
use super::process::{self, Process};

pub(crate) const NGINX: &str = include_str!("../../../src/snippets/nginx.conf");
pub(crate) const CADDY: &str = include_str!("../../../src/snippets/Caddyfile");
pub(crate) const HAPROXY: &str = include_str!("../../../src/snippets/haproxy.cfg");
pub(crate) const HAPROXY_LUA: &str = include_str!("../../../src/snippets/haproxy.lua");

/// Line to remove for [`WhenDown::LetPass`].
const HAPROXY_REFUSES: &str =
    "http-request deny deny_status 503 unless { var(txn.ratekeeper_answered) -m found }";

const START_WITHIN: Duration = Duration::from_secs(20);

/// Threads that run Caddy, many more than there are processors, so that the system interrupts them
/// anywhere: races between Caddy's threads then appear about 70 times as often.
const THREADS: &str = "256";

/// Number of ports to try, because another program can take a free port before the proxy binds it.
const PORTS_TRIED: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Caddy,
    Haproxy,
}

/// Behaviour of the proxy while ratekeeper cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenDown {
    /// The snippet as written.
    Refuse,
    /// The snippet with its alternative.
    LetPass,
}

pub(crate) struct Proxy {
    pub(crate) process: Process,
    address: SocketAddr,
}

/// Addresses and files of the parts around the proxy.
pub(crate) struct Around<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) service: SocketAddr,
    pub(crate) upstream: SocketAddr,
    /// Policy for which `ratekeeper init --for` shows the configuration.
    pub(crate) policy: &'a Path,
    pub(crate) when_down: WhenDown,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::Haproxy => "haproxy",
        }
    }

    /// Returns the program, or `None` after printing one line. In CI it must be there.
    pub(crate) fn program(self) -> Option<PathBuf> {
        process::find(self.name())
    }
}

impl Proxy {
    pub(crate) fn start(kind: Kind, program: &Path, around: &Around<'_>) -> Self {
        for _ in 0..PORTS_TRIED {
            let address = free_address();
            let mut command = Command::new(program);
            match kind {
                Kind::Nginx => nginx(&mut command, address, around),
                Kind::Caddy => caddy(&mut command, address, around),
                Kind::Haproxy => haproxy(&mut command, address, around),
            }
            let mut process = Process::start(
                kind.name(),
                command.current_dir(around.dir),
                around.dir.join("proxy.out"),
                around.dir.join("proxy.log"),
            );
            let answers = clock::poll("listening proxy", START_WITHIN, || {
                if process.ended().is_some() {
                    return Some(false);
                }
                TcpStream::connect(address).is_ok().then_some(true)
            });
            if answers.unwrap_or_else(|error| panic!("{error}")) && process.ended().is_none() {
                return Self { process, address };
            }
            assert!(
                process
                    .log()
                    .to_lowercase()
                    .contains("address already in use")
                    || process.log().contains("cannot bind socket"),
                "{} ended at its start:\n{}",
                kind.name(),
                process.log(),
            );
        }
        panic!("no free port for {} in {PORTS_TRIED} tries", kind.name());
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Replaces the addresses of a snippet. Each must be there, so that a snippet that changes shape
/// fails here and not later.
fn fill(snippet: &str, places: &[(&str, String)]) -> String {
    let mut text = snippet.to_owned();
    for (place, value) in places {
        assert!(
            text.contains(place),
            "the snippet has no `{place}`:\n{snippet}"
        );
        text = text.replace(place, value);
    }
    text
}

/// Enables the alternative that a snippet offers as code behind a comment sign (`#code`, not `#
/// text`).
fn uncomment(snippet: &str) -> String {
    let lines = snippet.lines().map(|line| {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        match body.strip_prefix('#') {
            Some(code) if !code.is_empty() && !code.starts_with(' ') => {
                format!("{indent}{code}\n")
            }
            _ => format!("{line}\n"),
        }
    });
    let text: String = lines.collect();
    assert_ne!(
        text, snippet,
        "the snippet offers no choice behind a comment sign"
    );
    text
}

/// Returns the files that `ratekeeper init --for` shows beside a policy.
pub(crate) fn snippets<const FILES: usize>(policy: &Path, proxy: &str) -> [String; FILES] {
    let shown = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .arg("init")
        .arg(policy)
        .args(["--for", proxy, "--json"])
        .output()
        .expect("the command runs");
    let json: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("it prints JSON");
    assert!(json["kept"].is_string(), "{json}");
    std::array::from_fn(|file| {
        let text = json["snippets"][file]["text"].as_str();
        text.expect("a configuration").to_owned()
    })
}

impl Around<'_> {
    /// Returns a snippet with this test's addresses and its choice; `listen` is the snippet's
    /// listening address and its replacement.
    fn site(&self, snippet: &str, listen: (&str, String)) -> String {
        let chosen = match self.when_down {
            WhenDown::Refuse => snippet.to_owned(),
            WhenDown::LetPass => uncomment(snippet),
        };
        let places = [
            ("127.0.0.1:8080", self.service.to_string()),
            ("127.0.0.1:3000", self.upstream.to_string()),
            listen,
        ];
        fill(&chosen, &places)
    }
}

fn nginx(command: &mut Command, address: SocketAddr, around: &Around<'_>) {
    let dir = around.dir;
    let [snippet] = snippets(around.policy, "nginx");
    let site = around.site(&snippet, ("listen 80;", format!("listen {address};")));
    let main = "daemon off; pid nginx.pid; error_log stderr notice; worker_processes 2;\n\
        events {}\n\
        http {\n  access_log off;\n  client_body_temp_path client; proxy_temp_path proxy;\n  \
        fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n  \
        include ratekeeper.conf;\n}\n";
    write(dir, "ratekeeper.conf", &site);
    let main = write(dir, "nginx.conf", main);
    command
        .arg("-p")
        .arg(dir)
        .arg("-c")
        .arg(main)
        .args(["-e", "stderr"]);
}

fn caddy(command: &mut Command, address: SocketAddr, around: &Around<'_>) {
    let dir = around.dir;
    let [snippet] = snippets(around.policy, "caddy");
    let site = around.site(
        &snippet,
        (":80 {", format!("http://:{} {{", address.port())),
    );
    write(dir, "ratekeeper.caddy", &site);
    let main =
        "{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n}\nimport ratekeeper.caddy\n";
    let main = write(dir, "Caddyfile", main);
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(main);
    for home in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env(home, dir);
    }
    command.env("GOMAXPROCS", THREADS);
}

fn haproxy(command: &mut Command, address: SocketAddr, around: &Around<'_>) {
    let Around {
        dir,
        service,
        upstream,
        when_down,
        ..
    } = around;
    let [config, lua] = snippets(around.policy, "haproxy");
    let lua_places = [("127.0.0.1:8080", service.to_string())];
    let lua = write(dir, "ratekeeper.lua", &fill(&lua, &lua_places));
    let mut places = vec![
        ("127.0.0.1:8080", service.to_string()),
        ("127.0.0.1:3000", upstream.to_string()),
        ("bind :80", format!("bind {address}")),
        ("/etc/haproxy/ratekeeper.lua", lua.display().to_string()),
    ];
    if *when_down == WhenDown::LetPass {
        places.push((HAPROXY_REFUSES, String::new()));
    }
    let site = write(dir, "ratekeeper.cfg", &fill(&config, &places));
    // Without it a second HAProxy could share the port instead of failing.
    let main = write(dir, "haproxy.cfg", "global\n    noreuseport\n");
    command.arg("-db").arg("-f").arg(main).arg("-f").arg(site);
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).expect("the test's directory is writable");
    path
}
