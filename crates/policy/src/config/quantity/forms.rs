//! Forms: how a quantity is written, from `limit`, `bucket` or `spacing` to an algorithm.
//!
//! ```text
//!   limit = "N/duration"   token-bucket (default), leaky-bucket, fixed-window,
//!                          sliding-window-counter, sliding-window-log, sub-buckets,
//!                          quota-reset, hybrid, exponential, smooth-bursty
//!   warmup = { .. }        beside such a limit: a rested key is served slowly at first
//!   limit = "N/word"       fixed windows of the calendar, in the policy's time zone
//!   anchor = ..            beside such a limit: the day on which they begin
//!   bucket = { .. }        GCRA with a burst; with `step`, refills in whole amounts
//!   spacing = ".."         GCRA with a burst of one
//!   concurrency = { .. }   permits on loan, which come back
//!   balance = { .. }       prepaid credits, which do not refill
//!   queue = { .. }         beside GCRA: excess requests wait their turn
//! ```

use ratekeeper_core::algorithms::log::MAX_PERMITS;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Edge, Error, Exponential, Gcra, Hybrid, Interval, Log, Nanos,
    Permits, Quota, QuotaReset, SubBuckets, Window,
};

use super::algorithm::{algorithm, no_algorithm};
use super::anchor::anchor;
use super::balance::balance;
use super::concurrency::concurrency;
use super::dated::Dated;
use super::numbers::{Written, built};
use super::post_paid::{smooth_bursty, warm_up};
use super::queue::{behind, queue, stray};
use super::{Quantity, QuantityKind, Refill, Surroundings, free};
use crate::config::limit::ban::with_ban;
use crate::config::{At, Spot, Table, Text, codes, error, rate};

/// Sub-buckets of `algorithm = "sub-buckets"`.
const DEFAULT_SUB_BUCKETS: u32 = 6;
/// Bytes that a log keeps for a permit.
const BYTES: u64 = 8;

/// Returns the quantity of one `[[limit]]`, with its ban; `None` if it is reported as missing or
/// wrong.
pub(crate) fn quantity(table: Table<'_>, around: Surroundings<'_>) -> Option<Quantity> {
    let reader = QuantityReader {
        table,
        queue: queue(table),
        around,
    };
    let quantity = reader.read()?;
    with_ban(table, quantity)
}

/// A limit whose quantity is read, with what all forms of a quantity look at.
struct QuantityReader<'a> {
    table: Table<'a>,
    queue: Option<Table<'a>>,
    around: Surroundings<'a>,
}

impl QuantityReader<'_> {
    fn read(&self) -> Option<Quantity> {
        let (table, around) = (self.table, self.around);
        let named = algorithm(table);
        let anchor = anchor(table);
        let text = table.text("limit");
        if let Some(text) = text.as_ref().filter(|_| !table.has("warmup"))
            && let Some(dated) = Dated::read(text.value)
        {
            if let Some(queue) = self.queue {
                let help = format!("write limit = \"{}\"", dated.rolling());
                stray(queue, "a calendar limit", &help);
            }
            return dated.quantity(text, named, anchor.as_ref(), around);
        }
        if let Some(anchor) = &anchor {
            anchor.stray();
        }
        if let Some(text) = text {
            if table.has("warmup") {
                return warm_up(table.table("warmup")?, &text, around.denials);
            }
            return anchor.is_none().then(|| self.limit(&text, named))?;
        }
        if let Some(fields) = table.table("balance") {
            no_algorithm(named, "`balance`", None);
            return balance(table, fields, around.denials);
        }
        if table.has("concurrency") {
            no_algorithm(named, "`concurrency`", None);
            return concurrency(table, around.denials);
        }
        if let Some(written) = table.table("bucket") {
            let step = step(written);
            let (what, own) = match step {
                Some(_) => ("a bucket with `step`", None),
                None => ("`bucket`", Some("token-bucket")),
            };
            no_algorithm(named, what, own);
            return self.bucket(written, step);
        }
        let text = table.text("spacing")?;
        no_algorithm(named, "`spacing`", Some("leaky-bucket"));
        self.spacing(&text)
    }

    /// `limit = "N/duration"`
    fn limit(&self, text: &Text<'_>, named: Option<At<'_, &'static str>>) -> Option<Quantity> {
        let quota = built(rate(text.value), text, Written::Limit)?;
        let phase = self.around.origin.phase(quota.per());
        let denials = self.around.denials;
        let windows = |window: Result<Window, Error>| {
            window.map(|window| window.with_denials(denials).into())
        };
        let At { value: word, at } = named.unwrap_or(At::new("token-bucket", self.table.at()));
        let fields = self.table.table("algorithm");
        let place = |field| fields.map_or(self.table.at(), |fields| fields.place(field));
        let span = |field| fields.and_then(|fields| fields.span(field));
        let is_paced = matches!(word, "token-bucket" | "leaky-bucket");
        if let Some(queue) = self.queue.filter(|_| !is_paced) {
            let help = "write algorithm = \"leaky-bucket\", or leave `queue` out";
            stray(queue, &format!("algorithm = \"{word}\""), help);
            return None;
        }
        let written = Written::Limit;
        let mut words = text.value.to_owned();
        let gap = span("min_gap").unwrap_or(Nanos::ZERO);
        let kind = match word {
            "fixed-window" | "sliding-window-counter" | "sliding-window-log" => {
                QuantityKind::Windows(word, gap)
            }
            _ => QuantityKind::Other,
        };
        let algorithm = match word {
            "leaky-bucket" => {
                let one = built(quota.with_burst(Permits::ONE), text, written)?;
                let paced = self.paced(one, words, text, written)?;
                let keeps_to = Some(quota);
                return Some(Quantity { keeps_to, ..paced });
            }
            "fixed-window" => windows(Window::fixed(quota, phase)),
            "sliding-window-counter" => windows(Window::two_window(quota, phase)),
            "sliding-window-log" => {
                if gap > Nanos::ZERO {
                    words = format!("{words}, {gap} apart");
                }
                log(self.table, quota, gap, place("min_gap"), text)?
                    .map(|log| log.with_denials(denials).into())
            }
            "sub-buckets" => sub_buckets(fields, quota, self.around)
                .map(|window| window.with_denials(denials).into()),
            "quota-reset" => QuotaReset::new(quota).map(|reset| reset.with_denials(denials).into()),
            "hybrid" => {
                let instead = "algorithm = \"token-bucket\"";
                free(denials, "\"hybrid\"", at, instead)?;
                Hybrid::quota_linear(quota).map(Into::into)
            }
            "exponential" => {
                Exponential::new(quota).map(|counter| counter.with_denials(denials).into())
            }
            "smooth-bursty" => {
                let save_up = span("save_up").map(|saves| At::new(saves, place("save_up")));
                return smooth_bursty(text, save_up, at, denials);
            }
            _ => return self.paced(quota, words, text, written), // a token bucket
        };
        let algorithm: AnyAlgorithm = built(algorithm, text, written)?;
        Some(Quantity {
            window: Some(quota.per()),
            keeps_to: Some(quota),
            kind,
            ..Quantity::new(algorithm, quota.permits(), words)
        })
    }

    /// `bucket = { size, refill }`, with `step` or without.
    fn bucket(&self, bucket: Table<'_>, step: Option<&str>) -> Option<Quantity> {
        let size = bucket.number("size");
        let (text, written) = (&bucket.text("refill")?, Written::Refill);
        let quota = built(rate(text.value), text, written)?;
        let size = Permits::new(size?);
        let words = format!("bucket of {size}, {}", text.value);
        let Some(step) = step else {
            let quota = built(quota.with_burst(size), text, written)?;
            return self.paced(quota, words, text, written);
        };
        if let Some(queue) = self.queue {
            let help = "leave `step` out: the bucket then refills evenly";
            stray(queue, "a bucket with `step`", help);
            return None;
        }
        let (what, instead) = ("a bucket with `step`", "leave `step` out");
        let at = bucket.place("step");
        free(self.around.denials, what, at, instead)?;
        let (permits, per) = (quota.permits(), quota.per());
        let phase = self.around.origin.phase(per);
        let (interval, moments) = match step {
            "clock" => (
                Interval::on_grid(size, permits, per, phase),
                "in steps of the clock",
            ),
            _ => (Interval::from_first(size, permits, per), "in steps"),
        };
        let interval = built(interval, text, written)?;
        let rounds = size.get().div_ceil(permits.get());
        let window = Nanos::from_nanos(per.as_nanos().saturating_mul(rounds));
        let words = format!("{words} {moments}");
        Some(Quantity {
            window: Some(window),
            keeps_to: Quota::new(size, window).ok(),
            ..Quantity::new(interval.into(), size, words)
        })
    }

    /// `spacing = "200ms"`
    fn spacing(&self, text: &Text<'_>) -> Option<Quantity> {
        let gap: Nanos = text.value.parse().ok()?;
        let written = Written::Spacing;
        let quota = built(Quota::new(Permits::ONE, gap), text, written)?;
        let words = format!("1 every {}", text.value);
        self.paced(quota, words, text, written)
    }

    /// Returns GCRA, with its queue if there is one.
    fn paced(
        &self,
        quota: Quota,
        words: String,
        text: &Text<'_>,
        written: Written,
    ) -> Option<Quantity> {
        let gcra = built(Gcra::token_bucket(quota), text, written)?;
        let (gcra, words) = match self.queue {
            None => (gcra, words),
            Some(queue) => {
                let (gcra, places) = behind(queue, gcra, quota)?;
                (gcra, format!("{words}, queue of {places}"))
            }
        };
        let holds = gcra.capacity();
        let window = quota.time_for(holds);
        let algorithm = gcra.with_denials(self.around.denials).into();
        Some(Quantity {
            window: Some(window),
            keeps_to: Quota::new(holds, window).ok(),
            kind: QuantityKind::Bucket(Refill {
                permits: quota.permits(),
                per: quota.per(),
                queue: self.queue.is_some(),
            }),
            ..Quantity::new(algorithm, holds, words)
        })
    }
}

/// Reads `count` and `edge` of sub-buckets.
fn sub_buckets(
    fields: Option<Table<'_>>,
    quota: Quota,
    around: Surroundings<'_>,
) -> Result<SubBuckets, Error> {
    let count = fields.and_then(|fields| fields.number("count"));
    let count = count.unwrap_or(DEFAULT_SUB_BUCKETS);
    let edge = match fields.and_then(|fields| fields.owned("edge")) {
        Some("weighted") => Edge::Weighted,
        Some("drop") => Edge::Drop,
        _ => Edge::Full,
    };
    let width = Nanos::from_nanos(quota.per().as_nanos().div_ceil(u64::from(count)));
    SubBuckets::sub_buckets(quota, count, edge, around.origin.phase(width))
}

/// Returns the log of a quota and a gap; `None` if they make no sense, which is reported.
fn log(
    table: Table<'_>,
    quota: Quota,
    gap: Nanos,
    gap_at: Spot<'_>,
    text: &Text<'_>,
) -> Option<Result<Log, Error>> {
    let (permits, per) = (quota.permits().get(), quota.per());
    if permits > u64::from(MAX_PERMITS) {
        let (bytes, most) = (permits * BYTES, u64::from(MAX_PERMITS) * BYTES);
        let message = format!("a log of {permits} requests is too long");
        let label =
            format!("{permits} x {BYTES} bytes = {bytes} for each key; the maximum is {most}");
        error(codes::NOT_COUNTABLE, text.at, message, label).help(
            "write algorithm = { name = \"sub-buckets\", count = 60, edge = \"full\" }, which \
                    gives the same guarantee in 520 bytes",
        );
        return None;
    }
    let apart = u128::from(gap.as_nanos()) * u128::from(permits);
    // A request that costs more than one takes several places of a log at once.
    if !table.has("cost") && apart > u128::from(per.as_nanos()) {
        let whole = u64::try_from(apart).map_or_else(
            |_| "more than 584 years".to_owned(),
            |nanos| Nanos::from_nanos(nanos).to_string(),
        );
        let message = format!("{permits} requests with this `min_gap` do not fit into {per}");
        let label = format!("{permits} x {gap} = {whole}, longer than {per}");
        let fits = Nanos::from_nanos(per.as_nanos() / permits);
        let help = match fits {
            Nanos::ZERO => format!("write spacing = \"{gap}\" instead"),
            fits => format!(
                "write min_gap = \"{fits}\" or less, or spacing = \"{gap}\" instead of the limit"
            ),
        };
        error(codes::PARAMETERS, gap_at, message, label)
            .related(text.at)
            .help(help);
        return None;
    }
    Some(Log::sliding(quota).and_then(|log| log.with_gap(gap)))
}

/// Returns the moments from which the periods of whole refills are counted: the "first" take from a
/// full bucket, or the "clock", whose hours begin at each full hour in UTC.
fn step(bucket: Table<'_>) -> Option<&'static str> {
    match (bucket.flag("step"), bucket.owned("step")) {
        (Some(true), _) | (_, Some("first")) => Some("first"),
        (_, Some("clock")) => Some("clock"),
        _ => None, // absent or false, or reported as an unknown value
    }
}
