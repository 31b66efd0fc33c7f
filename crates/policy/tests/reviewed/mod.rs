//! Texts that tests produce, compared with reviewed ones, which are kept in files of cases.
//!
//! ```text
//!   === name of the test, with its modules
//!   the text, as long as the next case, behind an empty line
//! ```
//!
//! A crate has its files in `tests/reviewed`, one for each subject. With `RATEKEEPER_CASES=write` a
//! test of the crate writes its text instead, in place of the earlier one or at the end of the
//! file of its module; read the changes before they are committed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Maximum number of lines of a file.
const MAX_LINES: usize = 400;

/// Held while files are read or written: tests of one process run side by side.
static FILES: Mutex<()> = Mutex::new(());

/// Compares a text with the reviewed one of the test that calls it.
macro_rules! assert_reviewed {
    ($text:expr) => {{
        fn here() {}
        let test = $crate::reviewed::test(std::any::type_name_of_val(&here));
        $crate::reviewed::compare(&test, &$text);
    }};
}
pub(crate) use assert_reviewed;

/// Returns the test that a function is in, without the program.
pub(crate) fn test(function: &str) -> String {
    let path = function.split("::").skip(1);
    let path = path.filter(|name| *name != "here" && *name != "{{closure}}");
    path.collect::<Vec<_>>().join("::")
}

/// Compares a text with the reviewed one of that name.
pub(crate) fn compare(name: &str, text: &str) {
    let found = text.trim_end();
    assert!(
        !found.is_empty() && !format!("\n{found}").contains("\n=== "),
        "{name}: {found}"
    );
    if std::env::var("RATEKEEPER_CASES").is_ok_and(|word| word == "write") {
        return write(name, found);
    }
    let mut cases = read().into_iter().flat_map(|(_, cases)| cases);
    let expected = cases.find(|case| case.name == name);
    let expected = expected.map(|case| case.text).unwrap_or_default();
    let same = found.lines().zip(expected.lines());
    let line = 1 + same
        .take_while(|(found, expected)| found == expected)
        .count();
    assert!(
        found == expected,
        "=== {name}\n{expected}\n--- found, other from line {line} on\n{found}\n\n\
         RATEKEEPER_CASES=write writes the text that was found"
    );
}

/// Checks that each case has its test in the sources below a folder, and their number.
pub(crate) fn check_all(sources: &str, count: usize) {
    let mut text = String::new();
    let mut folders = vec![root().join(sources)];
    while let Some(folder) = folders.pop() {
        for path in paths(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text += &content(&path);
            }
        }
    }
    let mut names = Vec::new();
    for (path, cases) in read() {
        let lines = content(&path).lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines", path.display());
        names.extend(cases.into_iter().map(|case| case.name));
    }
    let _ = writeln!(std::io::stderr(), "{sources}: {} cases", names.len());
    for name in &names {
        let last = name.rsplit("::").next().unwrap_or_default();
        let known = [format!("fn {last}("), format!("\"{last}\"")];
        assert!(
            known.iter().any(|word| text.contains(word)),
            "{name} has no test"
        );
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

/// A reviewed text.
struct Reviewed {
    name: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn content(file: &Path) -> String {
    fs::read_to_string(file).expect("a text")
}

/// Returns the entries of a folder, sorted.
fn paths(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entries = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = entries.collect();
    paths.sort();
    paths
}

/// Returns the files with their cases.
fn read() -> Vec<(PathBuf, Vec<Reviewed>)> {
    let _guard = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let paths = paths(&root().join("tests/reviewed")).into_iter();
    let files = paths.filter(|path| path.extension().is_some_and(|end| end == "txt"));
    files.map(|path| (path.clone(), cases(&path))).collect()
}

fn cases(file: &Path) -> Vec<Reviewed> {
    let text = format!("\n{}", content(file));
    let blocks = text.split("\n=== ").skip(1);
    let case = |block: &str| {
        let (name, text) = block.split_once('\n').expect("a name");
        Reviewed {
            name: name.to_owned(),
            text: text.trim_end().to_owned(),
        }
    };
    blocks.map(case).collect()
}

/// Writes a text to the file that has its name, or to the one of its module.
fn write(name: &str, found: &str) {
    let has = |file: &(PathBuf, Vec<Reviewed>)| file.1.iter().any(|case| case.name == name);
    let own = read().into_iter().find(has).map(|(path, _)| path);
    let module = name.split("::").next().unwrap_or_default();
    let file = own.unwrap_or_else(|| root().join(format!("tests/reviewed/{module}.txt")));
    let _guard = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = if file.exists() { cases(&file) } else { vec![] };
    let text = found.to_owned();
    match all.iter_mut().find(|case| case.name == name) {
        Some(case) => case.text = text,
        None => all.push(Reviewed {
            name: name.to_owned(),
            text,
        }),
    }
    let blocks = all
        .iter()
        .map(|case| format!("=== {}\n{}\n", case.name, case.text));
    // Replaced whole: the tests of another process may read it now.
    let next = file.with_extension(format!("{}.new", std::process::id()));
    fs::write(&next, blocks.collect::<Vec<_>>().join("\n")).expect("it is written");
    fs::rename(next, file).expect("it is replaced");
}
