//! The page of events against the program: every event in the source, with its level and fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Level and fields of an event; those behind `?` are not always there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Schema {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text up to the parenthesis that closes it.
fn enclosed(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap()]
}

/// Splits at commas that are in no parentheses, brackets or quotes.
fn items(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut items) = (0, false, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(text[start..].trim());
    items.retain(|item| !item.is_empty());
    items
}

/// Returns the literals between quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// Adds the events of a source file.
fn read(source: &str, events: &mut BTreeMap<String, Schema>) {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.flat_map(|line| [line, "\n"]).collect();
    for (at, _) in code.match_indices("tracing::") {
        let Some((level, rest)) = code[at + "tracing::".len()..].split_once("!(") else {
            continue;
        };
        if !["error", "warn", "info", "debug", "trace"].contains(&level) {
            continue;
        }
        let (mut names, mut fields) = (Vec::new(), BTreeSet::new());
        for item in items(enclosed(rest)) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let name = name.trim().trim_start_matches(['%', '?']);
            if name == "event" && value.is_empty() {
                // A variable: one of the names of its definition.
                let defined = code[..at].rsplit_once("let event =").unwrap().1;
                names.extend(quoted(defined.split_once(';').unwrap().0));
            } else if name == "event" {
                names.extend(quoted(value));
            } else if name.starts_with('"') {
                fields.insert("message".to_owned());
            } else {
                fields.insert(name.to_owned());
            }
        }
        assert!(
            !names.is_empty(),
            "a line of the log without `event`: {}",
            enclosed(rest)
        );
        for name in names {
            let schema = events.entry(name.to_owned()).or_default();
            schema.levels.insert(level.to_owned());
            schema.fields.extend(fields.iter().cloned());
        }
    }
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/guide/events.md")).unwrap()
}

/// Returns the cells of the rows of a table of the page, which begins with `head`.
fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let table = page.split_once(head).unwrap().1.lines().skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// Returns the words between backticks.
fn words(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_lists_each_event_of_the_source_with_its_level_and_fields() {
    let mut files = Vec::new();
    for name in ["server", "cli", "gateway", "store"] {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    let mut events = BTreeMap::new();
    for file in files {
        read(&std::fs::read_to_string(file).unwrap(), &mut events);
    }
    assert!(events.len() > 25, "only {} events were found", events.len());
    let page = page();
    let mut listed = BTreeMap::new();
    for row in rows(&page, "| event | level |") {
        let fields = words(&row[3]).into_iter();
        let schema = Schema {
            levels: row[2].split(", ").map(str::to_owned).collect(),
            fields: fields
                .map(|field| field.trim_end_matches('?').to_owned())
                .collect(),
        };
        for name in words(&row[1]) {
            listed.insert(name.to_owned(), schema.clone());
        }
    }
    for (name, schema) in &events {
        assert_eq!(listed.get(name), Some(schema), "{name}");
    }
    let made_up: Vec<_> = listed
        .keys()
        .filter(|name| !events.contains_key(*name))
        .collect();
    assert!(made_up.is_empty(), "{made_up:?}");

    let known = rows(&page, "| field | type |");
    let known: BTreeSet<_> = known.iter().flat_map(|row| words(&row[1])).collect();
    let used: BTreeSet<_> = events
        .values()
        .flat_map(|it| &it.fields)
        .map(|it| &**it)
        .collect();
    assert_eq!(known, used);
}
