//! Record: the request of one line, and the batch of lines that it is a part of.
//!
//! ```text
//!   text   192.0.2.1 - - [..] "GET /a HTTP/1.1" 200 5\n192.0.2.7 ..   as in the file
//!          |client|             |  |target                            spans of a row
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::timestamp::{TimeReader, span_of};

/// Meaning of a column of a text, or of a field of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    Time,
    Client,
    /// Address, `:`, port.
    ClientPort,
    /// `GET /path HTTP/1.1`
    Request,
    Method,
    Target,
    Query,
    Host,
    Status,
    /// With its unit in nanoseconds.
    Duration(u64),
    Named(FieldKind, String),
    Unread,
}

/// What a value with a name belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldKind {
    Header,
    Cookie,
    Attribute,
}

/// Reason for which a line is no request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub(crate) enum SkipReason {
    #[error("not in the format of the log")]
    OtherFormat,
    #[error("without a time that can be read")]
    WrongTime,
    #[error("longer than 64 KiB")]
    TooLong,
    #[error("empty, or a remark")]
    Remark,
}

/// Lines that were read together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The lines, and behind them values that are in no line as they are.
    pub(crate) text: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) fields: Vec<NamedValue>,
    /// Place of their file in the list.
    pub(crate) file: u32,
    /// Time before which no later batch has a line, unless it comes too late.
    pub(crate) safe_until: u64,
}

/// Part of the text of a batch; empty if the line has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of(range: Range<usize>) -> Self {
        let end = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: end(range.start),
            end: end(range.end),
        }
    }

    fn of_text(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// One line, by its parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) at: u64,
    duration: Option<u64>,
    status: Option<u16>,
    client: Span,
    method: Span,
    target: Span,
    query: Span,
    host: Span,
    /// Place of its fields among those of the batch.
    fields: Span,
}

/// A header, a cookie or an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedValue {
    kind: FieldKind,
    name: Span,
    value: Span,
}

/// Fills the row of one line.
pub(crate) struct RowWriter<'a> {
    /// The lines of the batch.
    text: &'a str,
    /// Values that are in no line, which follow the text.
    values: &'a mut String,
    fields: &'a mut Vec<NamedValue>,
    times: &'a mut TimeReader,
    row: Row,
    first_field: usize,
    has_time: bool,
    /// True if the line has a column of the request, perhaps an empty one.
    has_request: bool,
}

impl RowWriter<'_> {
    /// Returns the span of a value, which is a part of the text or is written behind it.
    fn span(&mut self, value: &str) -> Span {
        let start = value
            .as_ptr()
            .addr()
            .wrapping_sub(self.text.as_ptr().addr());
        if start.saturating_add(value.len()) <= self.text.len() {
            return Span::of(start..start + value.len());
        }
        let start = self.text.len() + self.values.len();
        self.values.push_str(value);
        Span::of(start..start + value.len())
    }

    /// Returns the span of a name, which a line before this one has most often written already.
    fn name(&mut self, name: &str) -> Span {
        /// Fields of a line, of which a longer one writes its names again.
        const FIELDS: usize = 16;
        let written = |field: &NamedValue| {
            let Span { start, end } = field.name;
            let start = (start as usize).checked_sub(self.text.len())?;
            let known = self.values.get(start..end as usize - self.text.len())?;
            (known == name).then_some(field.name)
        };
        let mut latest = self.fields.iter().rev().take(FIELDS);
        let known = latest.find_map(written);
        known.unwrap_or_else(|| self.span(name))
    }

    /// Sets the value of a column. The first of two values stays.
    pub(crate) fn put(&mut self, column: &Column, value: &str) -> Result<(), SkipReason> {
        self.has_request |= matches!(column, Column::Request | Column::Method | Column::Target);
        if matches!(value, "" | "-") {
            return if *column == Column::Time {
                Err(SkipReason::WrongTime)
            } else {
                Ok(())
            };
        }
        match column {
            Column::Time if self.has_time => {}
            Column::Time => {
                self.row.at = self.times.read(value).ok_or(SkipReason::WrongTime)?;
                self.has_time = true;
            }
            Column::Request => self.put_request(value),
            Column::Status => self.row.status = self.row.status.or(value.parse().ok()),
            Column::Duration(unit) => {
                let value = value.strip_prefix('+').unwrap_or(value);
                self.row.duration = self.row.duration.or(span_of(value, *unit));
            }
            Column::ClientPort => {
                let end = value.rfind(':').unwrap_or(value.len());
                self.put(&Column::Client, &value[..end])?;
            }
            Column::Named(kind, name) => {
                let (name, value) = (self.name(name), self.span(value));
                self.fields.push(NamedValue {
                    kind: *kind,
                    name,
                    value,
                });
            }
            Column::Unread => {}
            Column::Client | Column::Method | Column::Target | Column::Query | Column::Host => {
                let span = self.span(value);
                let place = match column {
                    Column::Client => &mut self.row.client,
                    Column::Method => &mut self.row.method,
                    Column::Target => &mut self.row.target,
                    Column::Query => &mut self.row.query,
                    _ => &mut self.row.host,
                };
                if *place == Span::default() {
                    *place = span;
                }
            }
        }
        Ok(())
    }

    /// Reads `GET /path HTTP/1.1`. Other text, such as bytes of TLS, is a request without method
    /// and path.
    fn put_request(&mut self, request: &str) {
        let Some(end) = memchr::memchr(b' ', request.as_bytes()) else {
            return;
        };
        let (method, rest) = (&request[..end], &request[end + 1..]);
        let last = memchr::memrchr(b' ', rest.as_bytes()).unwrap_or(rest.len());
        let target = match &rest[last..] {
            version if version.starts_with(" HTTP/") => &rest[..last],
            _ => rest,
        };
        self.row.method = self.span(method);
        self.row.target = self.span(target);
    }

    /// Begins the line again.
    pub(crate) fn clear(&mut self) {
        self.fields.truncate(self.first_field);
        self.row = Row::default();
        self.has_time = false;
        self.has_request = false;
    }

    /// Returns true if the line has a method, a target, or the status of a request without them.
    pub(crate) fn has_request(&self) -> bool {
        let row = &self.row;
        let has_text = row.method != Span::default() || row.target != Span::default();
        has_text || self.has_request && row.status.is_some()
    }

    /// Returns the row, at the start of its request.
    pub(crate) fn row(mut self, stamp: Stamp) -> Result<Row, SkipReason> {
        if !self.has_time {
            return Err(SkipReason::OtherFormat);
        }
        if let (Stamp::End, Some(duration)) = (stamp, self.row.duration) {
            self.row.at = self.row.at.saturating_sub(duration);
        }
        self.row.fields = Span::of(self.first_field..self.fields.len());
        Ok(self.row)
    }
}

/// Moment that the time of a line states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// The start of the request.
    Start,
    /// Its end; the duration is subtracted if the line has it.
    End,
    /// One of them: programs differ.
    Unknown,
}

/// A request of a log. Values that its line lacks are empty.
#[derive(Clone, Debug)]
pub struct Record {
    pub(crate) at: u64,
    /// Place of its file in the list.
    pub(crate) file: u32,
    pub(crate) row: u32,
    pub(crate) batch: Arc<Batch>,
}

impl Batch {
    /// Reads each line of a text by `read`, which returns `None` for a line that is no request.
    pub(crate) fn read(
        mut text: String,
        times: &mut TimeReader,
        mut read: impl FnMut(&str, RowWriter<'_>) -> Option<Row>,
    ) -> Self {
        // Most lines have more bytes than this, so that the rows seldom move.
        let mut rows = Vec::with_capacity(text.len() / 90);
        let (mut values, mut fields) = (String::new(), Vec::new());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
            let line = rest[..end].strip_suffix('\r').unwrap_or(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            let row = RowWriter {
                first_field: fields.len(),
                text: &text,
                values: &mut values,
                fields: &mut fields,
                times,
                row: Row::default(),
                has_time: false,
                has_request: false,
            };
            rows.extend(read(line, row));
        }
        text.push_str(&values);
        Self {
            text,
            rows,
            fields,
            ..Self::default()
        }
    }

    /// Returns the memory that it takes, with its records.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.rows.len() * (size_of::<Row>() + size_of::<Record>());
        self.text.capacity() + rows + self.fields.len() * size_of::<NamedValue>()
    }

    /// Returns the names and values of all headers, cookies and attributes.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |span: Span| span.of_text(&self.text);
        let fields = self.fields.iter();
        fields.map(move |field| (text(field.name), text(field.value)))
    }
}

impl Record {
    fn parts(&self) -> &Row {
        &self.batch.rows[self.row as usize]
    }

    fn text(&self, span: Span) -> &str {
        span.of_text(&self.batch.text)
    }

    /// Returns the time of the request, in nanoseconds since the Unix epoch.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns the duration of the request, in nanoseconds; `None` if the log has none.
    pub fn duration(&self) -> Option<u64> {
        self.parts().duration
    }

    /// Returns the status of the response; `None` if the log has none.
    pub fn status(&self) -> Option<u16> {
        self.parts().status
    }

    /// Returns the address or name of the client, as it is in the log.
    pub fn client(&self) -> &str {
        self.text(self.parts().client)
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &str {
        self.text(self.parts().method)
    }

    /// Returns the host of the request.
    pub fn host(&self) -> &str {
        let host = self.text(self.parts().host);
        if host.is_empty() {
            self.target().0
        } else {
            host
        }
    }

    /// Returns the path and the query, without `?`.
    pub fn path_and_query(&self) -> (&str, &str) {
        let target = self.target().1;
        let end = memchr::memchr(b'?', target.as_bytes());
        let (path, in_target) =
            end.map_or((target, ""), |end| (&target[..end], &target[end + 1..]));
        let query = self.text(self.parts().query).trim_start_matches('?');
        (path, if query.is_empty() { in_target } else { query })
    }

    /// Splits the target into its host, empty unless it is a URL, and the rest.
    fn target(&self) -> (&str, &str) {
        let text = self.text(self.parts().target);
        if text.starts_with('/') {
            return ("", text);
        }
        let Some((_, rest)) = text.split_once("://") else {
            return ("", text);
        };
        rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))
    }

    pub(crate) fn named(&self, kind: FieldKind) -> impl Iterator<Item = (&str, &str)> {
        let Span { start, end } = self.parts().fields;
        let fields = self.batch.fields.get(start as usize..end as usize);
        let fields = fields.unwrap_or_default().iter();
        let named = fields.filter(move |field| field.kind == kind);
        named.map(|field| (self.text(field.name), self.text(field.value)))
    }
}
