//! Post-paid: warm-up and smooth bursty, with the arithmetic behind each refusal.
//!
//! ```text
//!   limit = "100/1s"    warmup = { period = "10s", cold_factor = 3 }
//!
//!   T = 1s / 100 = 10 ms a permit, 30 ms when cold; from cold to warm it takes 10 s, in
//!   which 2 x 10s / (10ms + 3 x 10ms) = 500 permits are granted
//! ```
//!
//! A request may cost as much as the number in `limit`, so that there is a bound: the wait of the
//! next request pays its cost.

use ratekeeper_core::{AnyAlgorithm, Denials, Error, Nanos, Permits, Quota, WarmUp};

use super::dated::Dated;
use super::numbers::{Written, built};
use super::{Quantity, free};
use crate::config::{At, Spot, Table, Text, codes, error, rate};

/// Maximum rate: prices are cut to whole microseconds, by up to three a request, which at this
/// many permits a second is three quarters of the price of a permit.
const MAX_PER_SECOND: u32 = 250_000;
/// The factor that Guava fixes.
const COLD_FACTOR: u32 = 3;

/// Reads `warmup = { period, cold_factor }` beside `limit`; `None` if the values make no sense, which
/// is reported. A warm-up shorter than a permit is accepted, too: the first permit after a rest is
/// dearer because of it, as in Guava.
pub(super) fn warm_up(table: Table<'_>, text: &Text<'_>, denials: Denials) -> Option<Quantity> {
    let period = table.span("period")?;
    let factor = table.number_or("cold_factor", COLD_FACTOR)?;
    if let Some(dated) = Dated::read(text.value) {
        let label = "only a `limit` with a duration warms up";
        let message = "`warmup` cannot be combined with a calendar limit";
        error(codes::ALGORITHM, table.at(), message, label)
            .help(format!("write limit = \"{}\"", dated.rolling()));
        return None;
    }
    let quota = quota(text, "`warmup`", table.at(), denials)?;
    if factor == 1 {
        let warm = quota.time_for(Permits::ONE);
        let message = "a `cold_factor` of 1 leaves nothing to warm up";
        let label = format!("each permit takes {warm}, and none is saved for a burst");
        let at = table.place("cold_factor");
        error(codes::PARAMETERS, at, message, label).help(format!(
            "write cold_factor = 3, or spacing = \"{warm}\" for this even pace"
        ));
        return None;
    }
    let rate = quota.permits_per_second();
    let limiter = WarmUp::with_cold_factor(rate, period, f64::from(factor));
    let words = format!(
        "{} when warm, {factor} x slower when cold, warm in {period}",
        text.value
    );
    post_paid(limiter, quota, words, text)
}

/// Reads `algorithm = "smooth-bursty"`, which saves up permits for `save_up`, else for the period
/// of the limit.
pub(super) fn smooth_bursty(
    text: &Text<'_>,
    save_up: Option<At<'_, Nanos>>,
    at: Spot<'_>,
    denials: Denials,
) -> Option<Quantity> {
    let quota = quota(text, "\"smooth-bursty\"", at, denials)?;
    let saves = save_up.as_ref().map_or(quota.per(), |it| it.value);
    let interval = quota.time_for(Permits::ONE);
    if let Some(save_up) = save_up.filter(|_| saves < interval) {
        let message = format!("no permit is saved up in {saves}");
        let label = format!("a permit comes every {interval}: {saves} / {interval} = 0 permits");
        error(codes::PARAMETERS, save_up.at, message, label)
            .related(text.at)
            .help(format!(
                "write save_up = \"{interval}\" or more, or algorithm = \"token-bucket\""
            ));
        return None;
    }
    let limiter = WarmUp::bursty(quota.permits_per_second(), saves.as_secs_f64());
    let words = format!("{}, {saves} saved up", text.value);
    post_paid(limiter, quota, words, text)
}

/// Returns the quota of a post-paid limit; `None` if its prices would be lost in rounding, or if
/// it is to count denials.
fn quota(text: &Text<'_>, what: &str, at: Spot<'_>, denials: Denials) -> Option<Quota> {
    let quota = built(rate(text.value), text, Written::Limit)?;
    let instead = "algorithm = \"token-bucket\"";
    free(denials, what, at, instead)?;
    if quota.permits_per_second() > f64::from(MAX_PER_SECOND) {
        let message = format!("\"{}\" is too fast for {what}", text.value);
        let interval = quota.time_for(Permits::ONE);
        let label = format!(
            "prices are rounded down to microseconds, by up to 3us a request, and a permit costs \
             {interval}"
        );
        error(codes::NOT_COUNTABLE, text.at, message, label).help(format!(
            "write at most \"{MAX_PER_SECOND}/1s\", or algorithm = \"token-bucket\""
        ));
        return None;
    }
    Some(quota)
}

fn post_paid(
    limiter: Result<WarmUp, Error>,
    quota: Quota,
    words: String,
    text: &Text<'_>,
) -> Option<Quantity> {
    let limiter = built(limiter, text, Written::Limit)?;
    let algorithm = AnyAlgorithm::from(limiter.with_largest(quota.permits()));
    Some(Quantity {
        window: Some(quota.per()),
        keeps_to: Some(quota),
        ..Quantity::new(algorithm, quota.permits(), words)
    })
}
