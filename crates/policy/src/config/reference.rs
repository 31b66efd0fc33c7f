//! Reference: the table of fields as a page for people, and the entry of one field.
//!
//! ```text
//!   fields/: one table --+--> check.rs      which texts the parser accepts
//!                        +--> schema.rs     for editors
//!                        '--> reference.rs  docs/guide/reference.md, `ratekeeper help FIELD`
//! ```

use super::document::shape::{FieldSpec, Need, Shape, TableSpec, in_backticks};
use super::fields::POLICY;

/// The first lines of the page.
const INTRODUCTION: &str = "\
# Fields of the policy

Every field that a policy may have, with its type, its default and an example. This page is generated from the table that the parser and the
JSON Schema are made from. `ratekeeper help FIELD` prints one entry, such as `ratekeeper help missing_key` or `ratekeeper help bucket.size`.

An editor completes and explains the fields by that schema: `ratekeeper validate --schema > ratekeeper.schema.json`, and, for Taplo and Even
Better TOML, the first line of the policy `#:schema ./ratekeeper.schema.json`.
";

/// The place of fields outside of all tables.
const TOP: &str = "the top of the file";

/// A table and the places where it stands.
struct Section {
    /// `[geo]`, `[[limit]]`, `bucket` in `[[limit]]`; several if these have the same fields.
    places: Vec<String>,
    /// Names of the fields that hold it; empty for the whole file.
    names: Vec<&'static str>,
    table: &'static TableSpec,
}

/// Returns the reference of all fields in Markdown, generated.
///
/// ```
/// let page = ratekeeper_policy::config::reference();
/// assert!(page.contains("\n## `[[limit]]`\n"));
/// assert!(page.contains("\n- `timezone`: a string; optional\\\n"));
/// ```
pub fn reference() -> String {
    let sections = sections();
    let sections = sections.iter().map(Section::page);
    INTRODUCTION.to_owned() + &sections.collect::<String>()
}

impl Section {
    fn page(&self) -> String {
        let table = self.table;
        let one_of = if table.one_of.is_empty() {
            String::new()
        } else {
            format!("Exactly one of {}.\n\n", in_backticks(table.one_of))
        };
        let fields = table.fields.iter().map(|field| {
            let [head, text, example] = entry(field);
            format!("- {head}\\\n  {text}\\\n  {example}\n")
        });
        let fields: String = fields.collect();
        let heading = self.places.join(", ");
        let heading = if heading == TOP {
            "Top of the file"
        } else {
            &heading
        };
        format!("\n## {heading}\n\n{one_of}{fields}")
    }
}

/// Returns the entries of a field, as `ratekeeper help FIELD` shows them: `missing_key`, or with the
/// table that holds it, `bucket.size`. `None` if there is no such field.
///
/// ```
/// let entry = ratekeeper_policy::config::explain_field("bucket.size").unwrap();
/// assert!(entry.starts_with("size in `bucket` in `[[limit]]`\n"));
/// assert!(ratekeeper_policy::config::explain_field("cost.is").is_some());
/// assert_eq!(ratekeeper_policy::config::explain_field("brust"), None);
/// ```
pub fn explain_field(name: &str) -> Option<String> {
    let (table_name, name) = name.rsplit_once('.').unwrap_or(("", name));
    let table_name = table_name.rsplit('.').next().unwrap_or_default();
    let mut entries = Vec::new();
    for section in sections() {
        let is_asked = table_name.is_empty() || section.names.contains(&table_name);
        let Some(field) = section.table.field(name).filter(|_| is_asked) else {
            continue;
        };
        let [head, text, example] = entry(field);
        let (_, head) = head.split_once(": ").unwrap_or_default();
        let places = section.places.join(", ");
        let lines = [head, &text, &example].map(|line| format!("  {line}\n").replace('`', ""));
        entries.push(format!("{name} in {places}\n{}", lines.concat()));
    }
    (!entries.is_empty()).then(|| entries.join("\n"))
}

/// Returns the tables in the order of the file, each once.
fn sections() -> Vec<Section> {
    let mut found = Vec::new();
    visit(&POLICY, ("", TOP.to_owned()), &mut found);
    found
}

fn visit(
    table: &'static TableSpec,
    (name, place): (&'static str, String),
    found: &mut Vec<Section>,
) {
    let known = found
        .iter_mut()
        .find(|known| std::ptr::eq(known.table, table));
    if let Some(known) = known {
        known.places.push(place);
        known.names.push(name);
        return;
    }
    found.push(Section {
        places: vec![place.clone()],
        names: vec![name],
        table,
    });
    for field in table.fields {
        inside(&field.shape, (field.name, &place), found);
    }
}

/// Visits the tables in a value of a field.
fn inside(shape: &'static Shape, (name, place): (&'static str, &str), found: &mut Vec<Section>) {
    let is_top = place == TOP;
    // `[store.redis]`: a table of a table that is no list.
    let parent = place
        .strip_prefix("`[")
        .and_then(|place| place.strip_suffix("]`"));
    let parent = parent.filter(|parent| !parent.starts_with('['));
    let within = match parent {
        Some(parent) => format!("`[{parent}.{name}]`"),
        None if is_top => format!("`[{name}]`"),
        None => format!("`{name}` in {place}"),
    };
    match shape {
        Shape::Table(table) => visit(table, (name, within), found),
        Shape::Tables { of, heading, .. } => visit(of, (name, format!("`[[{heading}]]`")), found),
        Shape::NamedTables(of, _) => visit(of, (name, format!("`[{name}.NAME]`")), found),
        Shape::Values(of, _) | Shape::Map(of, _) => inside(of, (name, place), found),
        Shape::Either(shapes) => {
            for shape in *shapes {
                inside(shape, (name, place), found);
            }
        }
        _ => {}
    }
}

/// Returns the lines of a field: its type and default, its sentence, and an example.
fn entry(field: &FieldSpec) -> [String; 3] {
    let (about, default) = without_default(field.about);
    let need = match (field.need, default) {
        (Need::Required, _) => "required".to_owned(),
        (Need::Optional, Some(default)) => format!("default {default}"),
        (Need::Optional, None) => "optional".to_owned(),
    };
    let bounds = match field.shape {
        Shape::Whole(least, most) | Shape::Amount(least, most) => {
            format!(" from {least} to {most}")
        }
        Shape::List(most) | Shape::Texts(most) | Shape::Tables { most, .. } => {
            format!(", at most {most}")
        }
        _ => String::new(),
    };
    let head = format!(
        "`{}`: {}{bounds}; {need}",
        field.name,
        field.shape.expected()
    );
    [head, about, format!("`{} = {}`", field.name, field.example)]
}

/// Returns a sentence without `(default: X)`, and X.
pub(super) fn without_default(about: &str) -> (String, Option<&str>) {
    let found = about.split_once(" (default").and_then(|(before, rest)| {
        let (default, after) = rest.split_once(')')?;
        let default = default.trim_start_matches(':').trim();
        (!default.is_empty()).then(|| (format!("{before}{after}"), Some(default)))
    });
    found.unwrap_or((about.to_owned(), None))
}
