//! The public interface of the libraries, item by item, as `api/PACKAGE.txt` lists it: additions
//! are recorded there, and removals or changes require a new version.
//!
//! ```text
//!   api/ratekeeper.txt | 0.1.0, unpublished                      the version it belongs to
//!                      | pub fn ratekeeper::Limiter::check(..)   one line an item
//! ```
//!
//! `RATEKEEPER_API=write cargo test -p xtask --test api` writes the lists. It refuses to remove an
//! item from the list of a published version, unless the package's version may by then break its
//! users (Cargo's reading of semantic versioning: 0.2 after 0.1, 2 after 1).

#![cfg(unix)] // the compiler is called through a script
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use public_api::{Builder, PublicApi};
use serde_json::Value;

/// Packages that people depend on, and their folders in `crates`. Their interface is that of all
/// features together, because a feature adds to it and changes nothing. They are documented by one
/// command, because cargo would compile the dependencies anew for each.
const PACKAGES: [(&str, &str); 5] = [
    ("ratekeeper-core", "core"),
    ("ratekeeper-policy", "policy"),
    ("ratekeeper-store", "store"),
    ("ratekeeper", "keeper"),
    ("ratekeeper-resilience", "resilience"),
];

/// A feature with checks for tests of this repository, which no list promises.
const TESTING: &str = "testing";

/// Auto traits that are left out because no user asks for them by name.
const OMITTED: [&str; 5] = [
    "Freeze",
    "Unpin",
    "UnwindSafe",
    "RefUnwindSafe",
    "UnsafeUnpin",
];

/// Suffix of the version in a list that is not published.
const UNPUBLISHED: &str = ", unpublished";

/// The public items of a package at one version.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Api {
    version: String,
    is_published: bool,
    items: BTreeSet<String>,
}

impl Api {
    fn read(text: &str) -> Self {
        let (head, items) = text.split_once('\n').unwrap_or((text, ""));
        let version = head.strip_suffix(UNPUBLISHED);
        Self {
            version: version.unwrap_or(head).to_owned(),
            is_published: version.is_none(),
            items: items.lines().map(str::to_owned).collect(),
        }
    }

    fn write(&self) -> String {
        let mark = if self.is_published { "" } else { UNPUBLISHED };
        let items = self.items.iter().map(|item| format!("{item}\n"));
        format!("{}{mark}\n{}", self.version, items.collect::<String>())
    }

    /// Returns the items that `next` lacks or has changed; empty if its version may do that.
    fn broken_by<'a>(&'a self, next: &'a Self) -> Vec<&'a str> {
        if !self.is_published || series(&self.version) != series(&next.version) {
            return Vec::new();
        }
        let gone = self.items.difference(&next.items);
        gone.map(String::as_str).collect()
    }
}

/// Returns the part of a version that changes when users may be broken: `1`, or `0.2`.
fn series(version: &str) -> &str {
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    let end = version.match_indices('.').nth(parts - 1);
    end.map_or(version, |(at, _)| &version[..at])
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the documentation tool of a stable toolchain, enabled to write JSON as well. Code
/// compiled for it is compiled as always.
fn rustdoc(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let script = directory.join("rustdoc");
    fs::write(
        &script,
        "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// Returns the features of a package that are part of its interface, with commas.
fn features(folder: &str) -> String {
    let manifest = root().join("crates").join(folder).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let lines = manifest.lines().skip_while(|line| *line != "[features]");
    let section = lines.skip(1).take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| Some(line.split_once(" = ")?.0));
    let promised = names.filter(|name| !name.starts_with('#') && *name != TESTING);
    promised.collect::<Vec<_>>().join(",")
}

/// Writes the documentation of all packages as JSON, once, and returns the file of one.
fn json(package: &str) -> PathBuf {
    static WRITTEN: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = root().join("target");
        let mut doc = Command::new(env!("CARGO"));
        doc.args([
            "doc",
            "--quiet",
            "--no-deps",
            "--lib",
            "--no-default-features",
        ]);
        for (package, folder) in PACKAGES {
            doc.args(["--package", package]);
            doc.args(["--features", &features(folder)]);
        }
        let output = doc
            .arg("--target-dir")
            .arg(&target)
            .env("RUSTDOC", rustdoc(&target.join("api")))
            .env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json")
            .env_remove("RUSTFLAGS")
            .current_dir(root())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        target.join("doc")
    });
    WRITTEN.join(format!("{}.json", package.replace('-', "_")))
}

fn items(json: &Path) -> PublicApi {
    let builder = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(true);
    builder.build().unwrap()
}

/// Returns the current public items of the package.
fn api(json: &Path) -> Api {
    let api = items(json);
    let omitted = OMITTED.map(|name| format!("::{name} for "));
    let items = api.items().map(ToString::to_string);
    Api {
        version: env!("CARGO_PKG_VERSION").to_owned(), // one for all packages
        is_published: false,
        items: items
            .filter(|item| !omitted.iter().any(|name| item.contains(name)))
            .collect(),
    }
}

/// The compiler that lists the interface: others write another form of JSON.
const LISTED_BY: &str = "1.95";

/// Returns true if the JSON of this compiler can be read here; if not, prints one line. In CI it
/// must be.
fn is_readable() -> bool {
    let output = Command::new("rustc").arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&output.stdout);
    let version = version.trim();
    let wanted = format!("rustc {LISTED_BY}.");
    if version.starts_with(&wanted) {
        return true;
    }
    let in_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(
        !in_ci,
        "the interface is listed by {wanted}*, not {version}"
    );
    let skipped = format!("skipped: the interface is listed by {wanted}*, not {version}\n");
    let _ = std::io::stderr().write_all(skipped.as_bytes()); // past the test's capture
    false
}

#[test]
fn the_public_interface_is_as_it_is_listed() {
    if !is_readable() {
        return;
    }
    let writes = std::env::var("RATEKEEPER_API").is_ok_and(|what| what == "write");
    let mut findings = Vec::new();
    for (package, _) in PACKAGES {
        let file = root().join(format!("api/{package}.txt"));
        let listed =
            fs::read_to_string(&file).map_or_else(|_| Api::read("0.0.0"), |text| Api::read(&text));
        let mut now = api(&json(package));
        now.is_published = listed.is_published && listed.version == now.version;
        for gone in listed.broken_by(&now) {
            findings.push(format!(
                "{package} breaks users of {}: {gone}",
                listed.version
            ));
        }
        if writes && findings.is_empty() {
            fs::create_dir_all(root().join("api")).unwrap();
            fs::write(&file, now.write()).unwrap();
        } else if findings.is_empty() && listed != now {
            let gone = listed
                .items
                .difference(&now.items)
                .map(|item| format!("-{item}\n"));
            let new = now
                .items
                .difference(&listed.items)
                .map(|item| format!("+{item}\n"));
            let changes: String = gone.chain(new).collect();
            findings.push(format!(
                "{package} differs from api/{package}.txt:\n{changes}"
            ));
        }
    }
    assert!(
        findings.is_empty(),
        "{}\nTo accept this, run RATEKEEPER_API=write cargo test -p xtask --test api\n\
         A change that breaks users of a published version needs a breaking version in Cargo.toml.",
        findings.join("\n")
    );
}

/// The front crate is what a new user reads, so that each of its types, traits and functions shows
/// how it is used.
#[test]
fn each_item_of_the_front_crate_has_an_example() {
    if !is_readable() {
        return;
    }
    let json = json("ratekeeper");
    let documented: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let is_one_of = |item: &Value, kinds: &[&str]| {
        let kind = item["inner"]
            .as_object()
            .and_then(|kind| kind.keys().next());
        kind.is_some_and(|kind| kinds.contains(&kind.as_str()))
    };
    let mut seen = 0;
    let mut without = BTreeSet::new();
    for item in items(&json).items() {
        let [own, parent] = [Some(item.id()), item.parent_id()]
            .map(|id| id.map_or(&Value::Null, |id| &documented["index"][id.0.to_string()]));
        let shows = is_one_of(own, &["struct", "enum", "trait"])
            || is_one_of(own, &["function", "type_alias"]) && is_one_of(parent, &["module"]);
        if shows {
            seen += 1;
            if !own["docs"].as_str().unwrap_or_default().contains("```\n") {
                without.insert(item.to_string());
            }
        }
    }
    assert!(seen > 60, "only {seen} items were found");
    assert!(without.is_empty(), "without an example: {without:#?}");
}

#[test]
fn breaking_changes_are_distinguished_from_compatible_ones() {
    let check = |before: &str, after: &str, broken: &[&str]| {
        let (before, after) = (Api::read(before), Api::read(after));
        assert_eq!(before.broken_by(&after), broken, "{before:?} {after:?}");
    };
    check("0.1.0\na\nb\n", "0.1.1\na\nb\nc\n", &[]); // added
    check("0.1.0\na\nb\n", "0.1.1\na\n", &["b"]); // gone
    check("0.1.0\nfn a(u32)\n", "0.1.9\nfn a(u64)\n", &["fn a(u32)"]); // changed
    check("0.1.0\na\nb\n", "0.2.0\na\n", &[]);
    check("1.4.0\na\nb\n", "1.5.0\na\n", &["b"]);
    check("1.4.0\na\nb\n", "2.0.0\na\n", &[]);
    check("0.1.0, unpublished\na\nb\n", "0.1.0, unpublished\na\n", &[]);
}

#[test]
fn a_list_is_read_as_it_was_written() {
    for text in ["0.1.0\na\nb\n", "0.1.0, unpublished\na\n", "1.0.0\n"] {
        assert_eq!(Api::read(text).write(), text);
    }
}
