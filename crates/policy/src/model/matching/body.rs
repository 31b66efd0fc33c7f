//! Body: values of bodies. Limits count by values of a request's body (a form or JSON), and costs
//! are settled by values of a response's.
//!
//! ```text
//!   field            content-type                        body                    value
//!   form:username    application/x-www-form-urlencoded   username=ann&x=1        ann
//!   json:/user/id    application/json, .. +json          {"user": {"id": 7}}     7
//!                                                        {"user": {"id": [7]}}   absent
//!                                                        {"user": {}, "User": 1} ambiguous
//! ```
//!
//! * A body that cannot be read (another type, a character set besides UTF-8, an encoding, a wrong
//!   syntax) has no values.
//! * A field that a body names twice is ambiguous, because the application may read either value:
//!   else an attacker would count one and send the other. Names that differ in case alone are the
//!   same, and in forms names that PHP takes for the same. So is a field of a form that the query
//!   names, too, because servlets read the query first.
//! * JSON is read in one pass for all fields; parts that no field names are skipped. Recursion ends
//!   at the length of a pointer, whatever the body nests.
//!
//! * Source: P. Bryan et al., JavaScript Object Notation (JSON) Pointer, RFC 6901, 2013. WHATWG, URL
//!   Standard, application/x-www-form-urlencoded parsing.

mod json;
mod response;

use std::fmt;

pub(crate) use json::leaves as json_leaves;
pub use response::ResponseReader;

use crate::ValueError;
use crate::http::octets::{is_blank, only, split_once, trim, values_of};

/// Maximum number of steps of a JSON pointer.
const MAX_STEPS: usize = 16;

/// A value of a body: `form:username`, `json:/user/id`.
///
/// ```
/// use ratekeeper_policy::BodyField;
/// let field = BodyField::parse("json:/user/id").unwrap();
/// assert_eq!(field.to_string(), "json:/user/id");
/// assert!(BodyField::parse("json:user").unwrap_err().help.contains("json:/user"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BodyField {
    /// As in the policy; also the name of the attribute that may stand for it.
    pub(crate) text: Box<str>,
    place: Place,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// Name of a form field.
    Form(Box<str>),
    /// Steps of a pointer, unescaped; at least one.
    Json(Vec<Box<str>>),
}

/// Value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum BodyValue<T> {
    /// The body has no such value, or cannot be read.
    #[default]
    Absent,
    /// No text and no number.
    Other,
    Text(T),
    /// The body names the field twice.
    Ambiguous,
}

/// Values of the fields of one body, for [`Facts::body`](crate::Facts::body).
///
/// ```
/// use ratekeeper_policy::{BodyField, BodyFields, Facts, KeyBytes, KeyPart};
/// let fields = [BodyField::parse("form:username").unwrap()];
/// let headers = [("content-type", &b"application/x-www-form-urlencoded"[..])];
/// let body = BodyFields::read(&fields, &headers, b"username=ann");
/// let facts = Facts { body: Some(&body), ..Facts::default() };
/// # assert!(facts.body.is_some());
/// ```
#[derive(Clone, Debug)]
pub struct BodyFields<'p> {
    fields: &'p [BodyField],
    /// One for each field.
    values: Vec<BodyValue<String>>,
}

/// Form of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Syntax {
    Form,
    Json,
    /// Server-sent events, each of which may be JSON: a response only.
    Events,
}

impl BodyField {
    /// Reads `form:NAME` or `json:/POINTER`.
    ///
    /// # Errors
    /// If the name is empty, or the pointer is not one of RFC 6901.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let place = match text.split_once(':') {
            Some(("form", name)) if !name.is_empty() => Place::Form(name.into()),
            Some(("json", pointer)) => Place::Json(steps(text, pointer)?),
            _ => {
                return Err(ValueError::new(
                    format!("`{text}` is not a field of a body"),
                    "write \"form:NAME\" or \"json:/NAME\"",
                ));
            }
        };
        let text = text.into();
        Ok(Self { text, place })
    }

    /// Returns the name of a field of a form.
    pub(crate) fn form_name(&self) -> Option<&str> {
        match &self.place {
            Place::Form(name) => Some(name),
            Place::Json(_) => None,
        }
    }
}

impl fmt::Display for BodyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the steps of a pointer.
fn steps(text: &str, pointer: &str) -> Result<Vec<Box<str>>, ValueError> {
    let wrong = |reason: &str, help: String| ValueError::new(format!("`{text}` {reason}"), help);
    let Some(rest) = pointer.strip_prefix('/') else {
        let name = if pointer.is_empty() { "NAME" } else { pointer };
        let help = format!(
            "write a JSON pointer, which begins with `/`: \"json:/{}\"",
            name.replace('.', "/")
        );
        return Err(wrong("is not a JSON pointer", help));
    };
    if rest.split('/').nth(MAX_STEPS).is_some() {
        let help = format!("at most {MAX_STEPS} steps are followed");
        return Err(wrong("is too long for a JSON pointer", help));
    }
    let step = |step: &str| {
        let tilde = step.split('~').skip(1);
        let escapes_end = tilde.clone().all(|rest| rest.starts_with(['0', '1']));
        escapes_end.then(|| step.replace("~1", "/").replace("~0", "~").into())
    };
    let steps: Option<Vec<_>> = rest.split('/').map(step).collect();
    steps.ok_or_else(|| {
        let help = "write `~0` for `~`, and `~1` for `/` in a name".to_owned();
        wrong("has a `~` that is not an escape of a JSON pointer", help)
    })
}

impl<'p> BodyFields<'p> {
    /// Reads the values of `fields` from a whole body, with the headers of its request. A body that
    /// cannot be read has none.
    pub fn read(fields: &'p [BodyField], headers: &[(&str, &[u8])], body: &[u8]) -> Self {
        let mut values = vec![BodyValue::Absent; fields.len()];
        // Express and Flask leave out a byte order mark.
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        match syntax(headers) {
            Some(Syntax::Form) => read_form(fields, body, &mut values),
            Some(Syntax::Json) => json::read(fields, body, &mut values),
            Some(Syntax::Events) | None => {}
        }
        Self { fields, values }
    }

    pub(crate) fn value(&self, field: &BodyField) -> BodyValue<&str> {
        let mut pairs = self.fields.iter().zip(&self.values);
        match pairs.find(|(known, _)| *known == field) {
            Some((_, BodyValue::Text(text))) if !text.trim_matches(is_blank).is_empty() => {
                BodyValue::Text(text.trim_matches(is_blank))
            }
            Some((_, BodyValue::Ambiguous)) => BodyValue::Ambiguous,
            Some((_, BodyValue::Other)) => BodyValue::Other,
            _ => BodyValue::Absent,
        }
    }
}

impl BodyValue<String> {
    /// Notes a value; a second one makes the field ambiguous.
    fn add(&mut self, value: Self) {
        *self = match self {
            Self::Absent => value,
            _ => Self::Ambiguous,
        };
    }
}

/// Returns the form of a body that can be read: one content type, no encoding, UTF-8.
fn syntax(headers: &[(&str, &[u8])]) -> Option<Syntax> {
    let mut encodings = values_of(headers, "content-encoding");
    if encodings.any(|value| !value.eq_ignore_ascii_case(b"identity")) {
        return None;
    }
    let value = only(values_of(headers, "content-type"))?.to_ascii_lowercase();
    let mut parts = value.split(|byte| *byte == b';').map(trim);
    let essence = parts.next()?;
    if !parts.all(leaves_utf8) {
        return None;
    }
    match essence {
        b"application/x-www-form-urlencoded" => Some(Syntax::Form),
        b"application/json" => Some(Syntax::Json),
        b"text/event-stream" => Some(Syntax::Events),
        _ if essence.starts_with(b"application/") && essence.ends_with(b"+json") => {
            Some(Syntax::Json)
        }
        _ => None,
    }
}

/// Returns true if a parameter of a content type, in lower case, names no character set besides
/// UTF-8. A name such as `charset*` might, because lenient parsers take it for `charset`.
fn leaves_utf8(parameter: &[u8]) -> bool {
    const CHARSET: &[u8] = b"charset";
    let (name, value) = split_once(parameter, b'=').unwrap_or((parameter, b""));
    if trim(name) == CHARSET {
        return matches!(trim(value), b"utf-8" | b"utf8" | b"\"utf-8\"" | b"us-ascii");
    }
    let mut parts = name.windows(CHARSET.len());
    !parts.any(|part| part == CHARSET)
}

/// Reads the fields of a form. One with a NUL in a name has no values, because PHP cuts the name
/// there.
fn read_form(fields: &[BodyField], body: &[u8], values: &mut [BodyValue<String>]) {
    for (name, value) in form_urlencoded::parse(body) {
        if name.contains('\0') {
            values.fill(BodyValue::Absent);
            return;
        }
        for (field, found) in fields.iter().zip(&mut *values) {
            if matches!(&field.place, Place::Form(wanted) if is_same_form_name(wanted, &name)) {
                found.add(if value.contains(char::REPLACEMENT_CHARACTER) {
                    BodyValue::Other // not UTF-8: applications read it in different ways
                } else {
                    BodyValue::Text(value.clone().into_owned())
                });
            }
        }
    }
}

/// Returns true if names differ in nothing but case, as Unicode folds it: some decoders match the
/// names of fields so.
fn is_same_name(a: &str, b: &str) -> bool {
    folded(a).eq(folded(b))
}

/// Like [`is_same_name`], for the names of forms, queries and cookies: PHP removes spaces before a
/// name, takes some characters in it for `_`, and ignores those behind its last index and behind a
/// NUL; Express and Rack ignore brackets around it. A list (`user[]`, `user[0]`) has the name of its
/// values.
pub(crate) fn is_same_form_name(a: &str, b: &str) -> bool {
    let mangled = |name: char| match name {
        ' ' | '.' | '[' => '_',
        other => other,
    };
    let [a, b] = [a, b].map(|name| {
        let name = name.split('\0').next().unwrap_or_default();
        let name = name.trim_start_matches([' ', '?', '[', ']']);
        let (word, rest) = name.split_at(name.find(['[', ']']).unwrap_or(name.len()));
        let name = format!("{word}{}", rest.trim_start_matches(']'));
        let name = without_index(up_to_last_index(&name));
        folded(name).map(mangled).collect::<String>()
    });
    a == b
}

/// Returns a name up to the first `]` of an index behind which no other index begins: `a[b][c]` of
/// `a[b][c]d[e]`.
fn up_to_last_index(name: &str) -> &str {
    let open = name.find('[').unwrap_or(name.len());
    let mut closed = name.match_indices(']').map(|(at, _)| at + 1);
    let end = closed.find(|end| *end > open && !name[*end..].starts_with('['));
    end.map_or(name, |end| &name[..end])
}

/// Returns the name of a list without the index of a value, also of lists in lists.
fn without_index(mut name: &str) -> &str {
    let is_number = |index: &str| index.trim().bytes().all(|byte| byte.is_ascii_digit());
    // A loop: a stranger chooses how deep the lists are.
    while let Some((list, _)) = name
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once('['))
        .filter(|(_, index)| is_number(index))
    {
        name = list;
    }
    name
}

/// Goes by way of the upper case, so that the long s and the Kelvin sign become `s` and `k`.
fn folded(text: &str) -> impl Iterator<Item = char> + '_ {
    let upper = text.chars().flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests;
