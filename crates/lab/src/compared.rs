//! Compared: every algorithm at the same quota, side by side.
//!
//! ```text
//!   100/1m --> token bucket, leaky queue, spacing, fixed window, ... each 100 a minute
//! ```

use ratekeeper_core::{
    AnyAlgorithm, Denials, Edge, Error, Exponential, Gcra, Hybrid, Interval, Log, Nanos, Origin,
    Permits, Quota, QuotaReset, SubBuckets, WarmUp, Window,
};

/// One algorithm that can keep a quota.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Name in comparisons.
    pub name: &'static str,
    /// Builds the limit at a quota; an error if this algorithm cannot count its numbers.
    pub build: BuildLimit,
}

type BuildLimit = fn(Quota, Origin) -> Result<AnyAlgorithm, Error>;

/// Sub-buckets of a window.
const SUB_BUCKETS: u32 = 6;

/// All algorithms. A burst is the whole quota where there is one, and a queue a fifth of it;
/// storing and warming up take the span of the quota. Guava's two are asked for one permit at a
/// time, because they would grant any number at once.
pub const ALL: &[Compared] = &[
    row("token bucket", |quota, _| {
        Ok(Gcra::token_bucket(quota)?.into())
    }),
    row("leaky bucket, queue", |quota, _| {
        Ok(Gcra::leaky_queue(quota, fifth(quota))?.into())
    }),
    row("leaky bucket", |quota, _| {
        Ok(Gcra::spacing(quota.time_for(Permits::ONE))?.into())
    }),
    row("fixed window", |quota, origin| {
        Ok(Window::fixed(quota, origin.phase(quota.per()))?.into())
    }),
    row("quota reset", |quota, _| Ok(QuotaReset::new(quota)?.into())),
    row("sliding window counter", |quota, origin| {
        Ok(Window::two_window(quota, origin.phase(quota.per()))?.into())
    }),
    row("sub-buckets, full", |quota, origin| {
        sub_buckets(quota, origin, Edge::Full)
    }),
    row("sub-buckets, weighted", |quota, origin| {
        sub_buckets(quota, origin, Edge::Weighted)
    }),
    row("sub-buckets, drop", |quota, origin| {
        sub_buckets(quota, origin, Edge::Drop)
    }),
    row("interval bucket", |quota, origin| {
        let (all, per) = (quota.permits(), quota.per());
        Ok(Interval::on_grid(all, all, per, origin.phase(per))?.into())
    }),
    row("sliding window log", |quota, _| {
        Ok(Log::sliding(quota)?.into())
    }),
    row("strict sliding window log", |quota, _| {
        Ok(Log::sliding(quota)?.with_denials(Denials::Counted).into())
    }),
    row("hybrid", |quota, _| Ok(Hybrid::quota_linear(quota)?.into())),
    row(
        "exponential",
        |quota, _| Ok(Exponential::new(quota)?.into()),
    ),
    row("smooth bursty", |quota, _| {
        let bursty = WarmUp::bursty(quota.permits_per_second(), quota.per().as_secs_f64())?;
        Ok(bursty.with_largest(Permits::ONE).into())
    }),
    row("warm-up", |quota, _| {
        let warming_up = WarmUp::warming_up(quota.permits_per_second(), quota.per())?;
        Ok(warming_up.with_largest(Permits::ONE).into())
    }),
];

const fn row(name: &'static str, build: BuildLimit) -> Compared {
    Compared { name, build }
}

fn fifth(quota: Quota) -> Permits {
    Permits::new((quota.permits().get() / 5).max(1)) // down: any length would do
}

fn sub_buckets(quota: Quota, origin: Origin, edge: Edge) -> Result<AnyAlgorithm, Error> {
    let width = quota.per().as_nanos().div_ceil(u64::from(SUB_BUCKETS)); // up, as the core does
    let phase = origin.phase(Nanos::from_nanos(width));
    Ok(SubBuckets::sub_buckets(quota, SUB_BUCKETS, edge, phase)?.into())
}
