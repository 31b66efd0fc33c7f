//! Choose: `--choose`, one limit with other numbers, and the smallest that touches few clients.
//!
//! ```text
//!   clients hit
//!   |*
//!   | *
//!   |  *  knee
//!   |    * *  99.9 % untouched
//!   +----------*----*------ number (64 at once, then more between the best two)
//! ```

use std::collections::BTreeMap;

use ratekeeper_core::{Nanos, Permits, Quota};
use ratekeeper_policy::{Policy, Rule, RuleMode, Rules, Unit};
use ratekeeper_replay::ORIGIN;
use ratekeeper_replay::report::ReplayReport;
use serde_json::{Value, json};

use super::session::{LogSession, decide};
use super::table::TextTable;
use super::text::{share, write_log};
use crate::output::{GOOD, paint};
use crate::source::PolicySource;
use crate::{Failure, Output, Result, limits, words};

/// Numbers that are tried in one pass over the log.
const AT_ONCE: u32 = 64;
/// Share of clients that a number may hit to be proposed: 0.1 %.
const SHARE: f64 = 0.001;
/// Shares of clients that are hit, which the curve marks.
const MARKS: [(&str, f64); 4] = [
    ("99 % of clients untouched", 0.01),
    ("99.9 % of clients untouched", SHARE),
    ("99.99 % of clients untouched", 0.000_1),
    ("all clients untouched", 0.0),
];
/// Rows of the curve on a terminal, besides those that are marked.
const ROWS: usize = 12;

/// The results of each number that was tried.
pub(crate) struct Choice {
    pub(crate) limit: String,
    /// The limit in the policy's words, from which only the number differs.
    text: String,
    number: u64,
    window: Option<Nanos>,
    unit: Option<Unit>,
    /// Requests refused and clients hit, by number.
    pub(crate) points: BTreeMap<u64, (u64, u64)>,
    requests: u64,
    clients: u64,
    /// True if plans or overrides set the numbers of some keys.
    has_variants: bool,
    /// False if the log could not be read again, so that a smaller number may do.
    is_exact: bool,
    /// The log by the first number of the last pass.
    report: Option<ReplayReport>,
}

/// Returns the policy with one rule changed and enforced, and all other limits off.
pub(crate) fn alone(policy: &Policy, limit: &str, change: impl Fn(&mut Rule)) -> Policy {
    let mut rules = policy.rules.to_vec();
    let own = format!("{limit}+");
    for rule in &mut rules {
        if *rule.limit.name == *limit {
            change(rule);
            (rule.mode, rule.percent, rule.on_limit) = (RuleMode::Enforce, None, None);
        } else if !rule.limit.name.starts_with(&own) {
            rule.mode = RuleMode::Off;
        }
    }
    let mut policy = policy.clone();
    policy.rules = Rules::new(rules);
    policy
}

/// Returns the number of a limit and its period, as they are written: a leaky bucket holds fewer
/// requests, in less time, and one with a queue more.
pub(super) fn number_of(rule: &Rule) -> (Permits, Option<Nanos>) {
    let written = rule.text.split([',', ' ']).next();
    let written: Option<Quota> = written.and_then(|quota| quota.parse().ok());
    let written = written.or(rule.keeps_to);
    let written = written.map(|quota| (quota.permits(), Some(quota.per())));
    written.unwrap_or((rule.quota, rule.window))
}

/// Returns the policy with another number of a limit: in its text, so that bursts and calendars
/// stay, or in its quota. `None` if the limit cannot have it.
fn with_number(source: &PolicySource, policy: &Policy, rule: &Rule, number: u64) -> Option<Policy> {
    let limit = &*rule.limit.name;
    let start = source
        .text
        .split_inclusive('\n')
        .take(rule.line.saturating_sub(1));
    let (before, after) = source.text.split_at(start.map(str::len).sum());
    let (own, _) = after.split_once("\n[[").unwrap_or((after, ""));
    // The `anchor`, a queue, a gap and a warm-up are other fields.
    let ends = [" from ", ", ", " when "];
    let text = ends.iter().fold(&*rule.text, |text, end| {
        text.split_once(end).map_or(text, |(before, _)| before)
    });
    // A plan or a candidate may have the same text, in quotes of any kind: another place changes
    // another number.
    for (at, _) in own.match_indices(text) {
        let rest = after[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        let source = PolicySource {
            text: format!("{before}{}{number}{rest}", &after[..at]),
            ..source.clone()
        };
        let policy = source.parse(ORIGIN).ok()?.policy;
        if policy
            .rule(limit)
            .is_some_and(|rule| number_of(rule).0.get() == number)
        {
            return Some(alone(&policy, limit, |_| {}));
        }
    }
    rule.keeps_to.filter(|_| rule.is_of_quota(ORIGIN))?; // a quota has no calendar
    let quota = Quota::new(Permits::new(number), rule.window?).ok()?;
    let algorithm = rule.limit.algorithm.with_quota(quota, ORIGIN).ok()?;
    Some(alone(policy, limit, |rule| {
        rule.limit.algorithm = algorithm.clone();
    }))
}

/// Tries numbers for a limit, and reads the log again until the smallest is found exactly.
pub(crate) fn choose(
    source: &PolicySource,
    policy: &Policy,
    limit: &str,
    session: &LogSession<'_>,
    output: &mut Output,
) -> Result<Choice> {
    let rule = limits::named(policy, limit)?;
    let (number, window) = number_of(rule);
    let mut choice = Choice {
        limit: limit.into(),
        text: rule.text.clone(),
        number: number.get(),
        window,
        unit: rule.unit.clone(),
        points: BTreeMap::new(),
        requests: 0,
        clients: 0,
        has_variants: !rule.variants.is_empty(),
        is_exact: false,
        report: None,
    };
    let mut numbers = first_numbers(choice.number);
    while !numbers.is_empty() {
        let tried = |number| Some((number, with_number(source, policy, rule, number)?));
        let tried = numbers.into_iter().filter_map(tried);
        let (tried, policies): (Vec<u64>, Vec<Policy>) = tried.unzip();
        if tried.is_empty() {
            break;
        }
        let (log, replays) = session.read(policies, output, decide)?;
        let first = &replays[0];
        choice.report = Some(session.report(&log, first));
        (choice.requests, choice.clients) = (first.decided(), first.clients().0);
        let counts = replays.iter().map(|it| (it.refused(), it.clients().1));
        choice.points.extend(tried.into_iter().zip(counts));
        numbers = choice.next_numbers();
        choice.is_exact = numbers.is_empty();
        if !session.is_repeatable() {
            break;
        }
    }
    if choice.points.is_empty() {
        return Err(Failure::new(format!(
            "limit `{limit}` ({}) has no number of requests in a period, so no other can be tried",
            rule.text
        )));
    }
    Ok(choice)
}

/// Returns the numbers to try first: from a 64th of `number` to 64 times it, in equal ratios.
fn first_numbers(number: u64) -> Vec<u64> {
    let steps = (0..AT_ONCE - 1).map(|step| {
        let exponent = (f64::from(step) - 31.0) * 12.0 / 62.0;
        (number as f64 * exponent.exp2()).round().max(1.0) as u64
    });
    let mut numbers: Vec<u64> = steps.chain([number]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

impl Choice {
    /// Returns the least number that was tried under which at most this share of the clients is
    /// hit, and under each larger one.
    fn least(&self, share: f64) -> Option<u64> {
        let most = share * self.clients as f64;
        let larger = self.points.iter().rev();
        let good = larger.take_while(|(_, (_, hit))| *hit as f64 <= most);
        good.last().map(|(number, _)| *number)
    }

    /// Returns further numbers to try, so that the least is found exactly; empty if it is.
    fn next_numbers(&self) -> Vec<u64> {
        let Some(high) = self.least(SHARE) else {
            let last = self.points.last_key_value().map_or(1, |(last, _)| *last);
            let doubled = (1..=16).map(|step| last.saturating_mul(1 << step));
            return doubled
                .filter(|number| *number <= Quota::MAX_PERMITS)
                .collect();
        };
        let below = self.points.range(..high).next_back();
        let low = below.map_or(0, |(number, _)| *number);
        let between = high - low - 1;
        let steps = between.min(u64::from(AT_ONCE) - 1);
        (1..=steps)
            .map(|step| low + (between + 1) * step / (steps + 1))
            .collect()
    }

    /// Returns the number at the knee: where the curve of clients hit, over the logarithm of the
    /// number, is farthest below the line between its ends.
    fn knee(&self) -> Option<u64> {
        let (first, (_, highest)) = self.points.first_key_value()?;
        let (last, (_, lowest)) = self.points.last_key_value()?;
        let x = |number: u64| (number as f64 / *first as f64).ln();
        let above = |hit: u64| hit as f64 - *lowest as f64;
        let (width, drop) = (x(*last), above(*highest));
        if width <= 0.0 || drop <= 0.0 {
            return None;
        }
        let points = self.points.iter();
        let depths = points
            .map(|(number, (_, hit))| (1.0 - x(*number) / width - above(*hit) / drop, *number));
        let deepest = depths.max_by(|(a, _), (b, _)| a.total_cmp(b));
        deepest.map(|(_, number)| number)
    }

    pub(crate) fn json(&self) -> Value {
        let points = self.points.iter().map(|(number, (refused, hit))| {
            json!({"number": number, "refused": refused, "clients_hit": hit})
        });
        let report = self.report.as_ref();
        json!({
            "lines": report.map(|report| report.lines),
            "skipped": report.map(|report| report.skipped),
            "notes": report.map(|report| &report.notes),
            "limit": self.limit,
            "text": self.text,
            "requests": self.requests,
            "clients": self.clients,
            "smallest_for_0_1_percent": self.least(SHARE),
            "exact": self.is_exact,
            "knee": self.knee(),
            "points": points.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn sentence(&self) -> String {
        let others = if self.has_variants {
            "; keys with a plan or an override keep the numbers of those"
        } else {
            ""
        };
        let Some(least) = self.least(SHARE) else {
            return format!(
                "each number that was tried touches more than 0.1 % of clients{others}"
            );
        };
        let tried = if self.is_exact {
            ""
        } else {
            "of those tried, "
        };
        format!(
            "{tried}{} is the smallest number that touches at most 0.1 % of clients: {} of {}{others}",
            self.with(least),
            words::count(self.points[&least].1),
            words::count(self.clients),
        )
    }

    /// Returns the limit with another number: in the policy's words if they begin with the number, else
    /// as the quota that was tried.
    fn with(&self, number: u64) -> String {
        let shown = |number: u64| match &self.unit {
            Some(unit) => unit.show(number).to_string(),
            None => number.to_string(),
        };
        let rest = self.text.strip_prefix(&shown(self.number));
        if let Some(rest) = rest.filter(|rest| rest.starts_with('/')) {
            return shown(number) + rest;
        }
        let window = self.window.unwrap_or(Nanos::MAX);
        let quota = Quota::new(Permits::new(number), window);
        quota.map_or_else(|_| number.to_string(), |quota| quota.to_string())
    }

    pub(crate) fn write(&self, output: &mut Output) -> Result<()> {
        if let Some(report) = &self.report {
            write_log(report, output)?;
        }
        let [requests, clients] = [self.requests, self.clients].map(words::count);
        output.line(format!(
            "{} {}: {requests} requests, {clients} clients",
            self.limit, self.text
        ))?;
        self.table().write(output)?;
        output.line(paint(GOOD, &self.sentence()))
    }

    /// Returns the marked points, and some between them.
    pub(crate) fn table(&self) -> TextTable {
        let every = self.points.len().div_ceil(ROWS).max(1);
        let marks = [("the policy", Some(self.number)), ("knee", self.knee())];
        let untouched = MARKS
            .iter()
            .map(|(name, share)| (*name, self.least(*share)));
        let marks: Vec<(&str, Option<u64>)> = marks.into_iter().chain(untouched).collect();
        let points = self.points.iter().enumerate();
        let rows = points.filter_map(|(index, (number, counts))| {
            let marks = marks.iter().filter(|(_, marked)| *marked == Some(*number));
            let marks: Vec<&str> = marks.map(|(name, _)| *name).collect();
            (!marks.is_empty() || index.is_multiple_of(every)).then(|| {
                vec![
                    words::count(*number),
                    share(counts.0, self.requests),
                    share(counts.1, self.clients),
                    marks.join(", "),
                ]
            })
        });
        TextTable::new(&["number", "refused", "clients hit", "mark"], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(hits: impl IntoIterator<Item = (u64, u64)>) -> Choice {
        Choice {
            limit: "per-ip".into(),
            text: "10/1m".into(),
            number: 10,
            window: Some(Nanos::from_secs(60)),
            unit: None,
            points: hits
                .into_iter()
                .map(|(number, hit)| (number, (hit, hit)))
                .collect(),
            requests: 10_000,
            clients: 1_000,
            has_variants: false,
            is_exact: true,
            report: None,
        }
    }

    #[test]
    fn the_smallest_number_is_shown_as_a_limit() {
        for (text, shown) in [
            ("10/1m", "7/1m is"),
            ("10/day", "7/day is"),
            ("10/1m burst 20", "7/1m burst 20 is"),
            ("bucket of 10, 10/1m", "7/1m is"),
            ("10 MB/1m", "7/1m is"),
        ] {
            let choice = Choice {
                text: text.into(),
                ..choice([(6, 2), (7, 1)])
            };
            let sentence = choice.sentence();
            assert!(sentence.starts_with(shown), "{text}: {sentence}");
        }
    }

    #[test]
    fn numbers_are_tried_until_the_smallest_is_exact() {
        // The least number that hits at most one client is 537.
        let hit = |number: u64| if number >= 537 { 1 } else { 2 + (537 - number) };
        let mut choice = choice([]);
        let (mut next, mut passes) = (first_numbers(10), 0);
        while !next.is_empty() {
            assert!(next.len() <= AT_ONCE as usize);
            let tried = next
                .iter()
                .map(|number| (*number, (hit(*number), hit(*number))));
            choice.points.extend(tried);
            next = choice.next_numbers();
            passes += 1;
        }
        assert_eq!((choice.least(SHARE), passes), (Some(537), 2));
    }

    #[test]
    fn the_knee_is_where_the_curve_bends() {
        let bent = choice([(1, 500), (10, 20), (100, 10), (1_000, 0)]);
        assert_eq!(bent.knee(), Some(10));
        assert_eq!(choice([(1, 5), (10, 5)]).knee(), None);
    }
}
