//! Schema: the table of fields as JSON Schema (draft 2020-12), for editors.
//!
//! The schema describes the same shapes as `check.rs`, from the same table. It cannot express all
//! checks of the parser, such as that a time zone exists, or that two names differ.

use serde_json::{Map, Value, json};

use super::document::shape::{FieldSpec, Need, Shape, TableSpec};
use super::fields::{MAX_NAME, POLICY};

/// A date, or a date and a time.
const MOMENT: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].+)?$";

/// A quantity in quotes, of a limit with a `unit`.
const DECIMAL: &str = "^[0-9]+([.][0-9]+)?$";

/// Returns the JSON Schema of the policy file, generated.
///
/// ```
/// let schema = ratekeeper_policy::config::schema();
/// assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
/// assert_eq!(schema["properties"]["headers"]["enum"][0], "ietf");
/// ```
pub fn schema() -> Value {
    let mut root = table(&POLICY);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("ratekeeper policy");
    root
}

fn table(table: &TableSpec) -> Value {
    let property = |field: &FieldSpec| {
        let mut schema = shape(&field.shape);
        schema["description"] = json!(field.about);
        (field.name.to_owned(), schema)
    };
    let properties: Map<_, _> = table.fields.iter().map(property).collect();
    let mut schema = json!({
        "type": "object", "properties": properties, "additionalProperties": false,
    });
    let required = table
        .fields
        .iter()
        .filter(|field| field.need == Need::Required);
    let required: Vec<_> = required.map(|field| field.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let one_of = table
        .one_of
        .iter()
        .map(|name| json!({ "required": [name] }));
    if !table.one_of.is_empty() {
        schema["oneOf"] = one_of.collect();
    }
    schema
}

fn shape(of: &Shape) -> Value {
    match of {
        Shape::Scalar(scalar) => match scalar.pattern() {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string" }),
        },
        Shape::Text(None) => json!({ "type": "string" }),
        Shape::Text(Some(pattern)) => json!({ "type": "string", "pattern": pattern }),
        Shape::Whole(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Shape::Amount(least, most) => json!({ "anyOf": [
            { "type": "integer", "minimum": least, "maximum": most },
            { "type": "string", "pattern": DECIMAL },
        ] }),
        Shape::Factor(most) => json!({ "type": "number", "minimum": 1, "maximum": most }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Moment => json!({ "type": "string", "pattern": MOMENT }),
        Shape::Word(words) => json!({ "enum": words }),
        Shape::List(most) => list(&json!({ "type": "string" }), *most),
        Shape::Texts(most) => one_or_list(&json!({ "type": "string" }), *most),
        Shape::Numbers(most) => one_or_list(&json!({ "type": ["string", "integer"] }), *most),
        Shape::Values(of, most) => one_or_list(&shape(of), *most),
        Shape::Map(of, most) => names(&shape(of), *most),
        Shape::Table(of) => table(of),
        Shape::Tables {
            of, least, most, ..
        } => json!({ "type": "array", "items": table(of), "minItems": least, "maxItems": most }),
        Shape::NamedTables(of, most) => json!({
            "type": "object",
            "additionalProperties": table(of),
            "propertyNames": { "pattern": format!("^[a-z0-9-]{{1,{MAX_NAME}}}$") },
            "maxProperties": most,
        }),
        Shape::Either(shapes) => {
            json!({ "anyOf": shapes.iter().map(shape).collect::<Vec<_>>() })
        }
    }
}

fn list(one: &Value, most: usize) -> Value {
    json!({ "type": "array", "items": one, "minItems": 1, "maxItems": most })
}

fn one_or_list(one: &Value, most: usize) -> Value {
    json!({ "anyOf": [one, list(one, most)] })
}

fn names(of: &Value, most: usize) -> Value {
    json!({
        "type": "object", "additionalProperties": of, "minProperties": 1, "maxProperties": most,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fmt::Write as _;

    use super::super::reference::without_default;
    use super::*;
    use crate::config::document::shape::FieldSpec;
    use ratekeeper_core::Time;

    use crate::config::{Context, PolicyFiles, parse_file};
    use crate::model::client::geo::tests::mmdb_writer;

    /// Other values for fields with an example that equals the default, so that they take effect.
    const OTHER_VALUES: [(&str, &str); 17] = [
        ("reveal_keys", "\"raw\""),
        ("log_denials", "false"),
        ("metrics", "{ max_limits = 10 }"),
        ("max_limits", "10"),
        ("expire", "\"3m\""),
        ("unknown", "\"NO\""),
        ("on_store_error", "\"deny\""),
        ("lease", "\"30s\""),
        ("cold_factor", "4"),
        ("headers", "\"both\""),
        ("header", "\"x-real-ip\""),
        ("ipv6_prefix", "48"),
        ("status", "430"),
        ("missing_key", "\"skip\""),
        ("body", "\"none\""),
        ("adaptive_concurrency", "{ min = 2, max = 3 }"),
        ("type", "\"text/html\""),
    ];

    /// Fields with an effect only beside others: the zone of calendar words (RK0211), the
    /// settings of algorithms (below), and `start` and `order`, which have one value so far; and
    /// `trusted_headers`, which silences a warning.
    const ELSEWHERE: [&str; 8] = [
        "timezone",
        "count",
        "edge",
        "start",
        "order",
        "min_gap",
        "save_up",
        "trusted_headers",
    ];

    /// Fields that need another one beside them: the field, the other field, and its value.
    const BESIDE: [(&str, &str, &str); 16] = [
        ("preflight_limit", "cors", "[\"https://app.example.com\"]"),
        ("state_every", "state", "\"state\""),
        ("distinct", "limit", "\"5/day\""),
        ("unit", "cost", "\"attr:amount\""),
        ("max", "grow", "2.0"),
        ("grow", "max", "\"24h\""),
        ("anchor", "limit", "\"100/month\""),
        ("report_within", "count", "{ status = [401] }"),
        ("hours", "timezone", "\"UTC\""),
        ("days", "timezone", "\"UTC\""),
        ("username", "password", "\"env:P\""),
        ("client_certificate", "client_key", "\"client.key\""),
        ("client_key", "client_certificate", "\"client.pem\""),
        ("queue", "bucket", "{ size = 20, refill = \"10/1s\" }"),
        ("min_gap", "name", "\"sliding-window-log\""),
        ("save_up", "name", "\"smooth-bursty\""),
    ];

    /// Fields of which the policy keeps whether they are written: their reader has the default.
    const KEPT: [&str; 7] = [
        "max_body",
        "max_head",
        "max_head_fields",
        "max_inspected_body",
        "percent",
        "preflight_limit",
        "state_every",
    ];

    /// Limits of every tested policy: the first names no response, the second names one.
    const READY: &str = "[{ name = \"api\", key = [\"header:a\"], limit = \"9/1m\" }, \
         { name = \"named\", key = [\"ip\"], limit = \"9/1m\", response = \"slow-down\" }]";

    /// Listener of every tested policy without one: `on_limit` names its route.
    const PROXY: &str = "{ http = \"127.0.0.1:8082\", proxy = { upstream = \"http://127.0.0.1:3000\", route = \
         [{ name = \"spare\", upstream = \"http://127.0.0.1:4000\" }] } }";

    /// Returns the debug form of a policy, or the codes of its errors. The form leaves out what
    /// differs between two equal policies: lines, text, and seeds of hash tables.
    fn read(text: &str) -> Result<String, Vec<&'static str>> {
        let files = PolicyFiles::read(text, |name, _| {
            Ok(match name {
                "GeoLite2-Country.mmdb" => mmdb_writer::countries(0, &[("192.0.2.0/24", "NO")]),
                "GeoLite2-ASN.mmdb" => mmdb_writer::networks(0, &[("192.0.2.0/24", 3_320)]),
                "jwks.json" => include_bytes!("../../tests/keys/jwks.json").to_vec(),
                _ => "limit,key,set\n".into(),
            })
        });
        let loaded = parse_file(text, &files, Context::default(), Time::ZERO);
        let mut policy = loaded
            .map_err(|errors| errors.iter().map(|error| error.code).collect::<Vec<_>>())?
            .policy;
        policy.sha = "".into();
        let without = |text: &str, name: &str| -> String {
            let parts = text.split(name);
            parts
                .map(|part| part.trim_start_matches(char::is_numeric))
                .collect()
        };
        let whole = without(&format!("{policy:?}"), " line: ");
        Ok(without(&whole, "per_hasher_seed: "))
    }

    fn as_json(text: &str) -> Value {
        in_json(&toml::from_str(text).unwrap())
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
            other => serde_json::to_value(other).unwrap(),
        }
    }

    /// A table of the language within a whole policy.
    struct Place<'a> {
        table: &'static TableSpec,
        /// Puts a table, written inline, where it belongs.
        wrap: &'a dyn Fn(&str) -> String,
    }

    /// Returns the required fields of a table, beside `field`: name and value.
    fn least(table: &'static TableSpec, field: Option<&str>) -> Vec<(&'static str, &'static str)> {
        let has = |name: &str| table.fields.iter().any(|of| of.name == name);
        let beside = BESIDE
            .iter()
            .find(|(of, name, _)| Some(*of) == field && has(name));
        let beside = beside.map(|(_, name, value)| (*name, *value));
        let usual = table
            .one_of
            .first()
            .filter(|_| field.is_none_or(|f| !table.one_of.contains(&f)))
            .filter(|_| beside.is_none_or(|(name, _)| !table.one_of.contains(&name)));
        let needed = |of: &&FieldSpec| of.need == Need::Required || Some(&of.name) == usual;
        let replaced = |of: &&FieldSpec| beside.is_some_and(|(name, _)| of.name == name);
        let others = table
            .fields
            .iter()
            .filter(|of| needed(of) && !replaced(of))
            .filter(|of| Some(of.name) != field);
        let others = others.map(|of| (of.name, of.example));
        others.chain(beside).collect()
    }

    fn inline(fields: &[(&str, &str)]) -> String {
        let each: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        format!("{{ {} }}", each.join(", "))
    }

    /// Visits every table of the language, in a policy that is right.
    fn walk(place: &Place<'_>, visit: &mut dyn FnMut(&Place<'_>)) {
        visit(place);
        for field in place.table.fields {
            let put = |value: &str| {
                let mut fields = least(place.table, Some(field.name));
                fields.push((field.name, value));
                (place.wrap)(&inline(&fields))
            };
            let mut below = |table: &'static TableSpec, put: &dyn Fn(&str) -> String| {
                walk(&Place { table, wrap: put }, visit);
            };
            match &field.shape {
                Shape::Table(table) => below(table, &put),
                // Limits stand ready to be named by the one that is visited.
                Shape::Tables { of, .. } if field.name == "limit" => {
                    let ready = READY.trim_start_matches('[');
                    below(of, &|inner| put(&format!("[{inner}, {ready}")));
                }
                Shape::Tables { of, .. } => below(of, &|inner| put(&format!("[{inner}]"))),
                Shape::NamedTables(of, _) => {
                    below(of, &|inner| put(&format!("{{ slow-down = {inner} }}")));
                }
                Shape::Either(shapes) => {
                    for shape in *shapes {
                        if let Shape::Table(table) = shape {
                            below(table, &put);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Visits the whole language.
    fn everywhere(mut visit: impl FnMut(&Place<'_>)) {
        let wrap = |root: &str| {
            // The root is no inline table; a response and limits stand ready to be named.
            let table: toml::Table = toml::from_str(&format!("root = {root}")).unwrap();
            let root = table["root"].as_table().unwrap();
            let mut text = String::new();
            for (name, value) in root {
                writeln!(text, "{name} = {value}").unwrap();
            }
            for (name, value) in [
                ("timezone", "\"UTC\""),
                ("response", "{ slow-down = { status = 431 } }"),
                ("limit", READY),
                ("client_ip", "{ trusted_proxies = [\"192.0.2.1\"] }"),
                (
                    "geo",
                    "{ country_db = \"GeoLite2-Country.mmdb\", asn_db = \"GeoLite2-ASN.mmdb\" }",
                ),
                ("plan", "{ from = \"header:x-tier\", default = \"free\" }"),
                ("listen", PROXY),
                (
                    "jwt",
                    "{ keys = \"file:jwks.json\", algorithms = [\"RS256\"] }",
                ),
            ] {
                if !root.contains_key(name) {
                    writeln!(text, "{name} = {value}").unwrap();
                }
            }
            text
        };
        walk(
            &Place {
                table: &POLICY,
                wrap: &wrap,
            },
            &mut visit,
        );
    }

    /// Sets a key that suits the field: descriptors have no address to count by.
    fn counted_for(field: &FieldSpec, text: &str) -> String {
        let key = match field.name {
            "domain" | "descriptor" => "key = [\"all\"]",
            _ => "key = [\"ip\"]",
        };
        text.replace("key = [\"ip\"]", key)
    }

    /// Returns a policy with one field of a table, or without it.
    fn policy_with(place: &Place<'_>, field: &FieldSpec, value: Option<&str>) -> String {
        let others = least(place.table, Some(field.name));
        let own = value.map(|value| (field.name, value));
        let fields: Vec<_> = others.into_iter().chain(own).collect();
        counted_for(field, &(place.wrap)(&inline(&fields)))
    }

    #[test]
    fn every_field_is_in_the_parser_and_in_the_schema() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let mut tables = 0;
        everywhere(|place| {
            tables += 1;
            for field in place.table.fields {
                let text = policy_with(place, field, Some(field.example));
                assert!(read(&text).is_ok(), "{:?}\n{text}", read(&text));
                assert!(validator.is_valid(&as_json(&text)), "{text}");
                if field.need == Need::Required {
                    let text = policy_with(place, field, None);
                    assert!(read(&text).unwrap_err().contains(&"RK0105"), "{text}");
                    assert!(!validator.is_valid(&as_json(&text)), "{text}");
                }
            }
        });
        assert!(tables >= 12, "{tables}");
    }

    #[test]
    fn every_optional_field_has_an_effect() {
        everywhere(|place| {
            for field in place.table.fields {
                let is_tested = field.need == Need::Optional
                    && !ELSEWHERE.contains(&field.name)
                    && !place.table.one_of.contains(&field.name);
                if !is_tested {
                    continue;
                }
                let without = read(&policy_with(place, field, None));
                let others = OTHER_VALUES.iter().filter(|(name, _)| *name == field.name);
                let mut values = others.map(|(_, value)| *value).chain([field.example]);
                let has_effect = |value| {
                    let with = read(&policy_with(place, field, Some(value)));
                    with.is_ok() && with != without
                };
                assert!(values.any(has_effect), "{} is ignored", field.name);
            }
        });
        let algorithm = |text: &str| {
            let limit =
                format!("name = \"a\", key = [\"ip\"], limit = \"9/1m\", algorithm = {text}");
            read(&format!("version = 1\nlimit = [{{ {limit} }}]")).unwrap()
        };
        let log = "{ name = \"sliding-window-log\", min_gap = \"1s\" }";
        assert_ne!(algorithm("\"sliding-window-log\""), algorithm(log));
        let saves = "{ name = \"smooth-bursty\", save_up = \"30s\" }";
        assert_ne!(algorithm("\"smooth-bursty\""), algorithm(saves));
        let plain = algorithm("{ name = \"sub-buckets\" }");
        assert_ne!(plain, algorithm("{ name = \"sub-buckets\", count = 7 }"));
        assert_ne!(
            plain,
            algorithm("{ name = \"sub-buckets\", edge = \"drop\" }")
        );
    }

    #[test]
    fn every_word_of_a_field_has_an_effect_of_its_own() {
        everywhere(|place| {
            for field in place.table.fields {
                let words = field.shape.find(|shape| match shape {
                    Shape::Word(words) => Some(*words),
                    _ => None,
                });
                let words = words.filter(|_| !ELSEWHERE.contains(&field.name));
                let mut read_as = HashMap::new();
                for word in words.into_iter().flatten() {
                    let text = policy_with(place, field, Some(&format!("\"{word}\"")));
                    if let Some(other) = read_as.insert(read(&text).unwrap(), word) {
                        panic!("\"{word}\" is read as \"{other}\"\n{text}");
                    }
                }
            }
        });
    }

    #[test]
    fn a_default_that_is_a_value_changes_nothing_if_it_is_written() {
        let mut compared = 0;
        everywhere(|place| {
            // `(default: X)` is in words, such as "always".
            let stated = |field: &&FieldSpec| field.about.contains("(default ");
            for field in place.table.fields.iter().filter(stated) {
                let (_, default) = without_default(field.about);
                let default = default.unwrap();
                let is_value = toml::from_str::<toml::Table>(&format!("a = {default}")).is_ok();
                let value = if is_value {
                    default.to_owned()
                } else {
                    format!("\"{default}\"")
                };
                let text = policy_with(place, field, Some(&value));
                let Ok(written) = read(&text) else {
                    continue; // in words, such as "10 min"
                };
                if !KEPT.contains(&field.name) {
                    let absent = read(&policy_with(place, field, None)).unwrap();
                    assert_eq!(written, absent, "{}", field.name);
                    compared += 1;
                }
            }
        });
        assert!(compared >= 21, "{compared}");
    }

    #[test]
    fn unknown_fields_are_refused_by_both() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        everywhere(|Place { table, wrap }| {
            let refused = |name: &str, code| {
                let fields = [&least(table, None)[..], &[(name, "1")]].concat();
                let text = wrap(&inline(&fields));
                assert_eq!(read(&text), Err(vec![code]), "{text}");
                assert!(!validator.is_valid(&as_json(&text)), "{text}");
            };
            refused("zzzzzzzzzz", "RK0103");
        });
    }

    #[test]
    fn the_schema_has_the_words_of_the_parser() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        everywhere(|place| {
            for field in place.table.fields {
                let shapes = match &field.shape {
                    Shape::Either(shapes) => shapes,
                    shape => std::slice::from_ref(shape),
                };
                for shape in shapes {
                    let Shape::Word(words) = shape else { continue };
                    let text = |word: &str| policy_with(place, field, Some(&format!("\"{word}\"")));
                    for word in *words {
                        let text = text(word);
                        assert!(read(&text).is_ok(), "{text}");
                        assert!(validator.is_valid(&as_json(&text)), "{text}");
                    }
                }
            }
        });
    }
}
