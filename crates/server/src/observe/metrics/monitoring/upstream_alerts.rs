//! Upstream alerts: those of the application behind the gateway.

use super::super::table::{
    UPSTREAM_ATTEMPTS, UPSTREAM_ERRORS, UPSTREAM_RESPONSES, UPSTREAM_TIME, UPSTREAM_UP,
};
use super::alert::{Alert, Severity};
use super::{quantile, rate};

use Severity::{Critical, Warning};

/// They go by shares, so that a rare request counts too.
pub(super) fn all() -> Vec<Alert> {
    let by_route = |series: String| rate("job, route", series, "[5m]");
    let answered = by_route(UPSTREAM_RESPONSES.to_string());
    let wrong = by_route(UPSTREAM_RESPONSES.with(r#"class="5xx""#));
    let failures = by_route(UPSTREAM_ERRORS.with(r#"kind!~"busy|low_priority""#));
    let shed = by_route(UPSTREAM_ERRORS.with(r#"kind=~"busy|low_priority""#));
    let attempts = rate("job, route, address", UPSTREAM_ATTEMPTS, "[5m]");
    let half = |over| {
        let buckets = format!("{UPSTREAM_TIME}_bucket");
        quantile("0.5", "job, route, le", buckets, over)
    };
    let (half, before) = (half("[5m]"), half("[1h] offset 10m"));
    vec![
        Alert::new(
            Critical,
            "RatekeeperUpstreamFails",
            format!("({failures} + {wrong})\n/ ({failures} + {answered}) > 0.05"),
            "the application fails {{ $value | humanizePercentage }} of the requests of the route `{{ $labels.route }}`",
        )
        .after("2m"),
        Alert::new(
            Warning,
            "RatekeeperUpstreamAddressDown",
            format!("max by (job, route, address) ({UPSTREAM_UP}) == 0\nor {attempts} > 0.01"),
            "address {{ $labels.address }} of the route `{{ $labels.route }}` fails or is left out",
        )
        .after("5m"),
        Alert::new(
            Warning,
            "RatekeeperUpstreamSlow",
            format!("{half} > 1\nor ({half} > 0.1 and {half} > 3 * {before})"),
            "half of the responses of the route `{{ $labels.route }}` take longer than {{ $value | humanizeDuration }}",
        )
        .after("5m"),
        Alert::new(
            Warning,
            "RatekeeperUpstreamSheds",
            format!("{shed}\n/ ({shed} + {answered}) > 0.05"),
            "adaptive_concurrency refuses {{ $value | humanizePercentage }} of the requests of the route `{{ $labels.route }}`",
        )
        .after("5m"),
    ]
}
