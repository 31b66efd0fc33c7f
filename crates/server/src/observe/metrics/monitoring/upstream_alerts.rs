//! Upstream alerts: those of the application behind the gateway.

use super::super::table::{
    UPSTREAM_ATTEMPTS, UPSTREAM_ERRORS, UPSTREAM_LEFT, UPSTREAM_RESPONSES, UPSTREAM_TIME,
    UPSTREAM_UP,
};
use super::alert::{Alert, Severity, alerts};
use super::{quantile, rate};

/// Requests a second from which their times, or clients that leave, say something: one a minute.
const ENOUGH: &str = "1 / 60";

/// They go by shares, so that a rare request counts too.
pub(super) fn all() -> Vec<Alert> {
    let by_route = |series: String| rate("job, route", series, "[5m]");
    let answered = by_route(UPSTREAM_RESPONSES.to_string());
    let wrong = by_route(UPSTREAM_RESPONSES.with(r#"class="5xx""#));
    let failures = by_route(UPSTREAM_ERRORS.with(r#"kind!~"busy|low_priority""#));
    // The others have a response too.
    let unanswered = r#"kind!~"busy|low_priority|body_broken|body_timeout""#;
    let unanswered = by_route(UPSTREAM_ERRORS.with(unanswered));
    let shed = by_route(UPSTREAM_ERRORS.with(r#"kind=~"busy|low_priority""#));
    let left = by_route(UPSTREAM_LEFT.to_string());
    let up = format!("max by (job, route, address) ({UPSTREAM_UP})");
    // Of its part of the requests.
    let attempts = rate("job, route, address", UPSTREAM_ATTEMPTS, "[5m]");
    let attempts =
        format!("{attempts} * on (job, route) group_left () count by (job, route) ({up})");
    let time = |part, over| {
        let buckets = format!("{UPSTREAM_TIME}_bucket");
        quantile(part, "job, route, le", buckets, over)
    };
    let usual = |part| time(part, "[1d] offset 10m");
    let (half, before, most) = (time("0.5", "[5m]"), usual("0.5"), usual("0.75"));
    alerts! {
        Critical "RatekeeperUpstreamFails" after "2m":
            "({failures} + {wrong})\n/ ({unanswered} + {answered}) > 0.05",
            "the application fails {{ $value | humanizePercentage }} of the requests of the route `{{ $labels.route }}`";
        Warning "RatekeeperUpstreamAddressDown" after "5m":
            "{up} == 0\nor {attempts}\n/ on (job, route) group_left () ({unanswered} + {answered}) > 0.05",
            "address {{ $labels.address }} of the route `{{ $labels.route }}` fails or is left out";
        Warning "RatekeeperUpstreamLeft" after "5m":
            "{left}\n/ ({left} + {unanswered} + {answered}) > 0.2\nand {left} > {ENOUGH}",
            "clients leave {{ $value | humanizePercentage }} of the requests of the route `{{ $labels.route }}` before a response";
        Warning "RatekeeperUpstreamSlow" after "5m":
            "{half} > 3 * {before}\nand {half} > {most}\nand {answered} > {ENOUGH}",
            "half of the responses of the route `{{ $labels.route }}` take longer than {{ $value | humanizeDuration }}";
        Warning "RatekeeperUpstreamSheds" after "5m":
            "{shed}\n/ ({shed} + {answered}) > 0.05",
            "adaptive_concurrency refuses {{ $value | humanizePercentage }} of the requests of the route `{{ $labels.route }}`";
    }
}
