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

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Denials, Error, Exponential, Gcra, Hybrid, Interval, Nanos,
    Permits, Quota, QuotaReset, SubBuckets, Window,
};

use super::algorithm::{AlgorithmSpec, NamedAlgorithm, algorithm, no_algorithm};
use super::anchor::{AnchorSpec, anchor};
use super::balance::balance;
use super::concurrency::concurrency;
use super::dated::Dated;
use super::log::log;
use super::numbers::{Written, built};
use super::post_paid::{smooth_bursty, warming};
use super::queue::{QueueSpec, queue};
use super::{Quantity, QuantityKind, Refill, Surroundings, free};
use crate::config::diagnostic::Findings;
use crate::config::document::read::{At, Table};
use crate::config::document::scalar::rate;
use crate::config::limit::ban::with_ban;

/// Returns the quantity of one `[[limit]]`, with its ban; `None` if it is reported as missing or
/// wrong.
pub(in crate::config) fn quantity(
    table: Table<'_>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    with_ban(table, plain_quantity(table, around, out)?, out)
}

fn plain_quantity(
    table: Table<'_>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let named = algorithm(table, out);
    let queue = queue(table);
    let warming = warming(table);
    let anchor = anchor(table, out);
    if let Some(text) = table.text("limit") {
        if table.has("warmup") {
            if let Some(anchor) = anchor {
                anchor.stray(out);
            }
            return warming?.quantity(&text, around, out);
        }
        if let Some(dated) = Dated::read(text.value) {
            return calendar(
                &dated,
                &text,
                named,
                anchor.as_ref(),
                queue.as_ref(),
                around,
                out,
            );
        }
        if let Some(anchor) = anchor {
            anchor.stray(out);
            return None;
        }
        return limit(table, &text, named, queue.as_ref(), around, out);
    }
    if let Some(anchor) = anchor {
        anchor.stray(out);
    }
    if table.has("balance") {
        return balance(table, named, around, out);
    }
    if table.has("concurrency") {
        return concurrency(table, named, around, out);
    }
    if let Some(written) = table.table("bucket") {
        if let Some(step) = step(written) {
            no_algorithm(named, "a bucket with `step`", None, out);
            return steps(written, &step, queue.as_ref(), around, out);
        }
        no_algorithm(named, "`bucket`", Some(AlgorithmSpec::TokenBucket), out);
        return bucket(written, queue.as_ref(), around, out);
    }
    let text = table.text("spacing")?;
    no_algorithm(named, "`spacing`", Some(AlgorithmSpec::LeakyBucket), out);
    spacing(&text, queue.as_ref(), around, out)
}

/// `limit = "N/month"`
fn calendar(
    dated: &Dated<'_>,
    text: &At<&str>,
    named: Option<NamedAlgorithm>,
    anchor: Option<&At<AnchorSpec>>,
    queue: Option<&QueueSpec>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    if let Some(queue) = queue {
        let help = format!("write limit = \"{}\"", dated.rolling());
        queue.stray("a calendar limit", help, out);
    }
    dated.quantity(text, named, anchor, around, out)
}

/// `limit = "N/duration"`
fn limit(
    table: Table<'_>,
    text: &At<&str>,
    named: Option<NamedAlgorithm>,
    queue: Option<&QueueSpec>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let quota = built(rate(text.value), text, Written::Limit, out)?;
    let phase = around.origin.phase(quota.per());
    let denials = around.denials;
    let windows =
        |window: Result<Window, Error>| window.map(|window| window.with_denials(denials).into());
    let (named, at, duration_at) = match named {
        None => (AlgorithmSpec::TokenBucket, 0..0, 0..0),
        Some(NamedAlgorithm {
            value,
            at,
            duration_at,
        }) => (value, at, duration_at),
    };
    if let Some(queue) = queue.filter(|_| !named.is_gcra()) {
        let help = "write algorithm = \"leaky-bucket\", or leave `queue` out".to_owned();
        queue.stray(&format!("algorithm = \"{}\"", named.word()), help, out);
        return None;
    }
    let mut words = text.value.to_owned();
    let algorithm = match named {
        AlgorithmSpec::SlidingCounter => windows(Window::two_window(quota, phase)),
        AlgorithmSpec::Fixed => windows(Window::fixed(quota, phase)),
        AlgorithmSpec::QuotaReset => {
            QuotaReset::new(quota).map(|reset| reset.with_denials(denials).into())
        }
        AlgorithmSpec::SubBuckets { count, edge } => {
            let width = Nanos::from_nanos(quota.per().as_nanos().div_ceil(u64::from(count)));
            let phase = around.origin.phase(width);
            let window = SubBuckets::sub_buckets(quota, count, edge, phase);
            window.map(|window| window.with_denials(denials).into())
        }
        AlgorithmSpec::TokenBucket => {
            return paced(quota, words, text, Written::Limit, queue, denials, out);
        }
        AlgorithmSpec::LeakyBucket => {
            let one = built(quota.with_burst(Permits::ONE), text, Written::Limit, out)?;
            let paced = paced(one, words, text, Written::Limit, queue, denials, out)?;
            return Some(Quantity {
                keeps_to: Some(quota),
                ..paced
            });
        }
        AlgorithmSpec::SlidingLog { gap } => {
            if gap > Nanos::ZERO {
                words = format!("{words}, {gap} apart");
            }
            log(table, quota, gap, duration_at, text, out)?
                .map(|log| log.with_denials(denials).into())
        }
        AlgorithmSpec::Hybrid => {
            let instead = "algorithm = \"token-bucket\"";
            free(denials, "\"hybrid\"", &at, instead, out)?;
            Hybrid::quota_linear(quota).map(Into::into)
        }
        AlgorithmSpec::SmoothBursty { saves } => {
            let save_up = saves.map(|saves| At::new(saves, duration_at));
            return smooth_bursty(text, save_up, &at, around, out);
        }
        AlgorithmSpec::Exponential => {
            Exponential::new(quota).map(|counter| counter.with_denials(denials).into())
        }
    };
    let algorithm: AnyAlgorithm = built(algorithm, text, Written::Limit, out)?;
    Some(Quantity {
        window: Some(quota.per()),
        keeps_to: Some(quota),
        kind: QuantityKind::Windows(named),
        ..Quantity::new(algorithm, quota.permits(), words, text.at.clone())
    })
}

/// `bucket = { size, refill }`
fn bucket(
    table: Table<'_>,
    queue: Option<&QueueSpec>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let (size, refill, quota) = size_and_refill(table, out)?;
    let quota = built(quota.with_burst(size), &refill, Written::Refill, out)?;
    let words = format!("bucket of {size}, {}", refill.value);
    paced(
        quota,
        words,
        &refill,
        Written::Refill,
        queue,
        around.denials,
        out,
    )
}

/// Returns the moments that `step` names, if it asks for steps.
fn step(bucket: Table<'_>) -> Option<At<StepFrom>> {
    let written = bucket.get("step")?;
    let value = written.get_ref();
    let step = match (value.as_bool(), value.as_str()) {
        (Some(true), _) | (_, Some("first")) => StepFrom::First,
        (_, Some("clock")) => StepFrom::Clock,
        _ => return None, // absent or false, or reported as an unknown value
    };
    Some(At::new(step, written.span()))
}

/// Moment from which the periods of whole refills are counted.
#[derive(Clone, Copy)]
enum StepFrom {
    /// The first take from a full bucket.
    First,
    /// 1970 in UTC: an hour's refill comes at each full hour.
    Clock,
}

/// `bucket = { size, refill, step = .. }`
fn steps(
    table: Table<'_>,
    step: &At<StepFrom>,
    queue: Option<&QueueSpec>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let (size, refill, quota) = size_and_refill(table, out)?;
    if let Some(queue) = queue {
        let help = "leave `step` out: the bucket then refills evenly".to_owned();
        queue.stray("a bucket with `step`", help, out);
        return None;
    }
    let (what, instead) = ("a bucket with `step`", "leave `step` out");
    free(around.denials, what, &step.at, instead, out)?;
    let (permits, per) = (quota.permits(), quota.per());
    let (interval, moments) = match step.value {
        StepFrom::First => (Interval::from_first(size, permits, per), "in steps"),
        StepFrom::Clock => {
            let phase = around.origin.phase(per);
            let interval = Interval::on_grid(size, permits, per, phase);
            (interval, "in steps of the clock")
        }
    };
    let interval = built(interval, &refill, Written::Refill, out)?;
    let rounds = size.get().div_ceil(permits.get());
    let window = Nanos::from_nanos(per.as_nanos().saturating_mul(rounds));
    let words = format!("bucket of {size}, {} {moments}", refill.value);
    Some(Quantity {
        window: Some(window),
        keeps_to: Quota::new(size, window).ok(),
        ..Quantity::new(interval.into(), size, words, refill.at)
    })
}

/// Reads the fields of every bucket: its size, and the refill as written and as parsed.
fn size_and_refill<'a>(
    table: Table<'a>,
    out: &mut Findings<'_>,
) -> Option<(Permits, At<&'a str>, Quota)> {
    let size = table.number("size");
    let refill = table.text("refill")?;
    let quota = built(rate(refill.value), &refill, Written::Refill, out)?;
    Some((Permits::new(size?.value), refill, quota))
}

/// `spacing = "200ms"`
fn spacing(
    text: &At<&str>,
    queue: Option<&QueueSpec>,
    around: Surroundings<'_>,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let gap: Nanos = text.value.parse().ok()?;
    let quota = built(Quota::new(Permits::ONE, gap), text, Written::Spacing, out)?;
    let words = format!("1 every {}", text.value);
    paced(
        quota,
        words,
        text,
        Written::Spacing,
        queue,
        around.denials,
        out,
    )
}

/// Returns GCRA, with its queue if there is one.
fn paced(
    quota: Quota,
    words: String,
    text: &At<&str>,
    written: Written,
    queue: Option<&QueueSpec>,
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
    let window = quota.time_for(holds);
    let algorithm = gcra.with_denials(denials).into();
    Some(Quantity {
        window: Some(window),
        keeps_to: Quota::new(holds, window).ok(),
        kind: QuantityKind::Bucket(Refill {
            permits: quota.permits(),
            per: quota.per(),
            queue: queue.is_some(),
        }),
        ..Quantity::new(algorithm, holds, words, text.at.clone())
    })
}
