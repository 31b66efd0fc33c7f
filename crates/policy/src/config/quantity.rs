//! Quantity: how much a limit allows, from `limit`, `bucket` or `spacing` to an algorithm.
//!
//! ```text
//!   limit = "N/duration"   sliding (default), fixed, quota-reset, gcra, sub-buckets, log,
//!                          hybrid, exponential
//!   limit = "N/word"       fixed windows of the calendar, in the policy's time zone
//!   bucket = { .. }        GCRA with a burst; with `step`, refills in whole amounts
//!   spacing = ".."         GCRA with a burst of one
//!   queue = { .. }         beside GCRA: what is over waits its turn
//! ```

use std::ops::Range;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Denials, Error, Exponential, Gcra, Hybrid, Interval, Nanos,
    Origin, Permits, Quota, SubBuckets, Window,
};
use toml::de::DeTable;

use super::algorithm::{Algorithm, Named, algorithm, no_algorithm};
use super::codes;
use super::diagnostic::Findings;
use super::log::log;
use super::numbers::{Written, refuse, rolling};
use super::queue::{Queue, queue};
use super::read::{self, At};
use super::settings::Zone;
use crate::calendar::{Word, calendar};

/// The words of the calendar.
const WORDS: [Calendar; 5] = [
    Calendar {
        name: "hour",
        word: Word::Hour,
        nominal: Some(3_600),
    },
    Calendar {
        name: "day",
        word: Word::Day,
        nominal: Some(86_400),
    },
    Calendar {
        name: "week",
        word: Word::Week,
        nominal: Some(7 * 86_400),
    },
    Calendar {
        name: "month",
        word: Word::Month,
        nominal: None,
    },
    Calendar {
        name: "year",
        word: Word::Year,
        nominal: None,
    },
];

/// A word of the calendar.
#[derive(Debug)]
struct Calendar {
    name: &'static str,
    word: Word,
    /// Its length in seconds, clock changes aside; months and years have none.
    nominal: Option<u64>,
}

/// What a limit allows.
#[derive(Clone, Debug)]
pub(super) struct Quantity {
    pub(super) algorithm: AnyAlgorithm,
    pub(super) quota: Permits,
    pub(super) window: Option<Nanos>,
    pub(super) text: String,
    /// The value in the file.
    pub(super) at: Range<usize>,
    /// How it counts, for comparing two of them.
    pub(super) kind: Kind,
}

/// How a quantity counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// In windows of the given algorithm.
    Windows(Algorithm),
    /// In windows of the calendar.
    Calendar(Word),
    /// As a bucket that is refilled in steps.
    Steps { permits: Permits, per: Nanos },
    /// As a debt that is paid by time.
    Bucket {
        permits: Permits,
        per: Nanos,
        /// Whether what is over waits.
        queue: bool,
    },
}

/// What a quantity depends on besides its own fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) zone: &'a Zone,
    pub(super) origin: Origin,
    pub(super) denials: Denials,
}

/// The quantity of one `[[limit]]`; none if it is reported as missing or wrong.
pub(super) fn quantity(
    table: &DeTable<'_>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let named = algorithm(table, out);
    let queue = queue(table, out);
    if let Some(text) = read::text(table, "limit") {
        // What costs more than one takes several places of a log at once.
        let ones = !table.contains_key("cost");
        return limit(&text, ones, named, queue.as_ref(), around, out);
    }
    if let Some(written) = read::table(table, "bucket") {
        if let Some(step) = written.value.get("step")
            && step.get_ref().as_bool() == Some(true)
        {
            no_algorithm(named, "a bucket with `step`", false, out);
            return steps(&written, &step.span(), queue.as_ref(), around, out);
        }
        no_algorithm(named, "`bucket`", true, out);
        return bucket(&written, queue.as_ref(), around, out);
    }
    let text = read::text(table, "spacing")?;
    no_algorithm(named, "`spacing`", true, out);
    spacing(&text, queue.as_ref(), around, out)
}

/// Whether denials are free, as they must be for some; reported if not.
fn free(
    denials: Denials,
    (what, instead): (&str, &str),
    at: &Range<usize>,
    out: &mut Findings<'_>,
) -> bool {
    if denials == Denials::Free {
        return true;
    }
    let message = format!("`count_denied` with {what}");
    let label = "cannot count what it refuses";
    out.error(codes::ALGORITHM, at.clone(), message, label)
        .help(format!(
            "write count_denied = false in this limit, or {instead}"
        ));
    false
}

/// `limit = "N/period"`
fn limit(
    text: &At<&str>,
    ones: bool,
    named: Option<Named>,
    queue: Option<&Queue>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    if let Some((number, word)) = text.value.split_once('/')
        && let Some(word) = WORDS.iter().find(|known| known.name == word)
    {
        if let Some(queue) = queue {
            let rolling = rolling(word.name).unwrap_or_default();
            let help = format!("write limit = \"{number}/{rolling}\" and algorithm = \"gcra\"");
            queue.stray("a limit of the calendar", help, out);
        }
        return by_word(text, number, word, named, around, out);
    }
    let quota = built(text.value.parse::<Quota>(), text, Written::Limit, out)?;
    let phase = around.origin.phase(quota.per());
    let denials = around.denials;
    let windows =
        |window: Result<Window, Error>| window.map(|window| window.with_denials(denials).into());
    let (named, at, gap_at) = match named {
        None => (Algorithm::Sliding, 0..0, 0..0),
        Some(Named { value, at, gap_at }) => (value, at, gap_at),
    };
    if let Some(queue) = queue.filter(|_| named != Algorithm::Gcra) {
        let help = "write algorithm = \"gcra\", or leave `queue` out".to_owned();
        queue.stray(&format!("algorithm = \"{}\"", named.word()), help, out);
        return None;
    }
    let mut words = text.value.to_owned();
    let algorithm = match named {
        Algorithm::Sliding => windows(Window::two_window(quota, phase)),
        Algorithm::Fixed => windows(Window::fixed(quota, phase)),
        Algorithm::QuotaReset => windows(Window::quota_reset(quota)),
        Algorithm::SubBuckets { count, edge } => {
            let width = Nanos::from_nanos(quota.per().as_nanos().div_ceil(u64::from(count)));
            let phase = around.origin.phase(width);
            let window = SubBuckets::sub_buckets(quota, count, edge, phase);
            window.map(|window| window.with_denials(denials).into())
        }
        Algorithm::Gcra => {
            return paced(quota, words, (text, Written::Limit), queue, denials, out);
        }
        Algorithm::Log { gap } => {
            if gap > Nanos::ZERO {
                words = format!("{words}, {gap} apart");
            }
            log(quota, (gap, gap_at), text, ones, out)?.map(|log| log.with_denials(denials).into())
        }
        Algorithm::Hybrid => {
            if !free(denials, ("\"hybrid\"", "algorithm = \"gcra\""), &at, out) {
                return None;
            }
            Hybrid::quota_linear(quota).map(Into::into)
        }
        Algorithm::Exponential => {
            Exponential::new(quota).map(|counter| counter.with_denials(denials).into())
        }
    };
    let algorithm: AnyAlgorithm = built(algorithm, text, Written::Limit, out)?;
    Some(Quantity {
        algorithm,
        quota: quota.permits(),
        window: Some(quota.per()),
        text: words,
        at: text.at.clone(),
        kind: Kind::Windows(named),
    })
}

/// `limit = "N/day"`
fn by_word(
    text: &At<&str>,
    number: &str,
    word: &Calendar,
    named: Option<Named>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let name = word.name;
    let rolling = rolling(name).unwrap_or_default();
    let permits = built(permits(number), text, Written::Limit, out)?;
    if let Some(named) = named.filter(|named| named.value != Algorithm::Fixed) {
        let message = format!("this algorithm cannot follow the calendar (\"{name}\")");
        let label = "calendar periods are counted by \"fixed\"";
        out.error(codes::ALGORITHM, named.at, message, label)
            .help(format!(
                "remove `algorithm`, or write limit = \"{permits}/{rolling}\" for a rolling {name}"
            ));
    }
    let zone = match around.zone {
        Zone::Set(zone) => zone.clone(),
        Zone::Refused => return None,
        Zone::Unset => {
            let label = format!("\"{name}\" is a calendar {name}, but no time zone is set");
            let message = "calendar limit without a time zone";
            out.error(codes::NO_ZONE, text.at.clone(), message, label).help(format!(
                "add `timezone = \"UTC\"` at the top, or write \"{permits}/{rolling}\" for a rolling {name}"
            ));
            return None;
        }
    };
    let window = Window::calendar(permits, calendar(word.word, zone, around.origin));
    let window = built(window, text, Written::Limit, out)?.with_denials(around.denials);
    Some(Quantity {
        algorithm: window.into(),
        quota: permits,
        window: word.nominal.map(Nanos::from_secs),
        text: text.value.to_owned(),
        at: text.at.clone(),
        kind: Kind::Calendar(word.word),
    })
}

/// `bucket = { size, refill }`
fn bucket(
    table: &At<&DeTable<'_>>,
    queue: Option<&Queue>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let size = read::number(table.value, "size", u64::from(u32::MAX));
    let refill = read::text(table.value, "refill")?;
    let quota = built(refill.value.parse::<Quota>(), &refill, Written::Refill, out)?;
    let size = Permits::saturating_from(size?.value);
    let quota = built(quota.with_burst(size), &refill, Written::Refill, out)?;
    let words = format!("bucket of {size}, {}", refill.value);
    let from = (&refill, Written::Refill);
    paced(quota, words, from, queue, around.denials, out)
}

/// `bucket = { size, refill, step = true }`
fn steps(
    table: &At<&DeTable<'_>>,
    step: &Range<usize>,
    queue: Option<&Queue>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let size = read::number(table.value, "size", u64::from(u32::MAX));
    let refill = read::text(table.value, "refill")?;
    let quota = built(refill.value.parse::<Quota>(), &refill, Written::Refill, out)?;
    let size = Permits::saturating_from(size?.value);
    if let Some(queue) = queue {
        let help = "leave `step` out: the bucket then refills evenly".to_owned();
        queue.stray("a bucket with `step`", help, out);
        return None;
    }
    if !free(
        around.denials,
        ("a bucket with `step`", "leave `step` out"),
        step,
        out,
    ) {
        return None;
    }
    let (permits, per) = (quota.permits(), quota.per());
    let interval = Interval::from_first(size, permits, per);
    let interval = built(interval, &refill, Written::Refill, out)?;
    let rounds = u64::from(size.get().div_ceil(permits.get()));
    Some(Quantity {
        algorithm: interval.into(),
        quota: size,
        window: Some(Nanos::from_nanos(per.as_nanos().saturating_mul(rounds))),
        text: format!("bucket of {size}, {} in steps", refill.value),
        at: refill.at,
        kind: Kind::Steps { permits, per },
    })
}

/// `spacing = "200ms"`
fn spacing(
    text: &At<&str>,
    queue: Option<&Queue>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let gap = built(text.value.parse::<Nanos>(), text, Written::Spacing, out)?;
    let quota = built(Quota::new(Permits::ONE, gap), text, Written::Spacing, out)?;
    let words = format!("1 every {}", text.value);
    let from = (text, Written::Spacing);
    paced(quota, words, from, queue, around.denials, out)
}

/// GCRA, with its queue if there is one.
fn paced(
    quota: Quota,
    words: String,
    (text, written): (&At<&str>, Written),
    queue: Option<&Queue>,
    denials: Denials,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let gcra = built(Gcra::token_bucket(quota), text, written, out)?;
    let (gcra, words) = match queue {
        None => (gcra, words),
        Some(queue) => {
            let (gcra, places) = queue.behind(gcra, quota, out)?;
            (gcra, format!("{words}, queue of {places}"))
        }
    };
    let holds = gcra.capacity();
    Some(Quantity {
        algorithm: gcra.with_denials(denials).into(),
        quota: holds,
        window: Some(quota.time_for(holds)),
        text: words,
        at: text.at.clone(),
        kind: Kind::Bucket {
            permits: quota.permits(),
            per: quota.per(),
            queue: queue.is_some(),
        },
    })
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

/// What core has built, or a finding at the value that it refused.
fn built<T>(
    result: Result<T, Error>,
    text: &At<&str>,
    written: Written,
    out: &mut Findings<'_>,
) -> Option<T> {
    result
        .map_err(|error| refuse(error, text, written, out))
        .ok()
}
