//! `cargo xtask wasm`: limits built for WebAssembly run under node.
//!
//! ```text
//!   wasm/no_std      wasm32v1-none             no standard library, no heap, no import
//!   wasm/limiters    wasm32-unknown-unknown    the library, on the host's clock and on JavaScript's
//! ```
//!
//! The toolchain of this repository has no standard library for these targets, so a compiler of
//! Debian, which comes with the sources, builds it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::{install, run_command};

/// The compiler with its cargo and the sources of the standard library.
const COMPILER: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// Files of these packages.
const CARGO: &str = "/usr/bin/cargo";
const RUSTC: &str = "/usr/bin/rustc";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

/// Program, target, and the parts of the standard library that it needs.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("no_std", "wasm32v1-none", "core,alloc"),
    ("limiters", "wasm32-unknown-unknown", "std,panic_abort"),
];

/// Builds both and runs them.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let is_here = || {
        [CARGO, RUSTC, SOURCES]
            .iter()
            .all(|file| Path::new(file).is_file())
    };
    if !is_here() {
        install(&COMPILER)?;
    }
    if !is_here() {
        return match env::var_os("CI") {
            Some(_) => Err("no compiler with sources of the standard library".into()),
            None => Ok("skipped: no compiler with sources of the standard library".into()),
        };
    }
    let (linker, target) = (linker()?, root.join("target/wasm"));
    for (program, triple, parts) in PROGRAMS {
        let mut build = Command::new(CARGO);
        build
            .args(["build", "--quiet", "--package", program])
            .args(["--target", triple, "-Zbuild-std-features="])
            .arg(format!("-Zbuild-std={parts}"))
            .current_dir(root.join("wasm"))
            .env("RUSTC", RUSTC)
            .env("RUSTC_BOOTSTRAP", "1") // the flags that begin with -Z
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_TARGET_WASM32V1_NONE_LINKER", &linker)
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", &linker)
            .env_remove("LD_LIBRARY_PATH"); // libraries of the compiler that runs this
        if !run_command(&mut build)? {
            return Err(format!("{program} does not compile for {triple}"));
        }
    }
    let mut host = Command::new("node");
    host.arg(root.join("wasm/run.mjs")).arg(&target);
    if run_command(&mut host)? {
        Ok("limits hold in WebAssembly, with and without a standard library".into())
    } else {
        Err("see above".into())
    }
}

/// Returns the linker that comes with the compiler of this repository.
fn linker() -> Result<PathBuf, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = Command::new(rustc)
        .args(["--print", "target-libdir"])
        .output();
    let printed = printed
        .map_err(|error| format!("cannot run rustc: {error}"))?
        .stdout;
    let libraries = PathBuf::from(String::from_utf8_lossy(&printed).trim());
    let linker = libraries.with_file_name("bin").join("rust-lld");
    if linker.is_file() {
        Ok(linker)
    } else {
        Err(format!("no linker at {}", linker.display()))
    }
}
