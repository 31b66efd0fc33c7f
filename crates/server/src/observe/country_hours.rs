//! Country hours: the requests of each country in each of the last 24 hours, and those refused.
//!
//! ```text
//!   answer whose policy asked for the country --> two counters of it
//!                                                   |  each second
//!                                                   v
//!                            [country] x [hour of the day, 24 of them]
//! ```
//!
//! A country is two letters, so there are at most [`CODES`], however many addresses ask, and ISO
//! 3166-1 assigns 249 of them: 11 KiB of counters, and 50 KiB of hours. A request whose limits
//! depend on no country has none, and is not counted, because nothing has looked it up.

use std::sync::OnceLock;

use crate::counter::Counter;
use parking_lot::Mutex;
use ratekeeper::Answer;
use ratekeeper_policy::Policy;
use serde::Serialize;

/// Number of codes of two letters.
const CODES: usize = 26 * 26;
/// Maximum number of countries with hours: those of ISO 3166-1, Kosovo and the unknown one fit.
const MAX_DAYS: usize = 256;
/// Number of hours kept, the current one included.
pub(crate) const HOURS: usize = 24;

/// Requests of a country: all, and those refused.
type Counts = [Counter; 2];
/// The hours of a country, by the hour of the day in UTC.
type Day = [[u32; 2]; HOURS];

/// The requests of all countries.
#[derive(Debug, Default)]
pub(crate) struct CountryHours {
    /// Since the last reading; made for the first policy that knows countries.
    counts: OnceLock<Box<[Counts]>>,
    hours: Mutex<Hours>,
}

#[derive(Debug, Default)]
struct Hours {
    /// Hours since 1970.
    hour: u64,
    /// By place of the country; [`MAX_DAYS`] at most.
    days: Vec<(usize, Day)>,
}

/// A country, with its hours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct CountryDay {
    pub(crate) country: String,
    /// Requests and refusals of each hour, the current one last.
    pub(crate) hours: Vec<[u32; 2]>,
}

impl CountryHours {
    /// Makes room if the policy knows countries.
    pub(crate) fn install(&self, policy: &Policy) {
        if policy.geo.is_some() {
            self.counts
                .get_or_init(|| (0..CODES).map(|_| Counts::default()).collect());
        }
    }

    /// Counts a decided request.
    pub(crate) fn note(&self, answer: &Answer) {
        let Some(counts) = self.counts.get() else {
            return;
        };
        let place = answer.country().and_then(|it| place(it.code()));
        if let Some([all, refused]) = place.and_then(|place| counts.get(place)) {
            all.add(1);
            if !answer.allowed() {
                refused.add(1);
            }
        }
    }

    /// Moves the counts into the current hour; `hour` counts since 1970.
    pub(crate) fn roll(&self, hour: u64) {
        let Some(counts) = self.counts.get() else {
            return;
        };
        let mut hours = self.hours.lock();
        // A clock that was set back goes on in an earlier hour of the same day.
        let passed = hour.saturating_sub(hours.hour).min(HOURS as u64);
        hours.hour = hour;
        for later in 0..passed {
            let slot = slot(hour - later);
            hours
                .days
                .iter_mut()
                .for_each(|(_, day)| day[slot] = [0; 2]);
        }
        let is_empty = |day: &Day| day.iter().all(|hour| *hour == [0; 2]);
        hours.days.retain(|(_, day)| !is_empty(day));
        for (place, [all, refused]) in counts.iter().enumerate() {
            if all.count() == 0 {
                continue;
            }
            let days = &mut hours.days;
            let at = match days.binary_search_by_key(&place, |(place, _)| *place) {
                Ok(at) => at,
                Err(_) if days.len() == MAX_DAYS => continue, // never: there are not so many
                Err(at) => {
                    if days.is_empty() {
                        days.reserve_exact(MAX_DAYS);
                    }
                    days.insert(at, (place, Day::default()));
                    at
                }
            };
            let cell = &mut days[at].1[slot(hour)];
            for (cell, counter) in cell.iter_mut().zip([all, refused]) {
                let more = u32::try_from(counter.take()).unwrap_or(u32::MAX);
                *cell = cell.saturating_add(more);
            }
        }
    }

    /// Returns the current hour, and the countries with the most requests in the last
    /// [`HOURS`]; `None` if no policy knew countries yet.
    pub(crate) fn busiest(&self, count: usize) -> Option<(u64, Vec<CountryDay>)> {
        self.counts.get()?;
        let hours = self.hours.lock();
        let now = hours.hour;
        let days = hours.days.iter().map(|(place, day)| CountryDay {
            country: code(*place),
            hours: (1..=HOURS)
                .map(|later| day[slot(now + later as u64)])
                .collect(),
        });
        let mut days: Vec<_> = days.collect();
        drop(hours);
        let all = |day: &CountryDay| {
            day.hours
                .iter()
                .map(|[all, _]| u64::from(*all))
                .sum::<u64>()
        };
        days.sort_by_key(|day| std::cmp::Reverse(all(day)));
        days.truncate(count);
        Some((now, days))
    }
}

/// Returns the place of an hour among those of its day.
fn slot(hour: u64) -> usize {
    usize::try_from(hour % HOURS as u64).unwrap_or_default()
}

/// Returns the place of a country; `None` for other texts.
fn place(code: &str) -> Option<usize> {
    let letter = |byte: u8| byte.is_ascii_uppercase().then(|| usize::from(byte - b'A'));
    match *code.as_bytes() {
        [first, second] => Some(letter(first)? * 26 + letter(second)?),
        _ => None,
    }
}

/// Returns the country at a place.
fn code(place: usize) -> String {
    let letter = |number: usize| char::from(b'A' + u8::try_from(number % 26).unwrap_or_default());
    [letter(place / 26), letter(place)].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> CountryHours {
        let countries = CountryHours::default();
        let counts = (0..CODES).map(|_| Counts::default()).collect();
        assert!(countries.counts.set(counts).is_ok());
        countries
    }

    fn note(countries: &CountryHours, code: &str, [all, refused]: [u64; 2]) {
        let counts = &countries.counts.get().unwrap()[place(code).unwrap()];
        counts[0].add(all);
        counts[1].add(refused);
    }

    #[test]
    fn each_code_has_its_place() {
        for at in 0..CODES {
            assert_eq!(place(&code(at)), Some(at));
        }
        assert_eq!((place("no"), place("NOR"), place("")), (None, None, None));
    }

    #[test]
    fn hours_pass_and_the_oldest_is_dropped() {
        let countries = counted();
        countries.roll(1_000);
        note(&countries, "NO", [5, 1]);
        note(&countries, "SE", [9, 0]);
        countries.roll(1_000);
        note(&countries, "NO", [2, 2]);
        countries.roll(1_001);
        let (hour, days) = countries.busiest(20).unwrap();
        assert_eq!((hour, days.len()), (1_001, 2));
        assert_eq!((&*days[0].country, &*days[1].country), ("SE", "NO"));
        assert_eq!(days[1].hours[22..], [[5, 1], [2, 2]]);
        countries.roll(1_000 + 24);
        let (_, days) = countries.busiest(20).unwrap();
        assert_eq!(days.len(), 1, "the hour of SE has passed");
        assert_eq!(days[0].hours[0], [2, 2]);
        countries.roll(5_000);
        assert!(countries.busiest(20).unwrap().1.is_empty());
    }

    #[test]
    fn a_policy_without_countries_has_none() {
        let countries = CountryHours::default();
        countries.roll(7);
        assert!(countries.busiest(20).is_none());
    }
}
