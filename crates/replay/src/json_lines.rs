//! JSON lines: the names of fields in a log of JSON, and lines that are read by them.
//!
//! ```text
//!   {"ts": 1646861401.5, "request": {"remote_ip": "192.0.2.1", "uri": "/a"}, "status": 200}
//!                                    request.remote_ip          request.uri
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Display, Write as _};

use foldhash::fast::RandomState;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::record::{Column, FieldKind, RowWriter, SkipReason, Stamp};
use crate::template::header;
use crate::timestamp::{MILLI, SECOND};

/// The meaning of each field of a log, by its path.
#[derive(Clone, Debug)]
pub(crate) struct JsonFields {
    columns: HashMap<Box<str>, Column, RandomState>,
    pub(crate) stamp: Stamp,
}

/// Names that nginx, Envoy, Traefik, this project's events and loggers of services give. The first
/// name of a row is that of the part in `PART=FIELD`.
const KNOWN: &[(Column, &str)] = &[
    (
        Column::Time,
        "time timestamp @timestamp ts time_local time_iso8601 msec start_time StartUTC",
    ),
    (
        Column::Client,
        "client client_ip remote_addr remote_ip ip ClientHost downstream_remote_address \
         downstream_direct_remote_address",
    ),
    (Column::Request, "request"),
    (Column::Method, "method request_method RequestMethod"),
    (Column::Target, "path request_uri uri url RequestPath"), // `target` is a module of Rust
    (Column::Query, "query query_string args"),
    (Column::Host, "host authority http_host RequestHost"),
    (
        Column::Status,
        "status response_code status_code DownstreamStatus",
    ),
    (Column::Duration(SECOND), "duration_s request_time"),
    (Column::Duration(MILLI), "duration_ms duration"),
];

/// Field of Traefik, in nanoseconds.
const TRAEFIK: (&str, Column) = ("Duration", Column::Duration(1));

/// Headers that logs have under their own names.
const HEADERS: &str = "user_agent user-agent referer x_forwarded_for x-forwarded-for x_request_id";

/// Fields of Caddy's access log.
const CADDY: &[(Column, &str)] = &[
    (Column::Time, "ts"),
    (Column::Client, "request.remote_ip"),
    (Column::Method, "request.method"),
    (Column::Host, "request.host"),
    (Column::Target, "request.uri"),
    (Column::Status, "status"),
    (Column::Duration(SECOND), "duration"),
];

impl JsonFields {
    fn of(table: &[(Column, &str)], stamp: Stamp) -> Self {
        let named = table.iter().flat_map(|(column, names)| {
            let names = names.split(' ');
            names.map(|name| (name.into(), column.clone()))
        });
        let columns = named.collect();
        Self { columns, stamp }
    }

    /// Returns the fields that loggers usually write.
    pub(crate) fn known() -> Self {
        let mut fields = Self::of(KNOWN, Stamp::Unknown);
        let headers = HEADERS.split(' ');
        let headers = headers.map(|name| (name, header(&name.replace('_', "-"))));
        let others = headers.chain([TRAEFIK]);
        let others = others.map(|(name, column)| (name.into(), column));
        fields.columns.extend(others);
        fields
    }

    /// Returns the fields of Caddy.
    pub(crate) fn caddy() -> Self {
        Self::of(CADDY, Stamp::End)
    }

    /// Reads the meaning of a field under another name, `client=request.ip`, in place of the
    /// usual names.
    ///
    /// # Errors
    /// Returns a sentence that names the mistake.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), String> {
        let wrong = || {
            format!(
                "`{text}` is not PART=FIELD; a part is time, client, request, method, path, query, \
                 host, status, duration_s, duration_ms, header:X, cookie:X or attr:X"
            )
        };
        let (part, path) = text.split_once('=').ok_or_else(wrong)?;
        let column = match part.split_once(':') {
            None => {
                let is_named = |names: &str| names.split(' ').next() == Some(part);
                let mut known = KNOWN.iter();
                let known = known.find(|(_, names)| is_named(names));
                known.map(|(column, _)| column.clone()).ok_or_else(wrong)?
            }
            Some(("header", name)) => header(name),
            Some(("cookie", name)) => Column::Named(FieldKind::Cookie, name.into()),
            Some(("attr", name)) => Column::Named(FieldKind::Attribute, name.into()),
            Some(_) => return Err(wrong()),
        };
        self.columns.retain(|_, known| *known != column);
        self.columns.insert(path.into(), column);
        Ok(())
    }

    /// Reads a line.
    pub(crate) fn read(&self, line: &str, row: &mut RowWriter<'_>) -> Result<(), SkipReason> {
        /// Bytes that most paths take.
        const PATH: usize = 64;
        let mut walk = Walk {
            fields: self,
            path: String::with_capacity(PATH),
            number: String::new(),
            row,
            error: None,
        };
        let mut json = serde_json::Deserializer::from_str(line);
        let read = walk.deserialize(&mut json).and_then(|()| json.end());
        match (walk.error, read) {
            (Some(reason), _) => Err(reason),
            (None, Ok(())) if row.has_request() => Ok(()),
            _ => Err(SkipReason::OtherFormat),
        }
    }
}

/// The way through one line.
struct Walk<'a, 'r> {
    fields: &'a JsonFields,
    /// Path of the value that is read.
    path: String,
    /// The last number in digits, kept for its memory.
    number: String,
    row: &'a mut RowWriter<'r>,
    error: Option<SkipReason>,
}

impl Walk<'_, '_> {
    fn value(&mut self, value: &str) {
        let (fields, path) = (self.fields, self.path.as_str());
        let read = if let Some(column) = fields.columns.get(path) {
            self.row.put(column, value)
        } else {
            let prefixes = ["http_", "request.headers."];
            let name = prefixes.iter().find_map(|it| path.strip_prefix(it));
            name.map_or(Ok(()), |name| {
                self.row.put(&header(&name.replace('_', "-")), value)
            })
        };
        if let Err(reason) = read {
            self.error.get_or_insert(reason);
        }
    }

    /// Returns true if the value is an attribute, a header or a cookie.
    fn is_named(&self) -> bool {
        let column = self.fields.columns.get(self.path.as_str());
        matches!(column, Some(Column::Named(..)))
    }

    fn number(&mut self, value: impl Display) {
        if self.fields.columns.contains_key(self.path.as_str()) {
            let mut text = std::mem::take(&mut self.number);
            text.clear();
            // Writing to memory cannot fail.
            let _ = write!(text, "{value}");
            self.value(&text);
            self.number = text;
        }
    }
}

/// The name of a member, borrowed from the line unless it has an escape.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for &mut Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        if self.is_named() {
            self.value(if value { "true" } else { "false" });
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.number(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.number(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        if self.is_named() {
            self.number(value); // as the service writes an attribute
        } else {
            // Six digits: a double has no more for times of this century.
            self.number(format_args!("{value:.6}"));
        }
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.value(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        let parent = self.path.len();
        while let Some(Name(name)) = members.next_key()? {
            self.path.push_str(&name);
            members.next_value_seed(&mut *self)?;
            self.path.truncate(parent);
        }
        self.path.truncate(length);
        Ok(())
    }
}
