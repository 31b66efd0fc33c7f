//! Schema: the table of fields as JSON Schema (draft 2020-12), for editors.
//!
//! The schema says what `check.rs` says, from the same table. It cannot say all that the
//! parser knows: whether a time zone exists, or two names are equal.

use serde_json::{Map, Value, json};

use super::fields::{MAX_NAME, MAX_VALUES, POLICY};
use super::shape::{Inert, Need, Shape, Table};

/// The JSON Schema of the policy file, generated.
///
/// ```
/// let schema = ratekeeper_policy::config::schema();
/// assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
/// assert_eq!(schema["properties"]["headers"]["enum"][0], "ietf");
/// ```
pub fn schema() -> Value {
    let mut root = table(&POLICY);
    root.insert(
        "$schema".into(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    root.insert("title".into(), "ratekeeper policy".into());
    Value::Object(root)
}

fn table(table: &Table) -> Map<String, Value> {
    let property = |field: &super::shape::Field| {
        let mut schema = shape(&field.shape);
        schema.insert("description".into(), field.about.into());
        (field.name.to_owned(), Value::Object(schema))
    };
    let properties: Map<_, _> = table.fields.iter().map(property).collect();
    let required: Vec<_> = table
        .fields
        .iter()
        .filter(|field| field.need == Need::Required)
        .map(|field| field.name)
        .collect();
    let mut schema = object([
        ("type", json!("object")),
        ("properties", Value::Object(properties)),
        ("additionalProperties", json!(false)),
    ]);
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    if !table.one_of.is_empty() {
        let each: Vec<_> = table
            .one_of
            .iter()
            .map(|name| json!({ "required": [name] }))
            .collect();
        schema.insert("oneOf".into(), json!(each));
    }
    schema
}

fn shape(of: &Shape) -> Map<String, Value> {
    match of {
        Shape::Text { pattern: None } => object([("type", json!("string"))]),
        Shape::Text {
            pattern: Some(pattern),
        } => object([("type", json!("string")), ("pattern", json!(pattern))]),
        Shape::Whole { least, most } => object([
            ("type", json!("integer")),
            ("minimum", json!(least)),
            ("maximum", json!(most)),
        ]),
        Shape::Flag => object([("type", json!("boolean"))]),
        Shape::Word(words) => object([("enum", json!(words.known))]),
        Shape::List { most } => list(*most),
        Shape::Texts { most } => texts(*most),
        Shape::Named { most } => object([
            ("type", json!("object")),
            ("additionalProperties", Value::Object(texts(MAX_VALUES))),
            ("minProperties", json!(1)),
            ("maxProperties", json!(most)),
        ]),
        Shape::Table(of) => table(of),
        Shape::Tables { of, most } => object([
            ("type", json!("array")),
            ("items", Value::Object(table(of))),
            ("maxItems", json!(most)),
        ]),
        Shape::NamedTables { of, most } => object([
            ("type", json!("object")),
            ("additionalProperties", Value::Object(table(of))),
            (
                "propertyNames",
                json!({ "pattern": format!("^[a-z0-9-]{{1,{MAX_NAME}}}$") }),
            ),
            ("maxProperties", json!(most)),
        ]),
        Shape::Either(shapes) => {
            let built = shapes
                .iter()
                .filter(|of| !matches!(of, Shape::PlannedTable { .. }));
            let each: Vec<_> = built.map(|of| Value::Object(shape(of))).collect();
            object([("anyOf", json!(each))])
        }
        Shape::PlannedTable { .. } => object([("not", json!({}))]),
        Shape::Only {
            value: Inert::Off, ..
        } => object([("const", json!("off"))]),
        Shape::Only {
            value: Inert::False,
            ..
        } => object([("const", json!(false))]),
    }
}

fn list(most: usize) -> Map<String, Value> {
    object([
        ("type", json!("array")),
        ("items", json!({ "type": "string" })),
        ("minItems", json!(1)),
        ("maxItems", json!(most)),
    ])
}

fn texts(most: usize) -> Map<String, Value> {
    object([("anyOf", json!([{ "type": "string" }, list(most)]))])
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
