//! Alerts: those that ship, and the file of their rules for Prometheus.

use super::super::table::{
    ADMIN_WRONG_TOKENS, ALERTS_ACTIVE, ALERTS_UNWATCHED, BANNED_REQUESTS, CERTIFICATE_EXPIRY,
    CERTIFICATE_RELOADS, CONFIG_INFO, CONFIG_REJECTED, CONNECTIONS_CLOSED, DECISION_DURATION,
    DECISIONS, DENIED_BUSIEST, DENIED_KEYS, ENVOY_CONFIG_INFO, FALLBACK_ACTIVE, GEO_DATABASE_BUILT,
    KEY_MISSING, KEYS_EVICTED, LEASES_EXPIRED, LIMIT_ACTIVE, LOG_LINES_DROPPED, NEAR_LIMIT,
    OTLP_EVENTS_DROPPED, OTLP_EXPORTS, PLAN_DECISIONS, PLAN_NEAR_LIMIT, REPORTS, REQUESTS,
    SETTLEMENTS, STATE_SAVES, STORE_CLOCK_OFFSET, STORE_SERVER_UP, TASK_FAILURES, UNLIMITED,
    WALL_CLOCK_JUMPS, WEBHOOK_MESSAGES,
};
use super::alert::{Alert, Severity, alerts};
use super::{quantile, rate, upstream_alerts};

const HEAD: &str = "\
# Alerts of ratekeeper for Prometheus: rule_files: [ratekeeper.rules.yml]
# Each has a section of the same name in docs/guide/runbook.md. The numbers are starting points: edit them in your copy.
groups:
  - name: ratekeeper
    rules:
";

/// Alerts by their subjects.
pub(super) fn groups() -> [(&'static str, Vec<Alert>); 6] {
    [
        ("The service", [service(), surroundings()].concat()),
        ("The application", upstream_alerts::all()),
        ("Limits", [denials(), near(), requests()].concat()),
        ("Counters and their store", counters()),
        ("The policy", policy()),
        ("Messages of the service", messages()),
    ]
}

fn service() -> Vec<Alert> {
    let (recent, unlimited) = (
        rate("job", REQUESTS, "[15m]"),
        rate("job", UNLIMITED, "[15m]"),
    );
    let a_day_ago = rate("job", REQUESTS, "[15m] offset 1d");
    let buckets = format!("{DECISION_DURATION}_bucket");
    let slowest = quantile("0.99", "job, le", buckets, "[5m]");
    alerts! {
        Critical "RatekeeperDown" after "2m":
            r#"up{{job="ratekeeper"}} == 0"#,
            "{{ $labels.instance }} does not answer Prometheus";
        Critical "RatekeeperNoDecisions" after "5m":
            "{recent} == 0\nand {a_day_ago} > 0",
            "{{ $labels.job }} had no request in 15 minutes, and had some a day ago: traffic may bypass it";
        Warning "RatekeeperUnlimitedRequests" after "15m":
            "{unlimited}\n/ {recent} > 0.2",
            "no limit applies to {{ $value | humanizePercentage }} of the requests";
        Warning "RatekeeperDecisionsSlow" after "5m":
            "{slowest} > 0.1",
            "a hundredth of the decisions takes longer than 100 ms";
        Critical "RatekeeperTaskFailed":
            "increase({TASK_FAILURES}[15m]) > 0",
            "a task of {{ $labels.instance }} panicked and was restarted";
    }
}

fn surroundings() -> Vec<Alert> {
    let turned_away = CONNECTIONS_CLOSED.with(r#"which="new""#);
    let rejected = CERTIFICATE_RELOADS.with(r#"result="rejected""#);
    alerts! {
        Warning "RatekeeperConnectionsFull" after "5m":
            "increase({turned_away}[5m]) > 0",
            "{{ $labels.instance }} turns connections away";
        Warning "RatekeeperCertificateExpires":
            "{CERTIFICATE_EXPIRY} - time() < 14 * 86400",
            "certificate {{ $labels.certificate }} of the {{ $labels.listener }} listener of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}";
        Warning "RatekeeperCertificateRejected":
            "increase({rejected}[1h]) > 0",
            "{{ $labels.instance }} refuses new certificate files of its {{ $labels.listener }} listener and keeps the old ones";
        Warning "RatekeeperWallClockSet":
            "increase({WALL_CLOCK_JUMPS}[15m]) > 0",
            "the wall clock of {{ $labels.instance }} was set: windows of the calendar follow it";
        Warning "RatekeeperWrongToken":
            "increase({ADMIN_WRONG_TOKENS}[15m]) > 10",
            "{{ $labels.instance }} refuses calls with a wrong admin token";
    }
}

/// Refusals of limits.
fn denials() -> Vec<Alert> {
    let denied = DECISIONS.with(r#"outcome="denied",mode="enforce""#);
    let enforced = DECISIONS.with(r#"outcome!="exempt",mode="enforce""#);
    let would_deny = DECISIONS.with(r#"outcome="denied",mode!="enforce""#);
    let would_deny = rate("job, limit", would_deny, "[1h]");
    let shadow = DECISIONS.with(r#"outcome!="exempt",mode!="enforce""#);
    let shadow = rate("job, limit", shadow, "[1h]");
    let refusing = rate("job, limit", &denied, "[5m]");
    let keys = format!("max by (job, limit) ({DENIED_KEYS})");
    // Of several processes each has its share of the refusals.
    let of_each = rate("job, instance, limit", &denied, "[5m]");
    let busiest = format!(
        "sum by (job, limit) ({DENIED_BUSIEST} * on (job, instance, limit) {of_each}) / {refusing}"
    );
    let banned = rate(
        "job, limit",
        BANNED_REQUESTS.with(r#"mode="enforce""#),
        "[5m]",
    );
    let mostly_banned = format!("on (job, limit) {banned} > 0.5 * {refusing}");
    let rise = denials_rise(&denied, &enforced);
    alerts! {
        Warning "RatekeeperDenialsRise" after "5m":
            "{rise}",
            "{{ $labels.limit }} denies {{ $value | humanizePercentage }} of its requests, three times as much as a week ago";
        Warning "RatekeeperManyKeysDenied" after "10m":
            "{keys} > 100\nand on (job, limit) {busiest} < 0.5\nunless {mostly_banned}",
            "{{ $labels.limit }} denies {{ $value }} keys: its number may be too low";
        Warning "RatekeeperBanWave" after "5m":
            "{keys} > 10\nand on (job, limit) {busiest} < 0.5\nand {mostly_banned}",
            "{{ $labels.limit }} denies {{ $value }} keys, most requests of them by bans";
        Info "RatekeeperOneKeyDenied" after "5m":
            "{busiest} >= 0.5\nand on (job, limit) {refusing} > 1",
            "one key has {{ $value | humanizePercentage }} of the denials of {{ $labels.limit }}";
        Info "RatekeeperShadowWouldDeny" after "15m":
            "{would_deny}\n/ {shadow} > 0.01",
            "{{ $labels.limit }} would deny {{ $value | humanizePercentage }} if it were enforced";
    }
}

/// Returns where the share of denials is above 5 %, and three times that of a week ago. A limit
/// without a request then counts as one that denied nothing.
fn denials_rise(denied: &str, enforced: &str) -> String {
    let share =
        |over, requests: &str| format!("{}\n/ {requests}", rate("job, limit", denied, over));
    let requests = rate("job, limit", enforced, "[10m]");
    let now = share("[10m]", &requests);
    // Nothing divided by nothing is no number, and no number is below none.
    let then = rate("job, limit", enforced, "[10m] offset 1w");
    let then = share("[10m] offset 1w", &format!("({then} > 0)"));
    let (now, then) = (
        format!("{now} > 0.05").replace('\n', "\n  "),
        then.replace('\n', "\n  "),
    );
    format!("(\n  {now}\n)\n> 3 * (\n  {then}\n  or 0 * {requests}\n)")
}

/// Requests and keys that are close to their limits.
fn near() -> Vec<Alert> {
    let decided = rate(
        "job, limit",
        DECISIONS.with(r#"outcome!="exempt""#),
        "[10m]",
    );
    let near = rate("job, limit", NEAR_LIMIT, "[10m]");
    let of_plans = rate("job, limit, plan", PLAN_DECISIONS, "[10m]");
    let near_plans = rate("job, limit, plan", PLAN_NEAR_LIMIT, "[10m]");
    let above = format!("sum by (job, limit) ({ALERTS_ACTIVE}) > 0");
    alerts! {
        Info "RatekeeperNearLimit" after "10m":
            "{near}\n/ {decided} > 0.2",
            "{{ $value | humanizePercentage }} of the requests under {{ $labels.limit }} are close to it";
        Warning "RatekeeperPlanNearLimit" after "10m":
            "{near_plans}\n/ {of_plans} > 0.2",
            "{{ $value | humanizePercentage }} of the requests of plan {{ $labels.plan }} under {{ $labels.limit }} are close to its number";
        Info "RatekeeperKeyNearLimit":
            "{above}\nunless on (job, limit) {LIMIT_ACTIVE}",
            "{{ $value }} keys of {{ $labels.limit }} stay above the level of its alert";
        Warning "RatekeeperNearLimitInHours":
            "{above}\nand on (job, limit) {LIMIT_ACTIVE} > 0",
            "{{ $value }} keys of {{ $labels.limit }} stay above the level of its alert, in the hours of the limit";
    }
}

/// Keys, permits and results of requests.
fn requests() -> Vec<Alert> {
    let decided = rate(
        "job, limit",
        DECISIONS.with(r#"outcome!="exempt""#),
        "[10m]",
    );
    let missing = rate("job, limit", KEY_MISSING, "[10m]");
    let lost = REPORTS.with(r#"result=~"not_open|error""#);
    let lost = rate("job, result", lost, "[10m]");
    let ended = |results| rate("job, limit", SETTLEMENTS.with(results), "[1h]");
    let reported = ended(r#"result=~"ok|over_reserve""#);
    // To each process those expire that were reported to another one.
    let (expired, elsewhere) = (ended(r#"result="expired""#), ended(r#"result="elsewhere""#));
    let missing_reports = format!("({expired}\n  - {elsewhere})");
    alerts! {
        Warning "RatekeeperKeyMissing" after "10m":
            "{missing}\n/ {decided} > 0.01",
            "{{ $value | humanizePercentage }} of the requests under {{ $labels.limit }} lack a part of its key";
        Warning "RatekeeperLeasesExpire":
            "sum by (job, limit) (increase({LEASES_EXPIRED}[15m])) > 0",
            "permits of {{ $labels.limit }} are not given back";
        Warning "RatekeeperReportsLost" after "10m":
            "{lost} > 0.1",
            "reports of results change no charge ({{ $labels.result }})";
        Warning "RatekeeperReportsMissing" after "15m":
            "{missing_reports}\n/ ({missing_reports}\n  + {reported} > 0) > 0.1",
            "{{ $value | humanizePercentage }} of the charges of {{ $labels.limit }} that wait for a report get none";
    }
}

fn counters() -> Vec<Alert> {
    let unsaved = STATE_SAVES.with(r#"result="failed""#);
    let evicted = KEYS_EVICTED.with(r#"reason="budget""#);
    alerts! {
        Critical "RatekeeperStoreFails" after "1m":
            "{FALLBACK_ACTIVE} > 0",
            "{{ $labels.instance }} decides without its store: limits do as on_store_error says";
        Warning "RatekeeperStoreFlaps":
            "sum by (job, instance, store) (changes({FALLBACK_ACTIVE}[15m])) >= 4",
            "the store of {{ $labels.instance }} failed and returned again and again";
        Warning "RatekeeperStoreServerDown" after "5m":
            "{STORE_SERVER_UP} == 0",
            "{{ $labels.instance }} does not reach {{ $labels.server }}";
        Warning "RatekeeperClocksDiffer" after "5m":
            "abs({STORE_CLOCK_OFFSET}) > 0.5",
            "the clocks of {{ $labels.instance }} and of its store differ by {{ $value }} s";
        Warning "RatekeeperMemoryFull":
            "sum by (job, instance, limit) (increase({evicted}[10m])) > 0",
            "{{ $labels.instance }} drops keys of {{ $labels.limit }} to stay within its memory";
        Warning "RatekeeperStateNotSaved":
            "increase({unsaved}[15m]) > 0",
            "{{ $labels.instance }} cannot write its state folder: a restart forgets the charges since the last snapshot";
    }
}

fn policy() -> Vec<Alert> {
    let count = |of| format!("count by (job) (count by (job, sha) ({of})) > 1");
    let (policies, files) = (count(CONFIG_INFO), count(ENVOY_CONFIG_INFO));
    alerts! {
        Warning "RatekeeperReloadRejected" after "1m":
            "{CONFIG_REJECTED} > 0",
            "{{ $labels.instance }} refuses the files of its policy and keeps the old one";
        Warning "RatekeeperPoliciesDiffer" after "15m":
            "{policies}\nor {files}",
            "processes of {{ $labels.job }} run different policies";
        Warning "RatekeeperGeoDatabaseOld":
            "time() - {GEO_DATABASE_BUILT} > 45 * 86400",
            "{{ $labels.database }} of {{ $labels.instance }} is older than 45 days";
    }
}

fn messages() -> Vec<Alert> {
    let undelivered = WEBHOOK_MESSAGES.with(r#"result!="delivered""#);
    let exports = OTLP_EXPORTS.with(r#"result="failed""#);
    let lost = format!("sum by (job, signal) (increase({exports}[15m])) > 0");
    let dropped = format!("sum by (job) (increase({OTLP_EVENTS_DROPPED}[15m])) > 0");
    alerts! {
        Warning "RatekeeperWebhookFails":
            "sum by (job, result) (increase({undelivered}[15m])) > 0",
            "messages of alerts are lost ({{ $labels.result }})";
        Warning "RatekeeperExportFails":
            "{lost}\nor {dropped}",
            "metrics or events of {{ $labels.job }} do not reach the receiver of [otlp]";
        Info "RatekeeperKeysUnwatched":
            "sum by (job, limit) (increase({ALERTS_UNWATCHED}[15m])) > 0",
            "more keys of {{ $labels.limit }} are above its level than are watched";
        Warning "RatekeeperLogLinesDropped":
            "increase({LOG_LINES_DROPPED}[15m]) > 0",
            "{{ $labels.instance }} loses lines of its log";
    }
}

/// Returns the file of all rules.
pub(super) fn file() -> String {
    let groups = groups().map(|(subject, alerts)| {
        let rules: String = alerts.iter().map(Alert::rule).collect();
        format!("      # {subject}\n{rules}")
    });
    format!("{HEAD}{}", groups.join("\n"))
}
