//! Response: values of the JSON of a response, found while its parts pass.
//!
//! ```text
//!   application/json     {"usage": {"total_tokens": 123}}               held to its end
//!   text/event-stream    data: {"delta": "Hel"}                         held event by event: the
//!                        data: {"usage": {"total_tokens": 123}}         last that names a value
//!                        data: [DONE]                                   no JSON: left out
//! ```
//!
//! * At most a maximum is held: of a larger body no value is found, and of a stream a larger event
//!   discards the value found before it, because it might have held another one.
//!
//! * Source: WHATWG, HTML Living Standard, server-sent events, section 9.2.6.

use super::{BodyField, BodyValue, Syntax, json, syntax};

/// Reads values of the body of a response. The parts are copied, and the response is not held up.
///
/// ```
/// use ratekeeper_policy::{BodyField, ResponseReader};
/// let fields = vec![BodyField::parse("json:/usage/total_tokens").unwrap()];
/// let headers = [("content-type", &b"application/json"[..])];
/// let mut reader = ResponseReader::new(fields, &headers, 1_000).unwrap();
/// reader.add(b"{\"usage\": {\"total_");
/// reader.add(b"tokens\": 123}}");
/// assert_eq!(reader.finish(), [Some("123".to_owned())]);
/// ```
#[derive(Clone, Debug)]
pub struct ResponseReader {
    fields: Vec<BodyField>,
    /// One for each field.
    values: Vec<BodyValue<String>>,
    form: Form,
    /// The document, or the data of the event so far and the line that has not ended.
    held: Vec<u8>,
    max: usize,
    /// True if the document, or the event, has more than `max` bytes.
    is_too_long: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Document,
    Events(Line),
}

/// The line of a stream that has not ended.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Where it begins in the held bytes.
    start: usize,
    is_empty: bool,
    /// True after a CR: an LF that follows belongs to it.
    after_cr: bool,
}

impl ResponseReader {
    /// Starts to read a response with these header fields, of which at most `max` bytes are held.
    /// `None` if its body cannot be read: another content type, an encoding, or a character set
    /// besides UTF-8.
    pub fn new(fields: Vec<BodyField>, headers: &[(&str, &[u8])], max: usize) -> Option<Self> {
        let form = match syntax(headers)? {
            Syntax::Json => Form::Document,
            Syntax::Events => Form::Events(Line::new(0)),
            Syntax::Form => return None,
        };
        Some(Self {
            values: vec![BodyValue::Absent; fields.len()],
            fields,
            form,
            held: Vec::new(),
            max,
            is_too_long: false,
        })
    }

    /// Adds the next part of the body.
    pub fn add(&mut self, mut part: &[u8]) {
        let Form::Events(mut line) = self.form else {
            return self.hold(part);
        };
        while let Some(first) = part.first() {
            if std::mem::take(&mut line.after_cr) && *first == b'\n' {
                part = &part[1..];
                continue;
            }
            let end = part.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (text, rest) = part.split_at(end.unwrap_or(part.len()));
            line.is_empty &= text.is_empty();
            self.hold(text);
            let Some((end, rest)) = rest.split_first() else {
                break;
            };
            self.end_line(line);
            line = Line {
                after_cr: *end == b'\r',
                ..Line::new(self.held.len())
            };
            part = rest;
        }
        self.form = Form::Events(line);
    }

    /// Returns the number of bytes that are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the value of each field, after the last part of a body that is whole; `None` if it
    /// has none, or names it twice.
    pub fn finish(mut self) -> Vec<Option<String>> {
        match self.form {
            // Nothing is held of one that is too long.
            Form::Document => json::read(&self.fields, &self.held, &mut self.values),
            Form::Events(line) => {
                // Some servers leave the empty line out at the end.
                if !line.is_empty {
                    self.end_line(line);
                }
                self.end_event();
            }
        }
        let text = |found| match found {
            BodyValue::Text(text) => Some(text),
            BodyValue::Absent | BodyValue::Other | BodyValue::Ambiguous => None,
        };
        self.values.into_iter().map(text).collect()
    }

    fn hold(&mut self, part: &[u8]) {
        if self.is_too_long {
            return;
        }
        if self.held.len() + part.len() > self.max {
            self.is_too_long = true;
            self.held = Vec::new();
            self.values.fill(BodyValue::Absent);
            return;
        }
        self.held.extend_from_slice(part);
    }

    /// Keeps the data of a line that has ended; an empty line ends the event.
    fn end_line(&mut self, line: Line) {
        if line.is_empty {
            return self.end_event();
        }
        if self.is_too_long {
            return;
        }
        let text = &self.held[line.start..];
        let Some(data) = text.strip_prefix(b"data:") else {
            self.held.truncate(line.start); // a comment, or another field
            return;
        };
        let name = text.len() - data.len() + usize::from(data.first() == Some(&b' '));
        self.held.drain(line.start..line.start + name);
        self.hold(b"\n");
    }

    fn end_event(&mut self) {
        if !self.held.is_empty() {
            let mut values = vec![BodyValue::Absent; self.fields.len()];
            json::read(&self.fields, &self.held, &mut values);
            for (value, new) in self.values.iter_mut().zip(values) {
                if matches!(new, BodyValue::Text(_) | BodyValue::Ambiguous) {
                    *value = new;
                }
            }
        }
        self.held.clear();
        self.is_too_long = false;
    }
}

impl Line {
    const fn new(start: usize) -> Self {
        Self {
            start,
            is_empty: true,
            after_cr: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream; charset=utf-8";

    fn reader(content_type: &str, max: usize) -> Option<ResponseReader> {
        let fields = ["json:/usage/total", "json:/n"].map(|text| BodyField::parse(text).unwrap());
        let headers = [("content-type", content_type.as_bytes())];
        ResponseReader::new(fields.into(), &headers, max)
    }

    /// Returns the first value of a body, which is the same however its parts are cut.
    fn total(content_type: &str, max: usize, body: &str) -> Option<String> {
        let read = |size: usize| {
            let mut reader = reader(content_type, max).unwrap();
            for part in body.as_bytes().chunks(size) {
                reader.add(part);
                assert!(reader.held() <= max);
            }
            reader.finish().swap_remove(0)
        };
        let whole = read(body.len().max(1));
        for size in 1..body.len() {
            assert_eq!(read(size), whole, "{size}: {body}");
        }
        whole
    }

    #[test]
    fn a_document_is_read_to_its_end() {
        for (body, expected) in [
            (r#"{"id": "x", "usage": {"total": 12}}"#, Some("12")),
            (r#"{"usage": {"total": "12.50"}}"#, Some("12.50")),
            (r#"{"usage": {"total": 12}"#, None),
            (r#"{"usage": {"total": 12}}}"#, None),
            (r#"{"usage": {"total": 1, "total": 2}}"#, None),
            (r#"{"usage": null}"#, None),
            ("", None),
        ] {
            assert_eq!(total(JSON, 100, body).as_deref(), expected, "{body}");
        }
        let body = r#"{"usage": {"total": 12}}"#;
        assert!(total(JSON, body.len(), body).is_some());
        assert!(total(JSON, body.len() - 1, body).is_none());
    }

    #[test]
    fn the_last_event_with_a_value_holds() {
        let usage = r#"data: {"usage": {"total": 12}}"#;
        for (body, expected) in [
            (
                format!("data: {{\"x\": 1}}\n\n{usage}\n\ndata: [DONE]\n\n"),
                Some("12"),
            ),
            // The first events of a stream have none, or one that grows.
            (
                format!("data: {{\"usage\": null}}\r\n\r\n{usage}\r\n\r\n"),
                Some("12"),
            ),
            (
                format!("{usage}\n\n{}\n\n", usage.replace("12", "15")),
                Some("15"),
            ),
            (
                format!("{usage}\n\ndata: {{\"usage\": null}}\n\n"),
                Some("12"),
            ),
            // Several lines of data are one text; other fields and comments are left out.
            (
                ": hello\nevent: done\ndata: {\"usage\":\ndata:{\"total\": 7}}\nid: 4\n\n".into(),
                Some("7"),
            ),
            (format!("{usage}\r\r"), Some("12")),
            (usage.into(), Some("12")), // without an end
            (usage[..20].into(), None),
            (format!("dada{}\n\n", &usage[4..]), None),
            // The last names it twice, so there is no telling.
            (
                format!("{usage}\n\ndata: {{\"usage\": 1, \"usage\": 2}}\n\n"),
                None,
            ),
            (String::new(), None),
        ] {
            assert_eq!(total(EVENTS, 100, &body).as_deref(), expected, "{body:?}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_ends_what_was_found() {
        let long = format!("data: {}\n\n", "x".repeat(100));
        let usage = "data: {\"usage\": {\"total\": 12}}\n\n";
        for (body, expected) in [
            (format!("{long}{usage}"), Some("12")),
            (format!("{usage}{long}"), None),
            (usage.repeat(9), Some("12")),
        ] {
            assert_eq!(total(EVENTS, 60, &body).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn bodies_that_cannot_be_read_are_not_begun() {
        let fields = || vec![BodyField::parse("json:/n").unwrap()];
        let json = ("content-type", &b"application/json"[..]);
        for (headers, reads) in [
            (vec![json], true),
            (vec![json, ("content-encoding", b"gzip")], false),
            (vec![("content-type", b"application/problem+json")], true),
            (vec![("content-type", b"text/event-stream")], true),
            (
                vec![("content-type", b"text/event-stream; charset=latin1")],
                false,
            ),
            (
                vec![("content-type", b"application/x-www-form-urlencoded")],
                false,
            ),
            (vec![("content-type", b"text/plain")], false),
            (vec![], false),
        ] {
            let reader = ResponseReader::new(fields(), &headers, 10);
            assert_eq!(reader.is_some(), reads, "{headers:?}");
        }
    }
}
