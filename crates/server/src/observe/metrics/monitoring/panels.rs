//! Panels: the dashboard that ships, and the file of it for Grafana.
//!
//! ```text
//!   title      a line of its own, 1 high
//!   panels     three side by side, 8 high
//! ```
//!
//! Keys of the file are sorted, as Grafana exports them.

use std::fmt::Display;

use serde_json::{Value, json};

use super::super::family::Family;
use super::super::table::{
    BANS_ACTIVE, BUILD_INFO, CONCURRENCY_IN_USE, CONFIG_INFO, CONFIG_LAST_SUCCESS, CONFIG_REJECTED,
    CONNECTIONS, DECISION_DURATION, DECISIONS, DENIED_BUSIEST, DENIED_KEYS, FALLBACK_ACTIVE,
    KEY_MISSING, KEYS, MEMORY_BUDGET_BYTES, MEMORY_BYTES, NEAR_LIMIT, PLAN_NEAR_LIMIT,
    QUEUE_LENGTH, QUEUE_WAIT, REPORTS, REPORTS_EXPECTED, REQUESTS, RESERVED_UNITS, SETTLEMENTS,
    STORE_CLOCK_OFFSET, STORE_DURATION, STORE_REQUESTS, UNLIMITED, UPSTREAM_ATTEMPTS,
    UPSTREAM_ERRORS, UPSTREAM_LEFT, UPSTREAM_RESPONSES, UPSTREAM_TIME,
};
use super::{quantile, rate};

/// The span of a rate, which Grafana chooses.
const OVER: &str = "[$__rate_interval]";
/// Panels side by side.
const COLUMNS: u64 = 3;
/// Width and height of a panel; three are as wide as a dashboard.
const SIDE: u64 = 8;

/// The unit of a panel, by Grafana's name, and its smallest value.
type Unit = (&'static str, Option<u8>);

const PER_SECOND: Unit = ("reqps", Some(0));
const SHARE: Unit = ("percentunit", Some(0));
const SECONDS: Unit = ("s", Some(0));
/// A difference of two clocks.
const OFFSET: Unit = ("s", None);
const COUNT: Unit = ("short", Some(0));

struct Panel {
    title: &'static str,
    unit: Unit,
    /// Expressions, and the names of their lines.
    queries: Vec<(String, &'static str)>,
}

impl Panel {
    fn new(title: &'static str, unit: Unit) -> Self {
        Self {
            title,
            unit,
            queries: Vec::new(),
        }
    }

    /// The same with one more query.
    fn shows(mut self, legend: &'static str, expression: impl Into<String>) -> Self {
        self.queries.push((expression.into(), legend));
        self
    }
}

/// Returns the series of the job, and of the limits, that the dashboard shows.
fn shown(family: &Family, matchers: &str) -> String {
    let of_limits = if family.labels.contains(&"limit") {
        r#",limit=~"$limit""#
    } else {
        ""
    };
    let comma = if matchers.is_empty() { "" } else { "," };
    family.with(&format!(r#"job="$job"{of_limits}{comma}{matchers}"#))
}

/// Returns the rate of counters that the dashboard shows.
fn shown_rate(labels: &str, family: &Family, matchers: &str) -> String {
    rate(labels, shown(family, matchers), OVER)
}

/// Returns the share that counters have of others.
fn share(part: String, whole: &str) -> String {
    part + " / " + whole
}

fn by_limit(title: &'static str, unit: Unit, aggregate: &str, gauge: &Family) -> Panel {
    let series = shown(gauge, "");
    Panel::new(title, unit).shows("{{limit}}", format!("{aggregate} by (limit) ({series})"))
}

fn rate_by_limit(title: &'static str, counter: &Family, matchers: &str) -> Panel {
    let rate = shown_rate("limit", counter, matchers);
    Panel::new(title, PER_SECOND).shows("{{limit}}", rate)
}

/// Shows the time within which half of the calls ended, and that of 99 %.
fn times(title: &'static str, histogram: &Family) -> Panel {
    let series = shown(histogram, "");
    let buckets = buckets(histogram, &series);
    Panel::new(title, SECONDS)
        .shows("half", quantile("0.5", "le", &buckets, OVER))
        .shows("99 %", quantile("0.99", "le", &buckets, OVER))
}

/// Returns the buckets of a histogram.
fn buckets(histogram: &Family, series: &str) -> String {
    let name = histogram.to_string();
    series.replacen(&name, &format!("{name}_bucket"), 1)
}

/// Shows a gauge of each process.
fn of_each(title: &'static str, unit: Unit, expression: impl Display) -> Panel {
    Panel::new(title, unit).shows("{{instance}}", expression.to_string())
}

fn rows() -> [(&'static str, Vec<Panel>); 6] {
    [
        ("Now", now()),
        ("Upstream", upstream()),
        ("Limits", limits()),
        ("Queues and permits", queues()),
        ("Counters", counters()),
        ("Service", service()),
    ]
}

fn now() -> Vec<Panel> {
    let effects = shown_rate("outcome", &DECISIONS, r#"mode="enforce""#);
    let total = |family, matchers| format!("sum(rate({}{OVER}))", shown(family, matchers));
    let all = total(&REQUESTS, "");
    vec![
        Panel::new("Decisions by effect", PER_SECOND).shows("{{outcome}}", effects),
        Panel::new("Share of requests refused", SHARE)
            .shows(
                "refused",
                share(total(&REQUESTS, r#"result="denied""#), &all),
            )
            .shows("without a limit", share(total(&UNLIMITED, ""), &all)),
        times("Time of a decision", &DECISION_DURATION),
    ]
}

fn upstream() -> Vec<Panel> {
    let time = |part| {
        let buckets = buckets(&UPSTREAM_TIME, &shown(&UPSTREAM_TIME, ""));
        quantile(part, "route, le", buckets, OVER)
    };
    vec![
        Panel::new("Responses", PER_SECOND).shows(
            "{{route}} {{class}}",
            shown_rate("route, class", &UPSTREAM_RESPONSES, ""),
        ),
        Panel::new("Failures", PER_SECOND)
            .shows(
                "{{route}} {{kind}}",
                shown_rate("route, kind", &UPSTREAM_ERRORS, ""),
            )
            .shows(
                "{{route}} left by the client",
                shown_rate("route", &UPSTREAM_LEFT, ""),
            )
            .shows(
                "{{route}} at address {{address}}",
                shown_rate("route, address", &UPSTREAM_ATTEMPTS, ""),
            ),
        Panel::new("Time to the response", SECONDS)
            .shows("{{route}} half", time("0.5"))
            .shows("{{route}} 99 %", time("0.99")),
    ]
}

fn limits() -> Vec<Panel> {
    let busiest = format!("max by (limit) ({}) > 0", shown(&DENIED_BUSIEST, ""));
    let plans = shown_rate("limit, plan", &PLAN_NEAR_LIMIT, "");
    let total = |family| format!("sum(rate({}{OVER}))", shown(family, ""));
    let reports = shown_rate("result", &REPORTS, "");
    vec![
        rate_by_limit(
            "Refusals of each limit",
            &DECISIONS,
            r#"outcome="denied",mode="enforce""#,
        ),
        rate_by_limit(
            "Refusals in shadow mode, and of candidates",
            &DECISIONS,
            r#"outcome="denied",mode!="enforce""#,
        ),
        rate_by_limit("Requests close to a limit", &NEAR_LIMIT, ""),
        by_limit("Different keys refused", COUNT, "max", &DENIED_KEYS),
        Panel::new("Share of the most refused key", SHARE).shows("{{limit}}", busiest),
        rate_by_limit("Requests without a part of the key", &KEY_MISSING, ""),
        by_limit("Bans", COUNT, "sum", &BANS_ACTIVE),
        Panel::new("Requests of plans close to a limit", PER_SECOND)
            .shows("{{limit}} {{plan}}", plans),
        Panel::new("Reports of results", PER_SECOND)
            .shows("expected", total(&REPORTS_EXPECTED))
            .shows("{{result}}", reports),
    ]
}

fn queues() -> Vec<Panel> {
    vec![
        times("Waits in queues", &QUEUE_WAIT),
        by_limit("Answers held in queues", COUNT, "sum", &QUEUE_LENGTH),
        by_limit("Permits in use", COUNT, "sum", &CONCURRENCY_IN_USE),
        by_limit(
            "Units that wait for a report",
            COUNT,
            "sum",
            &RESERVED_UNITS,
        ),
        Panel::new("How reservations end", PER_SECOND).shows(
            "{{limit}} {{result}}",
            shown_rate("limit, result", &SETTLEMENTS, ""),
        ),
    ]
}

fn counters() -> Vec<Panel> {
    let calls = buckets(&STORE_DURATION, &shown(&STORE_DURATION, ""));
    let slowest = quantile("0.99", "le, op, outcome", calls, OVER);
    let budget = shown(&MEMORY_BUDGET_BYTES, "");
    let failed = r#"outcome=~"fail_open|fail_closed""#;
    let failed = shown_rate("limit, outcome", &DECISIONS, failed);
    vec![
        Panel::new("Calls to the store", PER_SECOND).shows(
            "{{op}} {{result}}",
            shown_rate("op, result", &STORE_REQUESTS, ""),
        ),
        of_each("Without the store", COUNT, shown(&FALLBACK_ACTIVE, "")),
        Panel::new("Passed or refused without the store", PER_SECOND)
            .shows("{{limit}} {{outcome}}", failed),
        Panel::new("Time of a call, 99 %", SECONDS).shows("{{op}} {{outcome}}", slowest),
        by_limit("Keys", COUNT, "sum", &KEYS),
        of_each("Memory", SHARE, share(shown(&MEMORY_BYTES, ""), &budget)),
        of_each("Clock of the store", OFFSET, shown(&STORE_CLOCK_OFFSET, "")),
    ]
}

fn service() -> Vec<Panel> {
    let policies = format!("count by (sha) ({})", shown(&CONFIG_INFO, ""));
    let connections = format!("sum by (side) ({})", shown(&CONNECTIONS, ""));
    vec![
        Panel::new("Policies in force", COUNT).shows("{{sha}}", policies),
        of_each("Files refused", COUNT, shown(&CONFIG_REJECTED, "")),
        Panel::new("Connections", COUNT).shows("{{side}}", connections),
    ]
}

/// Returns the file of the dashboard.
pub(super) fn file() -> String {
    let (mut panels, mut y) = (Vec::new(), 0);
    for (title, row) in rows() {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": title,
            "collapsed": false,
            "gridPos": { "h": 1, "w": COLUMNS * SIDE, "x": 0, "y": y },
            "panels": [],
        }));
        y += 1;
        for (at, panel) in (0..).zip(&row) {
            let place = (at % COLUMNS * SIDE, y + at / COLUMNS * SIDE);
            panels.push(panel.written(panels.len() + 1, place));
        }
        y += (row.len() as u64).div_ceil(COLUMNS) * SIDE;
    }
    let dashboard = json!({
        "title": "ratekeeper",
        "uid": "ratekeeper",
        "schemaVersion": 38,
        "editable": true,
        "refresh": "30s",
        "time": { "from": "now-6h", "to": "now" },
        "tags": ["ratekeeper"],
        "annotations": { "list": [changes_of_the_policy()] },
        "templating": { "list": variables() },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${source}" })
}

fn changes_of_the_policy() -> Value {
    let loaded = CONFIG_LAST_SUCCESS.with(r#"job="$job""#);
    json!({
        "name": "Policies",
        "datasource": source(),
        "enable": true,
        "iconColor": "blue",
        "expr": format!("changes({loaded}[2m]) > 0"),
        "titleFormat": "policy of {{instance}}",
    })
}

/// Returns what a reader of the dashboard chooses.
fn variables() -> [Value; 3] {
    let limits = DECISIONS.with(r#"job="$job""#);
    [
        json!({ "name": "source", "type": "datasource", "query": "prometheus" }),
        json!({
            "name": "job",
            "type": "query",
            "datasource": source(),
            "query": format!("label_values({BUILD_INFO}, job)"),
            "refresh": 2,
        }),
        json!({
            "name": "limit",
            "type": "query",
            "datasource": source(),
            "query": format!("label_values({limits}, limit)"),
            "refresh": 2,
            "multi": true,
            "includeAll": true,
            "allValue": ".*",
        }),
    ]
}

impl Panel {
    fn written(&self, id: usize, (x, y): (u64, u64)) -> Value {
        let (unit, least) = self.unit;
        let mut defaults = json!({ "unit": unit });
        if let Some(least) = least {
            defaults["min"] = json!(least);
        }
        let targets = ('A'..)
            .zip(&self.queries)
            .map(|(name, (expression, legend))| {
                json!({
                    "refId": name,
                    "datasource": source(),
                    "expr": expression,
                    "legendFormat": legend,
                })
            });
        json!({
            "id": id,
            "type": "timeseries",
            "title": self.title,
            "datasource": source(),
            "gridPos": { "h": SIDE, "w": SIDE, "x": x, "y": y },
            "fieldConfig": { "defaults": defaults, "overrides": [] },
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}
