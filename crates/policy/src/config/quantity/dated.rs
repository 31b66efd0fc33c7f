//! Dated: a number in a period of the calendar, `20/day`.
//!
//! Such limits are fixed windows in the policy's time zone; a duration (`20/24h`) rolls.

use std::sync::Arc;

use jiff::civil::Weekday;
use ratekeeper_core::{AnyAlgorithm, Calendar, Permits, Window};

use super::anchor::AnchorSpec;
use super::numbers::{Written, built};
use super::{Quantity, QuantityByDay, QuantityKind, Surroundings};
use crate::config::document::scalar::rolling;
use crate::config::{At, Spot, Text, ZoneSpec, codes, error, rate};
use crate::model::rules::calendar::{MonthDay, Word, YearDay, calendar, months};

/// `20/day`
#[derive(Debug)]
pub(super) struct Dated<'a> {
    number: &'a str,
    word: Word,
}

impl<'a> Dated<'a> {
    /// Returns `None` if the period is no word of the calendar.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let (number, word) = text.split_once('/')?;
        let word = match word {
            "hour" => Word::Hour,
            "day" => Word::Day,
            "week" => Word::Week(Weekday::Monday),
            "month" => Word::Month(MonthDay::FIRST),
            "year" => Word::Year(YearDay::FIRST),
            _ => return None,
        };
        Some(Self { number, word })
    }

    /// Returns the number in a duration of about the same length: `20/24h`.
    pub(crate) fn rolling(&self) -> String {
        format!("{}/{}", self.number, self.duration())
    }

    fn duration(&self) -> &'static str {
        rolling(&self.word.to_string()).unwrap_or_default()
    }

    /// Returns its windows; `None` if it is reported as wrong.
    pub(crate) fn quantity(
        &self,
        text: &Text<'_>,
        named: Option<Text<'_>>,
        anchor: Option<&At<'_, AnchorSpec>>,
        around: Surroundings<'_>,
    ) -> Option<Quantity> {
        let permits = built(rate(&self.rolling()), text, Written::Limit)?.permits();
        if let Some(named) = named.filter(|named| named.value != "fixed-window") {
            self.no_algorithm(permits, named.at);
        }
        let zone = match around.zone {
            ZoneSpec::Set(zone) => zone.clone(),
            ZoneSpec::Refused => return None,
            ZoneSpec::Unset => {
                self.no_zone(permits, text);
                return None;
            }
        };
        let word = match anchor {
            Some(anchor) => anchor.first_day(self.word)?,
            None => self.word,
        };
        let window = |calendar: Arc<dyn Calendar>| {
            let window = built(Window::calendar(permits, calendar), text, Written::Limit)?;
            Some(AnyAlgorithm::from(window.with_denials(around.denials)))
        };
        let (algorithm, by_day) = match anchor.map(|anchor| &anchor.value) {
            Some(AnchorSpec::Attribute(attribute)) => {
                let mut days = months(&zone, around.origin).into_iter();
                let first = window(days.next()?)?;
                let others = days.zip(MonthDay::all().skip(1)).map(|(calendar, day)| {
                    Some((window(calendar)?, text_from(text.value, Word::Month(day))))
                });
                let (attribute, others) = (attribute.clone(), others.collect::<Option<_>>()?);
                (first, Some(QuantityByDay { attribute, others }))
            }
            _ => (window(calendar(word, zone, around.origin))?, None),
        };
        let words = text_from(text.value, word);
        Some(Quantity {
            window: match self.word {
                Word::Month(_) | Word::Year(_) => None, // of no one length
                _ => self.duration().parse().ok(),
            },
            kind: QuantityKind::Calendar(word),
            by_day,
            ..Quantity::new(algorithm, permits, words)
        })
    }

    fn no_algorithm(&self, permits: Permits, at: Spot<'_>) {
        let (name, rolling) = (self.word, self.duration());
        let message = format!("this algorithm cannot follow the calendar (\"{name}\")");
        let label = "calendar periods are counted by \"fixed-window\"";
        error(codes::ALGORITHM, at, message, label).help(format!(
            "remove `algorithm`, or write limit = \"{permits}/{rolling}\" for a rolling {name}"
        ));
    }

    fn no_zone(&self, permits: Permits, text: &Text<'_>) {
        let (name, rolling) = (self.word, self.duration());
        let label = format!("\"{name}\" is a calendar {name}, but no time zone is set");
        let message = "calendar limit without a time zone";
        // As it stands in the policy: it may be converted from another unit.
        let written = text.at.source().map(|it| it.trim_matches(['"', '\'']));
        let number = written.and_then(|it| Some(it.split_once('/')?.0.to_owned()));
        let number = number.unwrap_or_else(|| permits.to_string());
        error(codes::NO_ZONE, text.at, message, label).help(format!(
            "add `timezone = \"UTC\"` at the top, or write \"{number}/{rolling}\", which \
                 follows no calendar"
        ));
    }
}

/// Returns the limit in words: `10000/month from day 15`.
fn text_from(written: &str, word: Word) -> String {
    let number = written.split('/').next().unwrap_or(written);
    format!("{number}/{word}")
}
