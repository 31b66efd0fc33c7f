//! The JSON Schema agrees with the parser on every policy file of the repository.

use std::path::Path;

use ratekeeper_policy::config::{Context, parse, schema};
use serde_json::Value;

use crate::cases;

/// Findings about the shape of a file, which the schema must report as well.
const OF_SHAPE: [&str; 10] = [
    "RK0102", "RK0103", "RK0105", "RK0106", "RK0107", "RK0110", "RK0111", "RK0112", "RK0203",
    "RK0204",
];

#[test]
fn schema_and_parser_agree() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut right, mut wrong) = (0, 0);
    let all = ["broken", cases::CORPUS].into_iter().flat_map(cases::read);
    let mut policies: Vec<_> = all.map(|case| (case.name, case.input)).collect();
    for file in cases::files(&root.join("../../examples/policies")) {
        let text = std::fs::read_to_string(&file).unwrap();
        policies.push((file.display().to_string(), text));
    }
    for (name, text) in policies {
        let Ok(table) = toml::from_str(&text) else {
            continue;
        };
        let json = in_json(&toml::Value::Table(table));
        match parse(&text, Context::default()) {
            Ok(_) => {
                let error = validator.validate(&json).err();
                assert!(error.is_none(), "{name}: {error:?}");
                right += 1;
            }
            Err(errors) => {
                if errors.iter().any(|error| OF_SHAPE.contains(&error.code)) {
                    assert!(!validator.is_valid(&json), "{name}");
                    wrong += 1;
                }
            }
        }
    }
    assert!(right >= 10 && wrong >= 40, "{right} {wrong}");
}

#[test]
fn quantities_of_a_unit_have_decimals() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let bucket = "bucket = { size = \"200.00\", refill = \"50.50/24h\", step = true }";
    for (quantity, cost) in [
        (bucket, "\"attr:amount\""),
        ("limit = \"12.50/1d\"", "\"1.50\""),
        ("limit = \"12.50/1d\"", "{ reserve = \"2.50\" }"),
        (
            bucket,
            "[{ is = \"1.50\", path = \"/a\" }, { is = \"2\", path = \"/b\" }]",
        ),
        ("balance = { start = \"0\", max = \"100\" }", "3"),
        (
            "balance = { start = \"1.50\", max = \"100.00\" }",
            "\"attr:amount\"",
        ),
    ] {
        let text = format!(
            "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n\
             unit = {{ name = \"USD\", decimals = 2 }}\n{quantity}\ncost = {cost}\n"
        );
        parse(&text, Context::default()).unwrap();
        let json = in_json(&toml::from_str(&text).unwrap());
        let error = validator.validate(&json).err();
        assert!(error.is_none(), "{text}{error:?}");
    }
}

/// Returns a value as tools that read TOML hand it on: dates as text.
fn in_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::Datetime(moment) => moment.to_string().into(),
        toml::Value::Array(values) => values.iter().map(in_json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(name, value)| (name.clone(), in_json(value)))
            .collect(),
        other => serde_json::to_value(other).expect("a value that JSON has"),
    }
}

#[test]
fn the_schema_is_a_valid_json_schema() {
    assert!(jsonschema::meta::is_valid(&schema()));
}
