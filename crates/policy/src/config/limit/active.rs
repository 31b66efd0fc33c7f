//! Active: reads the times at which a limit applies, and warns of times that leave out all or
//! nothing.
//!
//! ```text
//!   active = { hours = "22:00-06:00", days = ["mon-fri"], timezone = "Europe/Oslo",
//!              from = 2026-01-01, until = 2027-01-01T00:00:00Z }
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use jiff::civil;
use jiff::tz::TimeZone;
use ratekeeper_core::{Origin, Time};
use toml::de::DeValue;
use toml::value::{Datetime, Offset};

use crate::config::settings;
use crate::config::{
    At, Draft, Spot, Table, Text, ZoneSpec, codes, error, first_reason, refuse, shown, warning,
};
use crate::model::rules::active::{Days, Hours, Schedule};
use crate::model::rules::calendar::zone_name;
use crate::{Active, WallTime, Zone};

/// The zones of a file, each read once, because a table takes some kilobytes.
pub(super) type Zones = HashMap<String, Arc<Zone>>;

/// Reads `active` of a limit, if it is written and right.
pub(super) fn active(limit: Table<'_>, of_policy: &ZoneSpec, zones: &mut Zones) -> Option<Active> {
    let table = limit.table("active")?;
    let hours = table.text("hours").map(|text| hours(&text));
    let days = table.has("days").then(|| days(&table.texts("days")));
    let [from, until] = ["from", "until"].map(|name| moment(table, name));
    let (first, end) = (from.as_ref(), until.as_ref());
    let is_local = |moment: &At<'_, Moment>| moment.value.offset.is_none();
    let local = first.is_some_and(is_local) || end.is_some_and(is_local);
    let zone = match (settings::zone(table), of_policy) {
        (ZoneSpec::Unset, of_policy) => of_policy.clone(),
        (own, _) => own,
    };
    let zone = match zone {
        ZoneSpec::Set(zone) => zone,
        ZoneSpec::Refused => return None,
        ZoneSpec::Unset if hours.is_some() || days.is_some() || local => {
            no_zone(table.at(), limit);
            return None;
        }
        ZoneSpec::Unset => TimeZone::UTC,
    };
    let timezone = zone_name(&zone);
    let zone = zones
        .entry(timezone.clone())
        .or_insert_with(|| Arc::new(Zone::new(&zone, 0)));
    let schedule = Schedule {
        hours: hours.unwrap_or(Some(Hours::ALL))?,
        days: days.unwrap_or(Some(Days::ALL))?,
        from: first.map_or(i64::MIN, |moment| moment.value.instant(zone)),
        until: end.map_or(i64::MAX, |moment| moment.value.instant(zone)),
        zone: Arc::clone(zone),
        timezone,
    };
    if let (Some(from), Some(until)) = (from, until)
        && schedule.until <= schedule.from
    {
        let message = format!("`active` of {limit} ends before it begins");
        error(codes::ACTIVE, until.at, message, "not after `from`")
            .related(from.at)
            .help("write a later `until`, or swap the two");
        return None;
    }
    Some(Active::new(schedule))
}

fn no_zone(at: Spot<'_>, limit: Table<'_>) {
    let message = format!("`active` of {limit} has no time zone");
    let label = "hours, days and dates without an offset need one";
    error(codes::NO_ZONE, at, message, label)
        .help("add timezone = \"Europe/Oslo\" here, or at the top for all limits");
}

/// Reads `01:00-06:00`; reports anything else.
fn hours(text: &Text<'_>) -> Option<Hours> {
    let read = text.value.split_once('-').and_then(|(start, end)| {
        let (start, end) = (clock(start)?, clock(end)?);
        (start < Hours::ALL.end).then_some(Hours { start, end })
    });
    let reason = first_reason! {
        read.is_none() => "expected HH:MM-HH:MM, from 00:00 to 24:00",
            "write for example hours = \"01:00-06:00\"";
        read.is_some_and(|hours| hours.start == hours.end) => "begins where it ends",
            "leave `hours` out for the whole day, or write another end";
    };
    let Some(reason) = reason else {
        return read;
    };
    let message = format!("\"{text}\" is not a valid span of hours");
    refuse(codes::ACTIVE, text.at, message, reason);
    None
}

/// Reads `HH:MM`, up to `24:00`: seconds after midnight.
fn clock(text: &str) -> Option<i64> {
    let (hour, minute) = text.split_once(':')?;
    let two = |digits: &str| {
        let is_two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| is_two)
    };
    let (hour, minute) = (two(hour)?, two(minute)?);
    let second = hour * 3_600 + minute * 60;
    (minute < 60 && second <= Hours::ALL.end).then_some(second)
}

/// Reads `mon`, `mon-fri` and the like; reports anything else.
fn days(texts: &[Text<'_>]) -> Option<Days> {
    let mut days = Days::NONE;
    let mut are_right = true;
    let day = |text: &str| Days::NAMES.iter().position(|name| *name == text);
    for text in texts {
        let (first, last) = text
            .value
            .split_once('-')
            .unwrap_or((text.value, text.value));
        if let (Some(first), Some(last)) = (day(first), day(last)) {
            days.add(first, last);
            continue;
        }
        are_right = false;
        let short = |text: &str| {
            let short: String = text.trim().chars().take(3).collect();
            day(&short.to_ascii_lowercase()).map(|day| Days::NAMES[day])
        };
        let like = match (short(first), short(last)) {
            (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
            (Some(first), Some(_)) => first.to_owned(),
            _ if text.value.to_ascii_lowercase().starts_with("weekend") => "sat-sun".to_owned(),
            _ => "mon-fri".to_owned(),
        };
        let message = format!("\"{text}\" is not a day of the week");
        let label = format!("expected one of {}, or a range", Days::NAMES.join(", "));
        error(codes::ACTIVE, text.at, message, label).help(format!("write for example \"{like}\""));
    }
    are_right.then_some(days)
}

/// A date and time of the file.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Seconds since 1970 by clocks at its offset, or by those of the zone.
    shown: i64,
    /// Seconds that these clocks are ahead of UTC; `None` for those of the zone.
    offset: Option<i64>,
}

impl Moment {
    /// Returns seconds since 1970. A local time that is shown twice means the first, one that is
    /// skipped the next that is shown.
    fn instant(self, zone: &Zone) -> i64 {
        match self.offset {
            Some(offset) => self.shown - offset,
            None => zone.first_reach(self.shown),
        }
    }
}

/// Returns a date of the file; `None` if the month has no such day.
pub(crate) fn civil_date(date: toml::value::Date) -> Option<civil::Date> {
    let year = i16::try_from(date.year).ok()?;
    let [month, day] = [date.month, date.day].map(u8::cast_signed);
    civil::Date::new(year, month, day).ok()
}

/// Reads a date, or a date and a time in whole seconds; reports anything else.
fn moment<'a>(table: Table<'a>, name: &str) -> Option<At<'a, Moment>> {
    let node = table.get(name)?;
    let (text, written) = match node.value {
        DeValue::Datetime(written) => (written.to_string(), Some(*written)),
        DeValue::String(text) => (shown(text), text.parse().ok()),
        _ => return None, // reported as of the wrong type
    };
    let seconds = written.and_then(|Datetime { date, time, .. }| {
        let date = civil_date(date?)?;
        let (hour, minute, second) = match time {
            Some(time) if time.nanosecond.unwrap_or(0) > 0 => return None,
            Some(time) => (time.hour, time.minute, time.second.unwrap_or(0)),
            None => (0, 0, 0),
        };
        let [hour, minute, second] = [hour, minute, second].map(u8::cast_signed);
        let time = civil::Time::new(hour, minute, second, 0).ok()?;
        let utc = date.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
        Some(utc.timestamp().as_second())
    });
    let (Some(shown), Some(written)) = (seconds, written) else {
        let message = format!("`{text}` is not a valid `{name}`");
        let label = "expected a date, or a date and a time in whole seconds";
        error(codes::ACTIVE, node.at, message, label)
            .help(format!("write for example {name} = 2026-01-01T00:00:00Z"));
        return None;
    };
    let offset = written.offset.map(|offset| match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes) * 60,
    });
    Some(At::new(Moment { shown, offset }, node.at))
}

/// Warns of limits that are never active, that were active for the last time before the process
/// started at `origin`, or that are always active.
pub(crate) fn lints(drafts: &[Draft<'_>], origin: Origin) {
    let start = WallTime::new(origin, Time::ZERO).unix_seconds();
    for draft in drafts.iter().filter(|draft| !draft.is_off()) {
        let Some(schedule) = draft.rule.active.as_deref().map(Active::schedule) else {
            continue;
        };
        let is_over = start.is_some_and(|start| schedule.until <= start.cast_signed());
        let (message, label, help) = if !schedule.ever() {
            (
                "is never active",
                "no moment is within all of its fields",
                "change its hours, days or dates, or remove the limit",
            )
        } else if is_over {
            (
                "is over",
                "`until` has passed, so the limit is never active again",
                "write a later `until`, or remove the limit",
            )
        } else if schedule.always() {
            (
                "is active at all times",
                "leaves out no hour, day or date",
                "remove `active`, or write for example active = { hours = \"01:00-06:00\" }",
            )
        } else {
            continue;
        };
        let at = draft.table.place("active");
        let message = format!("{draft} {message}");
        warning(codes::ACTIVE_TIMES, at, message, label).help(help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Context, Diagnostic, Findings, parse};

    /// 2026-11-21T00:00:00Z
    const NOVEMBER: Origin = Origin::from_unix_nanos(1_795_219_200_000_000_000);

    /// Returns the warnings for a limit with these fields in `active`.
    fn warnings(fields: &str, origin: Origin) -> Vec<Diagnostic> {
        let text = format!(
            "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"9/1m\"\n\
             active = {{ {fields} }}\n"
        );
        parse(&text, Context::from(origin)).unwrap().warnings
    }

    #[test]
    fn a_limit_that_was_over_at_the_start_is_found() {
        for (fields, origin, expected) in [
            (
                "until = 2026-11-21T00:00:00Z",
                NOVEMBER,
                Some("limit `a` is over"),
            ),
            ("until = 2026-11-21T00:00:01Z", NOVEMBER, None),
            ("until = 2026-11-21T00:00:00Z", Origin::UNIX, None), // the time is unknown
            ("from = 2030-01-01T00:00:00Z", NOVEMBER, None),
        ] {
            let found = warnings(fields, origin);
            let messages: Vec<_> = found.iter().map(|found| &*found.message).collect();
            assert_eq!(messages, Vec::from_iter(expected), "{fields}");
        }
    }

    #[test]
    fn dates_may_be_strings() {
        let active = |fields: &str| {
            let text = format!(
                "version = 1\ntimezone = \"Europe/Oslo\"\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n\
                 limit = \"9/1m\"\nactive = {{ {fields} }}\n"
            );
            let loaded = parse(&text, Context::default()).unwrap();
            loaded.policy.rules[0].active.clone()
        };
        let date = active("from = 2026-03-29");
        assert_eq!(date, active("from = \"2026-03-29\""));
        assert_eq!(date, active("from = 2026-03-28T23:00:00Z"));
        assert_eq!(date, active("from = 2026-03-29T00:00:00+01:00"));
        assert_ne!(date, active("from = 2026-03-29T00:00:00Z"));
        // 02:30 is skipped that day: 03:00 is the first time after it.
        assert_eq!(
            active("from = 2026-03-29T02:30:00"),
            active("from = 2026-03-29T01:00:00Z")
        );
    }

    #[test]
    fn hours_are_written_with_two_digits_each() {
        let findings = Findings::new("");
        let text = |text| At::new(text, findings.at(0..0));
        for (written, expected) in [
            ("01:00-06:00", Some((3_600, 21_600))),
            ("00:00-24:00", Some((0, 86_400))),
            ("22:30-06:15", Some((81_000, 22_500))),
            ("06:00-00:00", Some((21_600, 0))),
            ("24:00-06:00", None),
            ("01:00-24:01", None),
            ("01:60-06:00", None),
            ("1:00-6:00", None),
            ("+1:00-06:00", None),
            ("01:00 - 06:00", None),
            ("01:00", None),
            ("", None),
        ] {
            let read = hours(&text(written)).map(|hours| (hours.start, hours.end));
            assert_eq!(read, expected, "{written}");
        }
    }
}
