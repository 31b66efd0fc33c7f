//! Turns: limits of the same requests and keys, each for some hours of the day, should meet.
//!
//! ```text
//!   night   |#####|                        "01:00-06:00"
//!   day            |##################|    "07:00-01:00"
//!                 ^ an hour without a limit: reported
//! ```

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::codes;
use super::diagnostic::Findings;
use super::limit::Draft;
use crate::active::{Hours, Schedule};
use crate::{Active, RuleMode};

/// Maximum number of minutes of a day without a limit that are reported: more are probably
/// intended, as a lunch break between hours of work.
const SHORT_GAP: usize = 120;

const MINUTE: i64 = 60;
const DAY: i64 = Hours::ALL.end;

/// Warns of limits with the same match and key that leave a short gap between their hours, or that
/// overlap in part. Hours within the hours of another limit are a tighter limit for those.
pub(super) fn turns(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    let mut groups: HashMap<_, Vec<Turn<'_>>> = HashMap::new();
    let mut always = HashSet::new();
    for draft in drafts
        .iter()
        .filter(|draft| draft.rule.mode != RuleMode::Off)
    {
        let requests = (&draft.same, &draft.rule.key);
        match draft.rule.active.as_deref().map(Active::schedule) {
            None => {
                always.insert(requests);
            }
            Some(schedule) if schedule.hours != Hours::ALL => {
                let Schedule {
                    days,
                    from,
                    until,
                    timezone,
                    ..
                } = schedule;
                let group = groups.entry((requests, days, from, until, timezone));
                let place = draft.places.active.clone().unwrap_or_default();
                let name = &*draft.rule.limit.name;
                group.or_default().push(Turn {
                    name,
                    hours: schedule.hours,
                    place,
                });
            }
            Some(_) => {}
        }
    }
    for ((requests, ..), mut turns) in groups.into_iter().filter(|(_, turns)| turns.len() > 1) {
        turns.sort_by_key(|turn| turn.hours.start);
        overlaps(&turns, out);
        if !always.contains(&requests) {
            gap(&turns, out);
        }
    }
}

/// A limit for some hours of the day.
#[derive(Debug)]
struct Turn<'a> {
    name: &'a str,
    hours: Hours,
    place: Range<usize>,
}

/// Reports neighbours that overlap in part.
fn overlaps(turns: &[Turn<'_>], out: &mut Findings<'_>) {
    let around = turns.last().zip(turns.first()).filter(|_| turns.len() > 2);
    for (one, other) in turns.iter().zip(&turns[1..]).chain(around) {
        let both = |second| one.hours.contain(second) && other.hours.contain(second);
        let within = |inner: Hours, outer: Hours| {
            minutes().all(|second| !inner.contain(second) || outer.contain(second))
        };
        let Some(hours) = first_run(both) else {
            continue;
        };
        if within(one.hours, other.hours) || within(other.hours, one.hours) {
            continue;
        }
        let last = (one.hours.end - MINUTE).rem_euclid(DAY);
        let (before, after) = if other.hours.contain(last) {
            (one, other)
        } else {
            (other, one)
        };
        let message = format!("limits `{}` and `{}` overlap", before.name, after.name);
        let label = format!("both apply at {hours}");
        report(before, after, (message, label), out);
    }
}

/// Reports a short gap in the hours of all.
fn gap(turns: &[Turn<'_>], out: &mut Findings<'_>) {
    let without = |second| !turns.iter().any(|turn| turn.hours.contain(second));
    if minutes().filter(|second| without(*second)).count() > SHORT_GAP {
        return;
    }
    let Some(hours) = first_run(without) else {
        return;
    };
    let before = |turn: &&Turn<'_>| turn.hours.end % DAY == hours.start;
    let after = |turn: &&Turn<'_>| turn.hours.start == hours.end;
    let neighbours = turns.iter().find(before).zip(turns.iter().find(after));
    if let Some((before, after)) = neighbours {
        let message = format!("limits `{}` and `{}` leave a gap", before.name, after.name);
        let label = format!("none of the limits applies at {hours}");
        report(before, after, (message, label), out);
    }
}

fn report(
    before: &Turn<'_>,
    after: &Turn<'_>,
    (message, label): (String, String),
    out: &mut Findings<'_>,
) {
    let meeting = Hours {
        start: before.hours.end % DAY,
        ..after.hours
    };
    out.warning(codes::TURNS, after.place.clone(), message, label)
        .related(before.place.clone())
        .help(format!("write for example hours = \"{meeting}\""));
}

/// Returns the minutes of a day, by their first seconds.
fn minutes() -> impl Iterator<Item = i64> {
    (0..DAY / MINUTE).map(|minute| minute * MINUTE)
}

/// Returns the first run of minutes that hold, over midnight too; `None` if no minute holds, or
/// all do.
fn first_run(holds: impl Fn(i64) -> bool) -> Option<Hours> {
    let begins = |second: &i64| holds(*second) && !holds((second - MINUTE).rem_euclid(DAY));
    let start = minutes().find(begins)?;
    let after = minutes().map(|passed| (start + passed) % DAY);
    let end = after.skip(1).find(|second| !holds(*second))?;
    Some(Hours { start, end })
}

#[cfg(test)]
mod tests {
    use crate::config::{Context, parse};

    /// Returns the labels of the findings about limits with these fields in `active`.
    fn labels(fields: &[&str]) -> Vec<String> {
        let limits = fields.iter().enumerate().map(|(number, fields)| {
            format!(
                "[[limit]]\nname = \"l{number}\"\nkey = [\"ip\"]\nlimit = \"{}/1m\"\n{fields}\n",
                90 - number
            )
        });
        let limits: String = limits.collect();
        let text = format!("version = 1\ntimezone = \"UTC\"\n{limits}");
        let warnings = parse(&text, Context::default()).unwrap().warnings;
        let found = warnings.into_iter().filter(|found| found.code == "RK0331");
        found
            .map(|found| format!("{}; {}", found.label, found.help.unwrap()))
            .collect()
    }

    #[test]
    fn gaps_and_overlaps_are_found() {
        let hours = |hours: &str| format!("active = {{ hours = \"{hours}\" }}");
        for (each, expected) in [
            (&["01:00-06:00", "06:00-01:00"][..], &[][..]),
            (&["00:00-12:00", "12:00-24:00"], &[]),
            (
                &["01:00-06:00", "07:00-01:00"],
                &["none of the limits applies at 06:00-07:00; \
                   write for example hours = \"06:00-01:00\""],
            ),
            (
                &["01:00-06:00", "06:00-00:30"],
                &["none of the limits applies at 00:30-01:00; \
                   write for example hours = \"00:30-06:00\""],
            ),
            (&["09:00-12:00", "13:00-17:00"], &[]), // long gaps as well
            (
                &["01:00-06:00", "05:00-01:00"],
                &["both apply at 05:00-06:00; write for example hours = \"06:00-01:00\""],
            ),
            (
                &["22:00-02:00", "01:00-22:00"],
                &["both apply at 01:00-02:00; write for example hours = \"02:00-22:00\""],
            ),
            (&["08:00-20:00", "12:00-13:00"], &[]), // a tighter limit at noon
            (
                &["00:00-08:00", "08:00-16:00", "16:00-23:59"],
                &["none of the limits applies at 23:59-00:00; \
                   write for example hours = \"23:59-08:00\""],
            ),
        ] {
            let fields: Vec<_> = each.iter().map(|each| hours(each)).collect();
            let fields: Vec<_> = fields.iter().map(String::as_str).collect();
            assert_eq!(labels(&fields), expected, "{each:?}");
        }
    }

    #[test]
    fn limits_of_other_days_or_beside_one_of_all_hours_leave_no_gap() {
        let night = "active = { hours = \"01:00-06:00\" }";
        let day = "active = { hours = \"07:00-01:00\" }";
        assert_eq!(labels(&[night, day]).len(), 1);
        assert_eq!(labels(&[night, day, "mode = \"enforce\""]), [""; 0]);
        let weekend = "active = { hours = \"07:00-01:00\", days = [\"sat-sun\"] }";
        assert_eq!(labels(&[night, weekend]), [""; 0]);
        let off = "mode = \"off\"\nactive = { hours = \"07:00-01:00\" }";
        assert_eq!(labels(&[night, off]), [""; 0]);
    }
}
