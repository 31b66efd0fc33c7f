//! Values of forms and JSON, and bodies by which an attacker would evade a limit.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// Returns the value of a field of a body with these headers, in words.
fn read(field: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
    let fields = [BodyField::parse(field).unwrap()];
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    match BodyFields::read(&fields, &headers, body).value(&fields[0]) {
        BodyValue::Absent | BodyValue::Other => "absent".into(),
        BodyValue::Ambiguous => "ambiguous".into(),
        BodyValue::Text(text) => format!("={text}"),
    }
}

fn check(content_type: &str, rows: &[(&str, &str, &str)]) {
    for (field, body, expected) in rows {
        let value = read(field, &[("content-type", content_type)], body.as_bytes());
        assert_eq!(value, *expected, "{field} in {body}");
    }
}

#[test]
fn fields_of_forms_are_decoded() {
    check(
        FORM,
        &[
            ("form:user", "user=ann&password=x", "=ann"),
            ("form:user", "x=1&us%65r=a+b%21", "=a b!"),
            ("form:user", "user=%C3%A9", "=\u{e9}"),
            ("form:a:b", "a%3Ab=1", "=1"),
            ("form:user", "\u{feff}user=ann", "=ann"),
            ("form:user", "user=", "absent"),
            ("form:user", "user", "absent"),
            ("form:user", "users=ann", "absent"),
            ("form:user", "", "absent"),
            ("json:/user", "user=ann", "absent"),
            // Not UTF-8: the application may drop the byte, and `ann` would have many keys.
            ("form:user", "user=ann%FF", "absent"),
            // Some applications remove blanks around a value.
            ("form:user", "user=ann%00", "=ann"),
            ("form:user", "user=+%E3%80%80a+b%E2%80%8B", "=a b"),
            ("form:user", "user=+", "absent"),
            // PHP cuts a name there.
            ("form:user", "user=ann&user%00=bob", "absent"),
            ("form:user", "user=ann&%00=bob", "absent"),
        ],
    );
}

#[test]
fn values_of_pointers_are_found() {
    check(
        JSON,
        &[
            ("json:/user", r#"{"user": "ann"}"#, "=ann"),
            ("json:/user", r#" {"us\u0065r": "a\nb"} "#, "=a\nb"),
            ("json:/user/id", r#"{"a": [{}], "user": {"id": 7}}"#, "=7"),
            ("json:/a/1/b", r#"{"a": [{"b": 1}, {"b": 2}]}"#, "=2"),
            ("json:/0", "[5, 6]", "=5"),
            ("json:/01", "[5, 6]", "absent"),
            ("json:/-", "[5, 6]", "absent"),
            ("json:/a~1b~0c", r#"{"a/b~c": true}"#, "=true"),
            ("json:/~01", r#"{"~1": 1}"#, "=1"),
            ("json:/", r#"{"": "x"}"#, "=x"),
            ("json:/user", r#"{"user": null}"#, "absent"),
            ("json:/user", r#"{"user": ""}"#, "absent"),
            ("json:/user", r#"{"user": " ann\n"}"#, "=ann"),
            ("json:/user", r#"{"user": ["ann"]}"#, "absent"),
            ("json:/user", r#"{"user": {"id": 1}}"#, "absent"),
            ("json:/user/id", r#"{"user": "id"}"#, "absent"),
            ("form:user", r#"{"user": "ann"}"#, "absent"),
            ("json:/user", "\u{feff}{\"user\": \"ann\"}", "=ann"),
            // Others read these.
            ("json:/user", r#"{"user": "ann", "\ud800": 1}"#, "ambiguous"),
            ("json:/user", r#"{"user": "\ud800"}"#, "ambiguous"),
            ("form:user", r#"{"user": "ann", "\ud800": 1}"#, "absent"),
            ("json:/user", r#"{"user": "ann", "\ud800": 1"#, "absent"),
        ],
    );
}

#[test]
fn a_number_has_one_spelling() {
    for (number, expected) in [
        ("7", "=7"),
        ("7.0", "=7"),
        ("0.7e1", "=7"),
        ("-7", "=-7"),
        ("-0", "=0"),
        ("-0.0", "=0"),
        ("19.99", "=19.99"),
        ("1541815603606036480", "=1541815603606036500"),
        ("1541815603606036489", "=1541815603606036500"),
        ("18446744073709551615", "=18446744073709552000"),
        ("18446744073709551616", "=18446744073709552000"),
        ("1e999", "ambiguous"),
        ("NaN", "absent"),
        ("01", "absent"),
    ] {
        let body = format!("{{\"n\": {number}}}");
        let value = read("json:/n", &[("content-type", JSON)], body.as_bytes());
        assert_eq!(value, expected, "{number}");
    }
}

#[test]
fn a_field_that_is_named_twice_is_ambiguous() {
    check(
        FORM,
        &[
            ("form:user", "user=ann&user=bob", "ambiguous"),
            ("form:user", "user=ann&user=ann", "ambiguous"),
            ("form:user", "user&user=bob", "ambiguous"),
            ("form:user", "user=ann&USER=bob", "ambiguous"),
            ("form:user", "user=ann&u%73er=bob", "ambiguous"),
            ("form:user", "%FF=1&user=ann", "=ann"),
            ("form:user_name", "user_name=ann&user.name=bob", "ambiguous"),
            (
                "form:user_name",
                "user_name=ann&+user%5Bname=bob",
                "ambiguous",
            ),
            ("form:user.name", "user.name=ann", "=ann"),
            // PHP ignores all that follows an index.
            ("form:user[id]", "user[id]=r&user[id]x=victim", "ambiguous"),
            ("form:user[id]", "user[id]=r&user[id]x[y]=v", "ambiguous"),
            ("form:user[id]", "user[id]=r&user[id][x]=v", "=r"),
            ("form:user[id]", "user[id]=r&user[id=v&user]=v", "=r"),
        ],
    );
    check(
        JSON,
        &[
            ("json:/user", r#"{"user": 1, "user": 2}"#, "ambiguous"),
            ("json:/user", r#"{"user": 1, "us\u0065r": 2}"#, "ambiguous"),
            ("json:/user", r#"{"user": null, "user": 2}"#, "ambiguous"),
            ("json:/user", r#"{"user": 1, "User": 2}"#, "ambiguous"),
            // Go's decoder folds the long s and the Kelvin sign.
            (
                "json:/user",
                "{\"user\": 1, \"u\u{17f}er\": 2}",
                "ambiguous",
            ),
            ("json:/key", "{\"\u{212a}ey\": 1}", "=1"),
            (
                "json:/a/b",
                r#"{"a": {"b": 1}, "a": {"c": 2}}"#,
                "ambiguous",
            ),
            ("json:/a/b", r#"{"a": 1, "a": {"b": 2}}"#, "ambiguous"),
            (
                "json:/a/b",
                r#"{"x": 1, "x": 2, "a": {"b": 1, "c": 1, "c": 2}}"#,
                "=1",
            ),
            // The rest may be read by a lenient application.
            ("json:/user", r#"{"user": 1, "user": 2,}"#, "ambiguous"),
        ],
    );
}

#[test]
fn lists_in_lists_of_a_form_are_read_however_deep() {
    let deep = format!("user{}=b", "[]".repeat(100_000));
    check(FORM, &[("form:user", &deep, "=b")]);
}

#[test]
fn a_body_that_cannot_be_read_has_no_values() {
    let deep = format!(
        "{{\"a\": 1, \"b\": {}1{}}}",
        "[".repeat(30_000),
        "]".repeat(30_000)
    );
    let long = format!("{{\"a\": 1, \"b\": \"{}\"}}", "x".repeat(60_000));
    check(
        JSON,
        &[
            ("json:/a", &deep, "=1"),
            ("json:/a", &long, "=1"),
            ("json:/a", r#"{"a": 1"#, "absent"),
            ("json:/a", r#"{"a": 1} {"a": 2}"#, "absent"),
            ("json:/a", r#"{"a": 1,}"#, "absent"),
            ("json:/a", r#"{"a": "\ud800"}"#, "ambiguous"),
            ("json:/a", "\u{feff}{\"a\": 1}", "=1"),
            ("json:/a", "", "absent"),
            ("json:/a", "1", "absent"),
        ],
    );
    let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let field = format!("json:{}", "/0".repeat(MAX_STEPS));
    check(JSON, &[(&field, &nested, "absent")]);
    let broken = b"{\"a\": \"\xff\"}";
    let value = read("json:/a", &[("content-type", JSON)], broken);
    assert_eq!(value, "ambiguous", "Express reads a value");
}

#[test]
fn the_headers_say_how_a_body_is_read() {
    let json = |headers: &[(&str, &str)]| read("json:/a", headers, b"{\"a\": 1}");
    for (headers, expected) in [
        (&[("content-type", "application/json")][..], "=1"),
        (
            &[("Content-Type", "Application/JSON;  charset=UTF-8")],
            "=1",
        ),
        (
            &[("content-type", "application/json; charset=\"utf-8\"")],
            "=1",
        ),
        (&[("content-type", "application/vnd.api+json; v=2")], "=1"),
        (
            &[("content-type", "application/json; charset=utf-16")],
            "absent",
        ),
        (
            &[("content-type", "application/json; charset=ibm037")],
            "absent",
        ),
        (
            &[("content-type", "application/json; charset = utf-8 ; v=2")],
            "=1",
        ),
        (
            &[("content-type", "application/json; charset = utf-7")],
            "absent",
        ),
        (
            &[("content-type", "application/json; charset\t=utf-7")],
            "absent",
        ),
        (
            &[("content-type", "application/json; charset= utf-7")],
            "absent",
        ),
        (&[("content-type", "application/json; charset")], "absent"),
        (
            &[("content-type", "application/json; charset*=utf-8''utf-7")],
            "absent",
        ),
        (
            &[("content-type", "application/json; charset*0=utf-7")],
            "absent",
        ),
        (
            &[(
                "content-type",
                "application/json; charset=utf-8; charset=utf-7",
            )],
            "absent",
        ),
        (&[("content-type", "text/json")], "absent"),
        (
            &[("content-type", "application/json, text/plain")],
            "absent",
        ),
        (
            &[("content-type", "multipart/form-data; boundary=x")],
            "absent",
        ),
        (&[], "absent"),
        (
            &[("content-type", JSON), ("content-type", "text/plain")],
            "absent",
        ),
        (
            &[("content-type", JSON), ("content-encoding", "gzip")],
            "absent",
        ),
        (
            &[("content-type", JSON), ("content-encoding", "Identity")],
            "=1",
        ),
        (
            &[
                ("content-type", JSON),
                ("content-encoding", "identity"),
                ("content-encoding", "br"),
            ],
            "absent",
        ),
    ] {
        assert_eq!(json(headers), expected, "{headers:?}");
    }
}

/// Documents with few names, so that pointers meet values.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c\"\\\\\u{e9}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("[ab/~]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    /// The pointers of `serde_json` are the definition, for documents in which each name is one.
    #[test]
    fn pointers_mean_what_they_mean_to_a_tree(document in document()) {
        for pointer in ["/a", "/b", "/a/b", "/0", "/1/a", "/a/0", "/~0/~1", "/a/a/a"] {
            let expected = match document.pointer(pointer) {
                Some(Value::String(text)) if !text.is_empty() => format!("={text}"),
                Some(Value::Bool(_) | Value::Number(_)) => {
                    format!("={}", document.pointer(pointer).unwrap())
                }
                _ => "absent".into(),
            };
            let field = format!("json:{pointer}");
            let body = document.to_string();
            let value = read(&field, &[("content-type", JSON)], body.as_bytes());
            prop_assert_eq!(value, expected, "{} in {}", field, body);
        }
    }

    #[test]
    fn no_body_does_harm(body: Vec<u8>) {
        for (field, content_type) in [("form:a", FORM), ("json:/a", JSON)] {
            read(field, &[("content-type", content_type)], &body);
        }
    }
}
