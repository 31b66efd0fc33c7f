//! Reference: the page of the guide is the one that the table of fields gives.
//!
//! `RATEKEEPER_REFERENCE=write cargo test -p ratekeeper-policy --test language reference` writes it.

use ratekeeper_policy::config::{explain_field, reference, schema};
use serde_json::Value;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/reference.md");

#[test]
fn the_page_of_the_guide_is_current() {
    let page = reference();
    if std::env::var("RATEKEEPER_REFERENCE").is_ok_and(|what| what == "write") {
        std::fs::write(PATH, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        written == page,
        "docs/guide/reference.md is not current; run RATEKEEPER_REFERENCE=write cargo test -p \
         ratekeeper-policy --test language reference"
    );
}

/// Calls `visit` with the name of each field of the schema.
fn each_field(schema: &Value, visit: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(members) => {
            let properties = members.get("properties").and_then(Value::as_object);
            for name in properties.into_iter().flat_map(|names| names.keys()) {
                visit(name);
            }
            members
                .values()
                .for_each(|member| each_field(member, visit));
        }
        Value::Array(values) => values.iter().for_each(|value| each_field(value, visit)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_schema_has_an_entry() {
    let page = reference();
    let mut count = 0;
    each_field(&schema(), &mut |name| {
        count += 1;
        assert!(page.contains(&format!("\n- `{name}`: ")), "{name}");
        assert!(explain_field(name).is_some(), "{name}");
    });
    assert!(count > 100, "{count}");
}
