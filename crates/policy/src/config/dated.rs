//! Dated: a number in a period of the calendar, `20/day`.
//!
//! Such limits are fixed windows in the policy's time zone; a duration (`20/24h`) rolls.

use std::ops::Range;

use ratekeeper_core::{Error, Nanos, Permits, Window};

use super::algorithm::{AlgorithmSpec, NamedAlgorithm};
use super::codes;
use super::diagnostic::Findings;
use super::numbers::{Written, built, rolling};
use super::quantity::{Quantity, QuantityKind, Surroundings};
use super::read::At;
use super::settings::ZoneSpec;
use crate::calendar::{Word, calendar};

/// The words of the calendar.
const WORDS: [CalendarSpec; 5] = [
    CalendarSpec {
        name: "hour",
        word: Word::Hour,
        nominal: Some(3_600),
    },
    CalendarSpec {
        name: "day",
        word: Word::Day,
        nominal: Some(86_400),
    },
    CalendarSpec {
        name: "week",
        word: Word::Week,
        nominal: Some(7 * 86_400),
    },
    CalendarSpec {
        name: "month",
        word: Word::Month,
        nominal: None,
    },
    CalendarSpec {
        name: "year",
        word: Word::Year,
        nominal: None,
    },
];

/// A word of the calendar.
#[derive(Debug)]
struct CalendarSpec {
    name: &'static str,
    word: Word,
    /// Its length in seconds, clock changes aside; months and years have none.
    nominal: Option<u64>,
}

/// `20/day`
#[derive(Debug)]
pub(super) struct Dated<'a> {
    number: &'a str,
    word: &'static CalendarSpec,
}

impl<'a> Dated<'a> {
    /// Returns `None` if the period is no word of the calendar.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (number, word) = text.split_once('/')?;
        let word = WORDS.iter().find(|known| known.name == word)?;
        Some(Self { number, word })
    }

    /// Returns the number in a duration of about the same length: `20/24h`.
    pub(super) fn rolling(&self) -> String {
        let rolling = rolling(self.word.name).unwrap_or_default();
        format!("{}/{rolling}", self.number)
    }

    /// Returns its windows; `None` if it is reported as wrong.
    pub(super) fn quantity(
        &self,
        text: &At<&str>,
        named: Option<NamedAlgorithm>,
        around: Surroundings<'_>,
        out: &mut Findings<'_>,
    ) -> Option<Quantity> {
        let word = self.word;
        let permits = built(permits(self.number), text, Written::Limit, out)?;
        if let Some(named) = named.filter(|named| named.value != AlgorithmSpec::Fixed) {
            self.no_algorithm(permits, named.at, out);
        }
        let zone = match around.zone {
            ZoneSpec::Set(zone) => zone.clone(),
            ZoneSpec::Refused => return None,
            ZoneSpec::Unset => {
                self.no_zone(permits, text, out);
                return None;
            }
        };
        let window = Window::calendar(permits, calendar(word.word, zone, around.origin));
        let window = built(window, text, Written::Limit, out)?.with_denials(around.denials);
        Some(Quantity {
            algorithm: window.into(),
            quota: permits,
            window: word.nominal.map(Nanos::from_secs),
            keeps_to: None,
            text: text.value.to_owned(),
            at: text.at.clone(),
            kind: QuantityKind::Calendar(word.word),
        })
    }

    fn no_algorithm(&self, permits: Permits, at: Range<usize>, out: &mut Findings<'_>) {
        let name = self.word.name;
        let rolling = rolling(name).unwrap_or_default();
        let message = format!("this algorithm cannot follow the calendar (\"{name}\")");
        let label = "calendar periods are counted by \"fixed-window\"";
        out.error(codes::ALGORITHM, at, message, label)
            .help(format!(
                "remove `algorithm`, or write limit = \"{permits}/{rolling}\" for a rolling {name}"
            ));
    }

    fn no_zone(&self, permits: Permits, text: &At<&str>, out: &mut Findings<'_>) {
        let name = self.word.name;
        let rolling = rolling(name).unwrap_or_default();
        let label = format!("\"{name}\" is a calendar {name}, but no time zone is set");
        let message = "calendar limit without a time zone";
        out.error(codes::NO_ZONE, text.at.clone(), message, label)
            .help(format!(
                "add `timezone = \"UTC\"` at the top, or write \"{permits}/{rolling}\" for a \
                 rolling {name}"
            ));
    }
}

fn permits(number: &str) -> Result<Permits, Error> {
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Error::Quota);
    }
    match number.parse() {
        Ok(0) => Err(Error::NoPermits),
        Ok(number) => Ok(Permits::new(number)),
        Err(_) => Err(Error::TooManyPermits),
    }
}
