//! Template: the format string of a log of text, and lines that are read by it.
//!
//! ```text
//!   $remote_addr - $remote_user [$time_local] "$request" $status      nginx
//!   %h %l %u %t "%r" %>s %b                                           Apache
//!   [%START_TIME%] "%REQ(:METHOD)% %REQ(:PATH)% %PROTOCOL%" ..        Envoy
//!   %ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B ..             HAProxy
//!
//!   each becomes: column, text, column, text, ..; a column ends where the next text begins
//! ```
//!
//! In a column between quotes, a quote after a backslash does not end it.

use std::net::IpAddr;

use crate::escapes::unescaped;
use crate::record::{Column, FieldKind, RowWriter, SkipReason, Stamp};
use crate::timestamp::{MICRO, MILLI, SECOND, start_of_offset};

/// A format string, compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
    /// True if a line may go on after the last piece.
    pub(crate) is_open: bool,
    /// True for the formats of nginx and Apache.
    is_escaped: bool,
    pub(crate) stamp: Stamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Column(Column),
}

pub(crate) fn header(name: &str) -> Column {
    Column::Named(FieldKind::Header, name.to_ascii_lowercase())
}

/// Variables of a port that may follow the address of the client and a `:`.
const PORTS: [&str; 3] = ["$remote_port", "%{remote}p", "%cp"];
/// The `?` of a query, if there is one.
const IS_ARGS: &str = "$is_args";
/// Header with a list of addresses, which has spaces.
const FORWARDED: &str = "x-forwarded-for";
/// Beginnings of the forms of a time that can be read.
const TIMES: [&str; 3] = ["%d/%b/%Y:", "%Y-%m-%d", "%F"];

/// A column of a format string, and the rest after it; no column stands for the sign itself.
type Variable<'a> = Result<(Option<Column>, &'a str), String>;

/// Of the strings of a program: the sign of variables, their reader, the moment that a time states, and
/// true if values are written with escapes.
type Program = (char, fn(&str) -> Variable<'_>, Stamp, bool);

impl Template {
    /// Compiles a format string.
    ///
    /// # Errors
    /// Returns a sentence that names the part that is wrong.
    pub(crate) fn compile(format: &str) -> Result<Self, String> {
        let is_any = |signs: &[&str]| signs.iter().any(|sign| format.contains(sign));
        let (sign, variable, stamp, is_escaped): Program = if is_any(&["$"]) {
            ('$', nginx, Stamp::End, true)
        } else if is_any(&["%START_TIME", "%REQ("]) {
            ('%', envoy, Stamp::Start, false)
        } else if is_any(&["%ci", "%ST", "%HM"]) {
            let written = as_haproxy_writes(format);
            if written != format {
                return Self::compile(&written);
            }
            ('%', haproxy, Stamp::Start, false)
        } else if format.contains("\\\"") {
            return Self::compile(&format.replace("\\\"", "\"")); // as it stands in httpd.conf
        } else if format.contains("%{end:") {
            ('%', apache, Stamp::End, true)
        } else {
            ('%', apache, Stamp::Start, true)
        };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = format;
        while let Some(next) = rest.chars().next() {
            let close = |why: &str, after: &str| {
                let hint = "write a space between them, here and where the log is written";
                marked(format, rest, after, why) + "\n  hint: " + hint
            };
            let after = &rest[next.len_utf8()..];
            let (column, mut after) = if next == sign {
                variable(after).map_err(|why| marked(format, rest, "", &why))?
            } else {
                (None, after)
            };
            match (column, pieces.last_mut()) {
                (None, Some(Piece::Text(text))) => text.push(next),
                (None, Some(Piece::Column(last))) if *last == Column::Client && next == ':' => {
                    let port = PORTS.iter().find_map(|port| after.strip_prefix(port));
                    let why = "a column of addresses ends at `:`, which IPv6 addresses have";
                    after = port.ok_or_else(|| close(why, after))?;
                    *last = Column::ClientPort;
                }
                (None, _) => pieces.push(Piece::Text(next.into())),
                (Some(Column::Query), Some(Piece::Column(Column::Target)))
                    if sign == '%' || rest.starts_with(IS_ARGS) => {} // `?b=c`, or nothing
                (Some(_), Some(Piece::Column(_))) => {
                    let why = "two columns follow each other without a character between them";
                    return Err(close(why, after));
                }
                (Some(column), _) => pieces.push(Piece::Column(column)),
            }
            rest = after;
        }
        if !pieces.contains(&Piece::Column(Column::Time)) {
            return Err("it has no time, for example $time_local, %t or %START_TIME%".into());
        }
        Ok(Self {
            pieces,
            is_open: false,
            is_escaped,
            stamp,
        })
    }

    /// Reads a line.
    pub(crate) fn read(&self, line: &str, row: &mut RowWriter<'_>) -> Result<(), SkipReason> {
        const WRONG: SkipReason = SkipReason::OtherFormat;
        let mut rest = line;
        let is_escaped = self.is_escaped && line.contains('\\');
        let mut pieces = self.pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            let column = match piece {
                Piece::Text(expected) => {
                    rest = begins(rest.as_bytes(), expected.as_bytes())
                        .then(|| &rest[expected.len()..])
                        .ok_or(WRONG)?;
                    continue;
                }
                Piece::Column(column) => column,
            };
            let length = match pieces.peek() {
                // Apache writes the brackets of %t itself.
                _ if *column == Column::Time && rest.starts_with('[') => {
                    memchr::memchr(b']', rest.as_bytes()).ok_or(WRONG)? + 1
                }
                Some(Piece::Text(next)) => {
                    let start = match column {
                        // The host of an IPv6 address: `[2001:db8::1]`.
                        Column::Host if rest.starts_with('[') => rest.find(']').ok_or(WRONG)?,
                        Column::Time => start_of_offset(rest),
                        Column::Named(_, name) if name == FORWARDED => start_of_last(rest),
                        _ => 0,
                    };
                    start + end_of_column(&rest[start..], next).ok_or(WRONG)?
                }
                _ if self.is_open => memchr::memchr(b' ', rest.as_bytes()).unwrap_or(rest.len()),
                _ => rest.len(),
            };
            let value;
            (value, rest) = rest.split_at(length);
            let is_wrong = !column.takes(value)
                || self.is_open && *column == Column::Client && has_prefix(value, rest);
            if is_wrong {
                return Err(WRONG);
            }
            let value = match column {
                Column::Time => value.trim_matches(['[', ']']).into(),
                _ if is_escaped => unescaped(value),
                _ => value.into(),
            };
            row.put(column, &value)?;
        }
        if self.is_open || rest.is_empty() {
            Ok(())
        } else {
            Err(WRONG)
        }
    }
}

impl Column {
    /// Returns true if `value` can be in this column of a text.
    fn takes(&self, value: &str) -> bool {
        let is_number = || value.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::Client | Self::ClientPort => {
                let is_part = |byte: u8| byte > b' ' && byte != b',';
                !value.is_empty() && value.bytes().all(is_part)
            }
            // HAProxy writes -1 if the client has gone.
            Self::Status => {
                matches!(value, "-" | "-1") || (1..=3).contains(&value.len()) && is_number()
            }
            Self::Duration(_) => {
                value.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c))
            }
            _ => true,
        }
    }
}

/// Returns true if `client` is no address, and `rest`, which begins with ` - - [`, has an address or
/// more than two words: the line has words in front of its client.
fn has_prefix(client: &str, rest: &str) -> bool {
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    if rest.starts_with(" - - [") || is_address(client) {
        return false;
    }
    let before = rest.split_once(" [").map_or(rest, |(before, _)| before);
    let mut words = before.split(' ').skip(1);
    words.any(is_address) || before.split(' ').count() > 3
}

/// Returns the place of `10.0.0.2` in `192.0.2.1, 10.0.0.2 ..`.
fn start_of_last(list: &str) -> usize {
    let before = list.split(' ').take_while(|hop| hop.ends_with(','));
    before.map(|hop| hop.len() + 1).sum()
}

/// Returns the length of a column before `next`. Before a quote, characters after a backslash do
/// not count.
fn end_of_column(text: &str, next: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (next, mut at) = (next.as_bytes(), 0);
    let first = *next.first()?;
    loop {
        let rest = bytes.get(at..)?;
        let found = if first == b'"' {
            memchr::memchr2(b'"', b'\\', rest)?
        } else {
            memchr::memchr(first, rest)?
        };
        at += found;
        if begins(&bytes[at..], next) {
            return Some(at);
        }
        at += 1 + usize::from(first == b'"' && bytes[at] == b'\\');
    }
}

/// Returns the error `why`, with the format string and carets below the part that begins where its
/// rest `start` begins and ends where its rest `end` begins.
fn marked(format: &str, start: &str, end: &str, why: &str) -> String {
    let before = format.len() - start.len();
    let part = &format[before..format.len() - end.len()];
    let (before, part) = (format[..before].chars().count(), part.chars().count());
    let carets = "^".repeat(part);
    format!("{why}\n  | {format}\n  | {:before$}{carets}", "")
}

/// Compares byte by byte: the texts between columns are shorter than a call takes.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    bytes.len() >= start.len() && bytes.iter().zip(start).all(|(byte, other)| byte == other)
}

/// Splits off the characters of a name.
fn name(text: &str) -> (&str, &str) {
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    text.split_at(text.find(is_other).unwrap_or(text.len()))
}

/// Reads the name of a variable of nginx.
fn nginx(text: &str) -> Variable<'_> {
    let (name, rest) = match text.strip_prefix('{') {
        Some(inner) => inner.split_once('}').ok_or("`${` has no closing brace")?,
        None => name(text),
    };
    let column = match name {
        "" => return Ok((None, rest)),
        "remote_addr" => Column::Client,
        "time_local" | "time_iso8601" | "msec" => Column::Time,
        "request" => Column::Request,
        "request_method" => Column::Method,
        "request_uri" | "uri" | "document_uri" => Column::Target,
        "args" | "query_string" => Column::Query,
        "host" | "http_host" => Column::Host,
        "is_args" if rest.starts_with("$args") => return nginx(&rest[1..]),
        "status" => Column::Status,
        "request_time" => Column::Duration(SECOND),
        "remote_user" => Column::Named(FieldKind::Attribute, name.into()),
        "proxy_add_x_forwarded_for" => header(FORWARDED),
        _ => match (name.strip_prefix("http_"), name.strip_prefix("cookie_")) {
            (Some(name), _) => header(&name.replace('_', "-")),
            (_, Some(name)) => Column::Named(FieldKind::Cookie, name.into()),
            _ => Column::Unread,
        },
    };
    Ok((Some(column), rest))
}

/// Reads a directive of Apache: `%h`, `%>s`, `%{Referer}i`.
fn apache(text: &str) -> Variable<'_> {
    let text = text.trim_start_matches(|c: char| c.is_ascii_digit() || "!,<>".contains(c));
    let (name, text) = match text.strip_prefix('{') {
        Some(inner) => inner.split_once('}').ok_or("`%{` has no closing brace")?,
        None => ("", text),
    };
    let letter = text.chars().next().ok_or("it ends with %")?;
    let column = match (letter, name) {
        ('%', _) => return Ok((None, &text[1..])),
        ('h' | 'a', _) => Column::Client,
        ('t', "") => Column::Time,
        ('t', form) if form.ends_with("sec") || TIMES.iter().any(|it| form.starts_with(it)) => {
            Column::Time
        }
        ('t', _) => return Err(format!("the time `%{{{name}}}t` cannot be read; write %t")),
        ('r', _) => Column::Request,
        ('m', _) => Column::Method,
        ('U', _) => Column::Target,
        ('q', _) => Column::Query,
        ('v' | 'V', _) | ('i', "Host" | "host") => Column::Host,
        ('s', _) => Column::Status,
        ('D', _) | ('T', "us") => Column::Duration(MICRO),
        ('T', "ms") => Column::Duration(MILLI),
        ('T', _) => Column::Duration(SECOND),
        ('u', _) => Column::Named(FieldKind::Attribute, "remote_user".into()),
        ('i', name) => header(name),
        ('C', name) => Column::Named(FieldKind::Cookie, name.into()),
        _ => Column::Unread,
    };
    Ok((Some(column), &text[letter.len_utf8()..]))
}

/// Reads an operator of Envoy: `%START_TIME(%s)%`, `%REQ(NAME?OTHER)%`.
fn envoy(text: &str) -> Variable<'_> {
    let (word, rest) = name(text);
    if word.is_empty() && rest.starts_with('%') {
        return Ok((None, &rest[1..]));
    }
    let (argument, rest) = match rest.strip_prefix('(') {
        Some(inner) => inner.split_once(')').ok_or("a parenthesis is not closed")?,
        None => ("", rest),
    };
    let end = rest
        .find('%')
        .ok_or_else(|| format!("`%{word}` has no second %"))?;
    let has = |name| argument.split('?').any(|part| part == name);
    let column = match word {
        "START_TIME" => Column::Time,
        "RESPONSE_CODE" => Column::Status,
        "DURATION" => Column::Duration(MILLI),
        "REQ" if has(":METHOD") => Column::Method,
        "REQ" if has(":PATH") => Column::Target,
        "REQ" if has(":AUTHORITY") => Column::Host,
        "REQ" => header(argument.split('?').next().unwrap_or_default()),
        _ if word.starts_with("DOWNSTREAM_") && word.contains("REMOTE_ADDRESS") => Column::Client,
        _ => Column::Unread,
    };
    Ok((Some(column), &rest[end + 1..]))
}

/// Returns a format string of `HAProxy` as its lines are: `%{+Q}r` in quotes, and without the captured
/// headers in front of it, which are there or not: they are a part of the column before.
fn as_haproxy_writes(format: &str) -> String {
    let mut parts = format.split("%{+Q}");
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part
            .strip_prefix('[')
            .and_then(|inner| inner.split_once(']'));
        let rest = after.map_or_else(|| name(part).1, |(_, rest)| rest);
        let column = &part[..part.len() - rest.len()];
        written.extend(["\"%", column, "\"", rest]);
    }
    [" %hr %hs \"", " %hr \"", " %hs \""]
        .iter()
        .fold(written, |text, captures| text.replace(captures, " \""))
}

/// Reads a variable of HAProxy: `%ci:%cp`, `%[..]`.
fn haproxy(text: &str) -> Variable<'_> {
    let text = match text.strip_prefix('{') {
        Some(inner) => inner.split_once('}').ok_or("`%{` has no closing brace")?.1,
        None => text,
    };
    if let Some(inner) = text.strip_prefix('[') {
        let (_, rest) = inner.split_once(']').ok_or("`%[` has no closing bracket")?;
        return Ok((Some(Column::Unread), rest));
    }
    let (name, rest) = name(text);
    let column = match name {
        "" => return Ok((None, text.strip_prefix('%').unwrap_or(text))),
        "ci" => Column::Client,
        // `%ms` are the milliseconds of its second.
        "Ts" => {
            let rest = rest.strip_prefix(".%ms").unwrap_or(rest);
            return Ok((Some(Column::Time), rest));
        }
        "t" | "T" | "Tl" | "tr" | "trg" | "trl" => Column::Time,
        "ST" => Column::Status,
        "HM" => Column::Method,
        "HU" | "HP" | "HPO" => Column::Target,
        "HQ" => Column::Query,
        "r" => Column::Request,
        "Ta" | "Tt" => Column::Duration(MILLI),
        _ => Column::Unread,
    };
    Ok((Some(column), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_strings_of_four_programs_are_compiled() {
        let compile = |format| Template::compile(format).map(|template| template.pieces.len());
        for (format, pieces) in [
            ("$remote_addr - $remote_user [$time_local]", 6),
            ("$http_a$$time_local", 3),
            ("%h %l %u %t \"%r\" %>s %b", 13),
            ("100%% [%START_TIME(%s)%] %REQ(X?:PATH)%", 4),
            ("%ci:%cp [%tr] %{+Q}r %[src]", 7),
            ("%ci:%cp [%Ts.%ms] %{+Q}r %[src]", 7),
            ("%ci [%tr] %bq %hr %hs %{+Q}r %{+Q}[src]", 10),
            ("$remote_addr:$remote_port $uri$is_args$args [$msec]", 6),
            ("%a:%{remote}p %t %U%q", 5),
            ("%a [%{%d/%b/%Y:%H:%M:%S %z}t]", 4),
        ] {
            assert_eq!(compile(format), Ok(pieces), "{format}");
        }
        assert_eq!(
            nginx("proxy_add_x_forwarded_for"),
            Ok((Some(header(FORWARDED)), ""))
        );
        for wrong in [
            "$status",
            "$time_local$status",
            "${time_local",
            "%{x",
            "%t %",
            "%{%Y}t",
            "%START_TIME",
            "%START_TIME(%s",
            "%ci [%[src",
            "%ci %{+Q",
            "",
            "%",
        ] {
            assert!(compile(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_quote_after_a_backslash_does_not_end_a_column() {
        for (text, length) in [
            (r#"a" b"#, Some(1)),
            (r#"a\" b" c"#, Some(5)),
            (r#"a\\" b"#, Some(3)),
            (r"a\", None),
            ("a\\\u{e9}", None),
            ("a", None),
        ] {
            assert_eq!(end_of_column(text, "\" "), length, "{text}");
        }
    }
}
