//! Overrides edit: one line of a file of overrides, set or removed; every other byte stays.
//!
//! ```text
//!   limit,key,set,until,reason              limit,key,set,until,reason
//!   api,acme,20/1m,,            --set-->    api,acme,30/1m,,contract 4711
//!   api,globex,blocked,,                    api,globex,blocked,,
//! ```
//!
//! A line is found by its limit and key as they are written. Nothing is judged here: the new text
//! is parsed as part of its policy.

use std::ops::Range;

use super::overrides::{OverridePlace, OverrideText, written};
use super::overrides_file::{COLUMNS, Records, columns, is_toml};
use crate::config::fields::OVERRIDES;
use crate::config::{Findings, Table, syntax};

/// One override of a file. Texts are as written; `until` and `reason` may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverrideLine {
    /// Name of the limit.
    pub limit: String,
    /// Value of the key; `part=value;part=value` if the key of the limit has several parts.
    pub key: String,
    /// The numbers.
    pub set: String,
    /// The end, a time with an offset.
    pub until: String,
    /// The reason, for the record.
    pub reason: String,
}

/// Returns the overrides that can be read in the text of a file of overrides, each with the number
/// of its line, from 1. A file with a name that ends in `.toml` has the form of the policy.
///
/// ```
/// use ratekeeper_policy::config::override_lines;
///
/// let toml = "[[override]]\nlimit = \"api\"\nkey = { \"attr:tenant\" = \"acme\" }\nset = \"20/1m\"\n";
/// let csv = "limit,key,set\napi,acme,20/1m\n";
/// let (_, of_toml) = &override_lines("overrides.toml", toml)[0];
/// let (_, of_csv) = &override_lines("overrides.csv", csv)[0];
/// assert_eq!(of_toml, of_csv);
/// ```
pub fn override_lines(name: &str, text: &str) -> Vec<(usize, OverrideLine)> {
    if !is_toml(name) {
        let csv = OverridesCsv(text);
        return csv.rows().map(|row| (row.number, row.line)).collect();
    }
    let findings = Findings::new(text);
    let document = syntax::parsed(text, &findings);
    let root = Table::root(document.get_ref(), &OVERRIDES, &findings);
    let written = written(root, OverridePlace::FileTable);
    written.map(|text| (text.line, line_of(&text))).collect()
}

/// Returns an override as a line shows it.
fn line_of(text: &OverrideText<'_>) -> OverrideLine {
    let key = match &*text.key {
        [(_, value)] => value.value.to_owned(),
        parts => {
            let each = parts.iter();
            let each = each.map(|(part, value)| format!("{}={}", part.value, value.value));
            each.collect::<Vec<_>>().join(";")
        }
    };
    OverrideLine {
        limit: text.limit.value.to_owned(),
        key,
        set: text.set.value.to_string(),
        until: text
            .until
            .as_ref()
            .map_or_else(String::new, |until| until.value.to_string()),
        reason: text.reason.to_owned(),
    }
}

/// The text of a file of overrides in CSV, which can be edited.
///
/// ```
/// use ratekeeper_policy::config::{OverrideLine, OverridesCsv};
///
/// let file = "limit,key,set,until,reason\napi,acme,20/1m,,\n";
/// let line = OverrideLine {
///     limit: "api".into(),
///     key: "acme".into(),
///     set: "30/1m".into(),
///     reason: "contract 4711, signed".into(),
///     ..OverrideLine::default()
/// };
/// let csv = OverridesCsv::of("overrides.csv", file).unwrap();
/// let (text, number) = csv.set(&line).unwrap();
/// assert_eq!(text, "limit,key,set,until,reason\napi,acme,30/1m,,\"contract 4711, signed\"\n");
/// assert_eq!(number, 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OverridesCsv<'t>(&'t str);

/// A line and its place.
struct Row {
    at: Range<usize>,
    /// From 1.
    number: usize,
    line: OverrideLine,
}

impl<'t> OverridesCsv<'t> {
    /// Takes the text of a file, which may have errors; `None` if its name is that of a TOML file.
    pub fn of(name: &str, text: &'t str) -> Option<Self> {
        (!is_toml(name)).then_some(Self(text))
    }

    /// Returns the text with this line, and the number of the line: it replaces the first with the
    /// same limit and key, or is the last.
    ///
    /// # Errors
    /// The reason: the first line does not name the columns, or not one that the line needs.
    pub fn set(&self, line: &OverrideLine) -> Result<(String, usize), String> {
        let written = self.written(line)?;
        let found = self.rows().find(|row| row.is_for(&line.limit, &line.key));
        let mut text = self.0.to_owned();
        if let Some(row) = found {
            text.replace_range(row.at, &written);
            return Ok((text, row.number));
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let number = 1 + text.matches('\n').count();
        text.push_str(&written);
        text.push('\n');
        Ok((text, number))
    }

    /// Returns the text without the lines of that limit and key, and how many there were.
    pub fn remove(&self, limit: &str, key: &str) -> (String, usize) {
        let found: Vec<_> = self.rows().filter(|row| row.is_for(limit, key)).collect();
        let mut text = self.0.to_owned();
        for row in found.iter().rev() {
            let rest = &text[row.at.end..];
            let end = rest.len() - rest.strip_prefix('\r').unwrap_or(rest).len();
            let end = end + usize::from(rest[end..].starts_with('\n'));
            text.replace_range(row.at.start..row.at.end + end, "");
        }
        (text, found.len())
    }

    fn head(&self) -> Option<[Option<usize>; COLUMNS.len()]> {
        columns(&Records::new(self.0).next()?, &Findings::new(self.0))
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        let columns = self.head().unwrap_or_default();
        let records = Records::new(self.0).skip(1);
        records.filter_map(move |record| {
            let at = record.cells.first()?.at.start..record.cells.last()?.at.end;
            let cell = |column: usize| {
                let index: usize = columns[column]?;
                Some(record.cells.get(index)?.value.to_string())
            };
            let row = Row {
                at,
                number: record.line,
                line: OverrideLine {
                    limit: cell(0)?,
                    key: cell(1)?,
                    set: cell(2)?,
                    until: cell(3).unwrap_or_default(),
                    reason: cell(4).unwrap_or_default(),
                },
            };
            record.fault.is_none().then_some(row)
        })
    }

    /// Returns a line in the columns of the file, without its end.
    fn written(&self, line: &OverrideLine) -> Result<String, String> {
        let columns = self
            .head()
            .ok_or("its first line does not name the columns")?;
        let values = [&line.limit, &line.key, &line.set, &line.until, &line.reason];
        let mut cells = vec![String::new(); columns.iter().flatten().count()];
        for ((value, column), name) in values.into_iter().zip(columns).zip(COLUMNS) {
            match column {
                Some(column) => cells[column] = quoted(value),
                None if value.is_empty() => {}
                None => return Err(format!("its first line does not name the column `{name}`")),
            }
        }
        Ok(cells.join(","))
    }
}

impl Row {
    fn is_for(&self, limit: &str, key: &str) -> bool {
        self.line.limit == limit && self.line.key == key
    }
}

/// Returns a cell, in quotes if its text would not be read back without.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.trim() != text {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "limit,key,set,until,reason\n";

    fn line([limit, key, set, until, reason]: [&str; 5]) -> OverrideLine {
        OverrideLine {
            limit: limit.to_owned(),
            key: key.to_owned(),
            set: set.to_owned(),
            until: until.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_line_is_replaced_or_is_the_last() {
        let acme = line(["api", "acme", "30/1m", "", ""]);
        for (before, after, number) in [
            ("limit,key,set", "limit,key,set\napi,acme,30/1m\n", 2),
            ("limit,key,set\n\n", "limit,key,set\n\napi,acme,30/1m\n", 3),
            (
                "set,key,limit\r\n1/1m,acme,api\r\nblocked,\"x\ny\",api",
                "set,key,limit\r\n30/1m,acme,api\r\nblocked,\"x\ny\",api",
                2,
            ),
            // The first of two holds, so it is the one that is replaced.
            (
                "limit,key,set\napi,\"x\ny\",1/1m\napi,acme,1/1m\napi, acme ,2/1m\n",
                "limit,key,set\napi,\"x\ny\",1/1m\napi,acme,30/1m\napi, acme ,2/1m\n",
                4,
            ),
            // A line with an error stays where it is.
            (
                "limit,key,set\napi,\"a\"b,1/1m\n",
                "limit,key,set\napi,\"a\"b,1/1m\napi,acme,30/1m\n",
                3,
            ),
        ] {
            let set = OverridesCsv(before).set(&acme);
            assert_eq!(set, Ok((after.to_owned(), number)), "{before}");
        }
        let until = line(["api", "acme", "30/1m", "2036-01-01T00:00:00Z", ""]);
        for (text, why) in [
            ("", "its first line does not name the columns"),
            ("limit,key\n", "its first line does not name the columns"),
            (
                "limit,key,set\n",
                "its first line does not name the column `until`",
            ),
        ] {
            let refused = OverridesCsv(text).set(&until);
            assert_eq!(refused, Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn all_lines_of_a_key_are_removed_with_their_ends() {
        for (before, after, count) in [
            ("a,k,1/1m,,\nb,k,1/1m,,\n", "b,k,1/1m,,\n", 1),
            ("b,k,1/1m,,\r\na,k,1/1m,,\r\n", "b,k,1/1m,,\r\n", 1),
            ("a,k,1/1m,,\nb,k,1/1m,,\na,\"k\",2/1m,,", "b,k,1/1m,,\n", 2),
            ("b,k,1/1m,,\n", "b,k,1/1m,,\n", 0),
            ("a,kk,1/1m,,\n", "a,kk,1/1m,,\n", 0),
        ] {
            let text = format!("{HEAD}{before}");
            let removed = OverridesCsv(&text).remove("a", "k");
            assert_eq!(removed, (format!("{HEAD}{after}"), count), "{before}");
        }
    }

    proptest! {
        /// Any text of a cell is read back, and the other lines stay.
        #[test]
        fn a_line_that_is_set_is_read_back_and_removed(
            cells in proptest::array::uniform5("[a,;=\" \n\r#]{1,6}"),
            others in proptest::collection::vec("[a-c]{1,3}", 0..4),
        ) {
            let others: Vec<_> = others.iter().map(|key| format!("zz,{key},1/1m,,\n")).collect();
            let text = HEAD.to_owned() + &others.concat();
            let line = line([&cells[0], &cells[1], &cells[2], &cells[3], &cells[4]]);
            let (set, number) = OverridesCsv(&text).set(&line).unwrap();
            let lines = override_lines("o.csv", &set);
            let found = lines.into_iter().find(|(at, _)| *at == number);
            prop_assert_eq!(found, Some((number, line)));
            let removed = OverridesCsv(&set).remove(&cells[0], &cells[1]);
            prop_assert_eq!(removed, (text, 1));
        }
    }
}
