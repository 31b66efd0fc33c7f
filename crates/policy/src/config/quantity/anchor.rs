//! Anchor: the day on which the periods of a calendar limit begin.
//!
//! ```text
//!   limit = "10000/month"    anchor = 31                    in a shorter month, its last day
//!                            anchor = 2026-01-31            the same
//!                            anchor = "attr:billing_day"    each key has a day of its own
//!   limit = "100/week"       anchor = "sun"
//!                            anchor = 2026-03-15            the same, because it is a Sunday
//!   limit = "1000/year"      anchor = 2026-04-06            6 April of each year
//! ```

use jiff::civil::{self, Weekday};
use toml::de::DeValue;
use toml::value::Datetime;

use crate::config::limit::active::civil_date;
use crate::config::{At, Node, Table, codes, error, shown, whole};
use crate::model::rules::active::Days;
use crate::model::rules::calendar::{MonthDay, Word, YearDay};

/// `anchor`, as written.
#[derive(Clone, Debug)]
pub(super) enum AnchorSpec {
    Day(MonthDay),
    Weekday(Weekday),
    Date(civil::Date),
    Attribute(String),
}

/// Reads `anchor`; reports text that is no day. `None` if it is not written, or wrong.
pub(super) fn anchor(table: Table<'_>) -> Option<At<'_, AnchorSpec>> {
    let node = table.get("anchor")?;
    let spec = match node.value {
        DeValue::Datetime(written) => date(*written),
        DeValue::String(text) => word(text),
        _ => {
            let number = u8::try_from(whole(node.value)?).ok()?;
            Some(AnchorSpec::Day(MonthDay::new(number)?)) // others are reported as out of range
        }
    };
    if let Some(spec) = spec {
        return Some(At::new(spec, node.at));
    }
    let text = match node.value {
        DeValue::String(text) => format!("\"{}\"", shown(text)),
        _ => "a time".to_owned(),
    };
    let message = format!("{text} is not a day on which periods begin");
    let label = "expected a day of the month, a day of the week, a date or \"attr:NAME\"";
    error(codes::ANCHOR, node.at, message, label).help(day_like(node).unwrap_or_else(|| {
        "write for example anchor = 15, anchor = \"sun\" or anchor = 2026-04-06".to_owned()
    }));
    None
}

/// Returns help for `sunday`, for the last day of each month, and for a day from another source.
fn day_like(node: Node<'_>) -> Option<String> {
    let text = node.value.as_str()?.trim().to_ascii_lowercase();
    if text.starts_with("last") || text == "eom" {
        return Some("write anchor = 31: in a shorter month, its last day".to_owned());
    }
    if text.contains(':') {
        return Some(
            "write anchor = \"attr:billing_day\": the application sends the day".to_owned(),
        );
    }
    let is_day = |day: &&&str| text.starts_with(**day) && text.ends_with("day");
    let day = Days::NAMES.iter().find(is_day)?;
    Some(format!("write anchor = \"{day}\""))
}

fn word(text: &str) -> Option<AnchorSpec> {
    if let Some(attribute) = text.strip_prefix("attr:") {
        return (!attribute.is_empty()).then(|| AnchorSpec::Attribute(attribute.to_owned()));
    }
    if let Some(day) = Days::NAMES.iter().position(|name| *name == text) {
        let day = Weekday::from_monday_zero_offset(i8::try_from(day).ok()?).ok()?;
        return Some(AnchorSpec::Weekday(day));
    }
    date(text.parse().ok()?)
}

fn date(written: Datetime) -> Option<AnchorSpec> {
    let alone = written.time.is_none() && written.offset.is_none();
    let date = written.date.filter(|_| alone)?;
    Some(AnchorSpec::Date(civil_date(date)?))
}

impl At<'_, AnchorSpec> {
    /// Returns `word` with the first day of its periods, which an attribute may state for each key;
    /// `None` if the word has no such day, which is reported.
    pub(super) fn first_day(&self, word: Word) -> Option<Word> {
        Some(match (word, &self.value) {
            (Word::Week(_), AnchorSpec::Weekday(day)) => Word::Week(*day),
            (Word::Week(_), AnchorSpec::Date(date)) => Word::Week(date.weekday()),
            (Word::Month(_), AnchorSpec::Day(day)) => Word::Month(*day),
            (Word::Month(_), AnchorSpec::Date(date)) => Word::Month((*date).into()),
            (Word::Month(_), AnchorSpec::Attribute(_)) => word,
            (Word::Year(_), AnchorSpec::Date(date)) => Word::Year(YearDay::from(*date)),
            _ => {
                self.refuse(word);
                return None;
            }
        })
    }

    fn refuse(&self, word: Word) {
        let (label, help) = match word {
            Word::Hour | Word::Day => (
                "begins with the clock",
                "leave `anchor` out, or write a limit of a week, month or year",
            ),
            Word::Week(_) => (
                "expected a day of the week, or a date",
                "write for example anchor = \"sun\"",
            ),
            Word::Month(_) => (
                "expected a day of the month, a date or \"attr:NAME\"",
                "write for example anchor = 15",
            ),
            Word::Year(_) => ("expected a date", "write for example anchor = 2026-04-06"),
        };
        let message = format!("this `anchor` is not for a calendar {word}");
        error(codes::ANCHOR, self.at, message, label).help(help);
    }

    /// Reports an anchor of a limit without periods of the calendar.
    pub(super) fn stray(&self) {
        let message = "`anchor` has no calendar period to begin";
        let label = "only for limits of a week, month or year";
        error(codes::ANCHOR, self.at, message, label)
            .help("write for example limit = \"10000/month\", or leave `anchor` out");
    }
}
