//! Table: every metric of the service, once.
//!
//! ```text
//!   FAMILIES --> /metrics: name, type, help, labels
//!            --> examples/monitoring: written from here (`monitoring.rs`)
//!            --> the tests of docs/guide: each name and label there is here
//! ```
//!
//! Values of labels are names of the policy and fixed words, but for `rule` of `rls_hits`, which
//! holds names that callers may bring and is bounded, and `server` of `store_server_up`, an
//! address of the shared store.

use super::family::{Family, Kind};

/// What the names of all metrics begin with.
pub(super) const PREFIX: &str = "ratekeeper_";

/// Declares a constant for each metric, and the list of all.
macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(
            pub(super) const $constant: Family = Family {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// All metrics, in the order of a scrape.
        #[cfg(test)]
        pub(super) const FAMILIES: &[Family] = &[$($constant),*];
    };
}

families! {
    REQUESTS: Counter "requests" ["protocol" "result"] "Requests answered by a listener";
    UNLIMITED: Counter "unlimited_requests" ["protocol"]
        "Requests that no limit applied to";
    DECISION_DURATION: Histogram "decision_duration_seconds" ["protocol" "path"]
        "Time to decide, without parsing and rendering";
    DECISIONS: Counter "decisions" ["limit" "outcome" "mode"] "Decisions of a limit";
    UNITS: Counter "units" ["limit" "outcome" "mode"] "Cost of the requests a limit decided";
    NEAR_LIMIT: Counter "near_limit" ["limit"]
        "Requests allowed with more than near_percent (80 %) of the limit spent";
    PLAN_DECISIONS: Counter "plan_decisions" ["limit" "plan" "outcome"]
        "Decisions of a limit with the numbers of a plan, in both modes";
    PLAN_NEAR_LIMIT: Counter "plan_near_limit" ["limit" "plan"]
        "Requests allowed with more than near_percent (80 %) of the number of a plan spent";
    BANS: Counter "bans" ["limit" "mode"] "Bans that began";
    BANNED_REQUESTS: Counter "banned_requests" ["limit" "mode"]
        "Denials because the key was banned, which count as denied too";
    BANS_ACTIVE: Gauge "bans_active" ["limit"]
        "Bans in force that began at this process";
    BY_HAND_KEYS: Gauge "by_hand_keys" ["limit" "act"]
        "Keys that operators have banned or allowed for a time; the same in each process";
    KEY_MISSING: Counter "key_missing" ["limit"] "Requests without a part of the limit's key";
    DENIED_KEYS: Gauge "denied_keys" ["limit"]
        "Different keys that a limit denied in this minute and the one before it, or would in shadow mode; an estimate";
    DENIED_BUSIEST: Gauge "denied_busiest_key_ratio" ["limit"]
        "Share of these denials, or would-be denials in shadow mode, that the most denied key has; 0 without denials";
    LIMIT_QUOTA: Gauge "limit_quota" ["limit"] "Maximum number of permits of a key of the limit";
    LIMITS_FOLDED: Gauge "limits_folded" []
        "Limits that are counted together as (other), because there are more than max_limits";
    LIMIT_ACTIVE: Gauge "limit_active" ["limit"]
        "1 within the hours of a limit with active, 0 outside them";
    ALERTS_ACTIVE: Gauge "alerts_active" ["limit"] "Keys of a limit with an active alert";
    ALERTS: Counter "alerts" ["limit"] "Alerts of a limit that have started";
    ALERTS_UNWATCHED: Counter "alerts_unwatched" ["limit"]
        "Decisions above the level of an alert whose key could not be watched";
    WEBHOOK_MESSAGES: Counter "webhook_messages" ["result"] "Messages to the webhook of alerts";
    QUEUE_WAIT: Histogram "queue_wait_seconds" ["limit"]
        "Waits that queues asked of requests which they let pass, of several the longest";
    QUEUE_LENGTH: Gauge "queue_length" ["limit"]
        "Answers that are delayed at present, by the limit that asks for the longest wait";
    RESERVED_UNITS: Gauge "reserved_units" ["limit"]
        "Units that are charged and wait for a report; to be summed over processes that share a store";
    SETTLEMENTS: Counter "settlements" ["limit" "result"]
        "Charges that a report may correct, by how they ended";
    CONCURRENCY_IN_USE: Gauge "concurrency_in_use" ["limit"]
        "Permits on loan, for all keys of a limit";
    LEASES_EXPIRED: Counter "leases_expired" ["limit"]
        "Permits returned by the end of their lease, not by a release";
    HELD_ANSWERS: Gauge "held_answers" [] "Answers that the http listener delays at present";
    HELD_ANSWERS_ENDED: Counter "held_answers_ended" ["result"]
        "Answers that the http listener delayed, by result";
    REPORTS: Counter "reports" ["result"] "Reports of the results of requests, by effect";
    REPORTS_EXPECTED: Counter "reports_expected" []
        "Decisions whose charges a report may correct, by the id in the answer";
    OVERRIDE_CHANGES: Counter "override_changes" ["change"]
        "Changes of the file of overrides by the admin listener";
    GRANTS: Counter "grants" ["result"] "Grants of credits, by effect";
    RLS_HITS: Counter "rls_hits" ["rule" "kind"] "Hits of a rule of Envoy's rate limit service";
    KEYS: Gauge "keys" ["limit"] "Keys with a state under a limit";
    KEYS_EVICTED: Counter "keys_evicted" ["limit" "reason"]
        "Keys removed from a limit: idle ones, and those evicted by the memory budget";
    MEMORY_BYTES: Gauge "memory_bytes" [] "Bytes the store uses";
    MEMORY_BUDGET_BYTES: Gauge "memory_budget_bytes" [] "Bytes the store may use";
    STATE_SAVES: Counter "state_saves" ["result"]
        "Snapshots of the counters in the state folder, by result; failed: also of the history";
    STATE_BYTES: Gauge "state_bytes" [] "Size of the last snapshot of the counters";
    STATE_LAST_SUCCESS: Gauge "state_last_success_timestamp_seconds" []
        "Time at which the last snapshot of the counters was written";
    STORE_DURATION: Histogram "store_duration_seconds" ["store" "op" "outcome"]
        "Duration of calls to the shared store";
    STORE_CLOCK_OFFSET: Gauge "store_clock_offset_seconds" ["store"]
        "Seconds by which the shared store's clock is ahead of this process's";
    STORE_SERVER_UP: Gauge "store_server_up" ["store" "server"]
        "1 if calls are sent to a server of the shared store, 0 if they are paused";
    STORE_REQUESTS: Counter "store_requests" ["store" "op" "result"]
        "Calls to the shared store, and probes while it fails";
    STORE_BREAKER_STATE: Gauge "store_breaker_state" ["store"]
        "Breaker of the shared store: 0 closed, 1 probing, 2 open";
    FALLBACK_ACTIVE: Gauge "fallback_active" ["store"]
        "1 while limits follow their on_store_error, otherwise 0";
    FALLBACK_DECISIONS: Counter "fallback_decisions" ["store" "choice"]
        "Requests decided without the shared store, by the gravest choice of their limits";
    FALLBACK_DEBITED: Counter "fallback_debited_units" ["store"]
        "Units admitted without the shared store and charged to it afterwards";
    CONNECTIONS: Gauge "connections" ["side"]
        "Connections of the http, proxy and grpc listeners (callers) and of the admin listener";
    CONNECTIONS_CLOSED: Counter "connections_closed" ["side" "which"]
        "Connections closed because the maximum was reached: idle ones, new ones";
    HELD_BODY_BYTES: Gauge "held_body_bytes" []
        "Bytes of requests that are held until the rest has arrived";
    ACCEPT_FAILURES: Counter "accept_failures" ["listener"]
        "Connections that the system failed to accept";
    ADMIN_WRONG_TOKENS: Counter "admin_wrong_tokens" []
        "Calls of operators with a wrong admin token";
    REQUEST_FAULTS: Counter "request_faults" ["kind"]
        "Requests of the proxy listener that cannot be served, because of their client";
    UPSTREAM_RESPONSES: Counter "upstream_responses" ["route" "class"]
        "Responses of an upstream";
    UPSTREAM_ERRORS: Counter "upstream_errors" ["route" "kind"]
        "Requests of the proxy listener that failed at the upstream; busy, low_priority: not sent, by adaptive_concurrency";
    UPSTREAM_LEFT: Counter "upstream_left" ["route"]
        "Requests whose client left, or did not send its body, before a response";
    UPSTREAM_TIME: Histogram "upstream_response_seconds" ["route"]
        "Time from the end of a request to the head of its response, with the wait for a connection";
    UPSTREAM_BYTES: Counter "upstream_body_bytes" ["route" "direction"]
        "Bytes of bodies sent to an upstream and received from it";
    UPSTREAM_IN_FLIGHT: Gauge "upstream_in_flight" ["route"]
        "Requests and tunnels at an upstream that have not ended";
    UPSTREAM_ABANDONED: Counter "upstream_abandoned" []
        "Requests that kept their permits after their client had left, while the upstream worked on them";
    UPSTREAM_UP: Gauge "upstream_up" ["route" "address"]
        "1 if an address of an upstream is in use, 0 while it is left out, by its place in the policy";
    UPSTREAM_ATTEMPTS: Counter "upstream_failed_attempts" ["route" "address"]
        "Attempts to send a request to an address that failed; another address may have served it";
    UPSTREAM_CONNECTIONS: Gauge "upstream_connections" ["route" "address"]
        "Open connections to an address";
    UPSTREAM_LIMIT: Gauge "upstream_concurrency_limit" ["route"]
        "Requests that may wait for an upstream at a time, by adaptive_concurrency";
    CERTIFICATE_EXPIRY: Gauge "certificate_expiry_timestamp_seconds" ["listener" "certificate"]
        "Seconds since 1970 at which a certificate expires, by its place in the policy";
    CERTIFICATE_RELOADS: Counter "certificate_reloads" ["listener" "result"]
        "Changed certificate files, by whether they are in use now";
    TLS_HANDSHAKE_FAILURES: Counter "tls_handshake_failures" ["listener"]
        "TLS handshakes of clients that failed or took too long";
    TASK_FAILURES: Counter "task_failures" [] "Tasks of the service restarted after a panic";
    WALL_CLOCK_JUMPS: Counter "wall_clock_jumps" []
        "Number of times that the wall clock was set by more than 2 s";
    LOG_LINES_DROPPED: Counter "log_lines_dropped" []
        "Log lines lost because they were not read or could not be written";
    OTLP_EXPORTS: Counter "otlp_exports" ["signal" "result"]
        "Messages to the receiver of [otlp], by what they hold";
    OTLP_EVENTS_DROPPED: Counter "otlp_events_dropped" []
        "Events that the receiver of [otlp] did not get";
    CONFIG_INFO: Gauge "config_info" ["sha" "version"] "The policy in force";
    ENVOY_CONFIG_INFO: Gauge "envoy_config_info" ["sha"]
        "The files of Envoy's rate limit service in force";
    CONFIG_LAST_SUCCESS: Gauge "config_last_success_timestamp_seconds" []
        "Time at which the policy in force was loaded";
    GEO_DATABASE_BUILT: Gauge "geo_database_built_timestamp_seconds" ["database"]
        "Time at which a database of [geo] was made";
    CONFIG_RELOAD: Counter "config_reload" ["result"] "Policies read after the start";
    CONFIG_REJECTED: Gauge "config_rejected" []
        "1 while the files of the policy were refused when they were last read, otherwise 0";
    BUILD_INFO: Gauge "build_info" ["version"] "The program";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Returns the names that the samples of a metric have.
    fn samples(family: &Family) -> Vec<String> {
        let ends: &[&str] = match family.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["", "_bucket", "_sum", "_count"],
        };
        let name = |end| format!("{PREFIX}{}{end}", family.name);
        ends.iter().map(name).collect()
    }

    /// Returns the names of metrics in a text, each with the labels between braces behind it.
    fn named(text: &str) -> Vec<(String, Vec<String>)> {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let places = text.match_indices(PREFIX).filter(|(at, _)| {
            let before = text[..*at].chars().next_back();
            !before.is_some_and(|c| is_word(c) || c == '/' || c == '-')
        });
        let each = places.map(|(at, _)| {
            let rest = &text[at..];
            let (name, rest) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            let braces = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let labels = braces.map_or("", |(labels, _)| labels).split(',');
            let labels = labels.map(|label| label.split(['=', '!']).next().unwrap_or_default());
            let labels = labels.map(str::trim).filter(|label| !label.is_empty());
            let is_crate = rest.starts_with("::");
            (!is_crate).then(|| (name.to_owned(), labels.map(str::to_owned).collect()))
        });
        each.flatten().collect()
    }

    /// Returns the labels that a rule or query names apart from a metric: in `by (..)`,
    /// `on (..)` or `without (..)`, and as `$labels.WORD` of a message.
    fn grouped(text: &str) -> Vec<&str> {
        let mut labels = Vec::new();
        for clause in ["by", "on", "without"] {
            for open in [" (", "("] {
                let opening = format!(" {clause}{open}");
                let clauses = text.split(opening.as_str()).skip(1);
                let lists = clauses.filter_map(|rest| Some(rest.split_once(')')?.0));
                labels.extend(lists.flat_map(|list| list.split(',')).map(str::trim));
            }
        }
        let words = text.split("$labels.").skip(1);
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
        labels.extend(words.map(|rest| &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())]));
        labels
    }

    #[test]
    fn rules_group_by_labels_of_their_metrics() {
        let folder = root().join("examples/monitoring");
        let rules = std::fs::read_to_string(folder.join("ratekeeper.rules.yml")).unwrap();
        let mut texts: Vec<String> = rules.split("- alert: ").map(str::to_owned).collect();
        let dashboard = std::fs::read_to_string(folder.join("grafana.json")).unwrap();
        let dashboard = dashboard.replace("\\\"", "\"");
        let lines = dashboard.lines().filter(|line| line.contains("\"expr\""));
        texts.extend(lines.map(str::to_owned));
        let guide = std::fs::read_to_string(root().join("docs/guide/is-it-effective.md")).unwrap();
        let queries = guide.split("```promql").skip(1);
        texts.extend(queries.filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())));
        let (mut seen, mut faults) = (0, Vec::new());
        for text in &texts {
            let names = named(text);
            let families = FAMILIES.iter().filter(|it| {
                let samples = samples(it);
                names.iter().any(|(name, _)| samples.contains(name))
            });
            let mut known: BTreeSet<&str> = families.flat_map(|it| it.labels).copied().collect();
            known.extend(["instance", "job", "le"]);
            for label in grouped(text) {
                seen += 1;
                if !known.contains(label) {
                    faults.push(format!("{label}: {text}"));
                }
            }
        }
        assert!(seen > 50, "only {seen} labels were found");
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn documents_and_rules_name_metrics_of_the_table_with_their_labels() {
        let mut files: Vec<PathBuf> = Vec::new();
        for folder in ["docs/guide", "examples/monitoring"] {
            let entries = std::fs::read_dir(root().join(folder)).unwrap();
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
        // Variables of proxies begin with the same word.
        files.retain(|file| file.is_file() && !file.ends_with("proxies.md"));
        let mut faults = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file)
                .unwrap()
                .replace("\\\"", "\"");
            for (name, labels) in named(&text) {
                let family = FAMILIES.iter().find(|it| samples(it).contains(&name));
                let known = |label: &String| {
                    let own = family.is_some_and(|it| it.labels.contains(&&**label));
                    own || ["instance", "job", "le"].contains(&&**label)
                };
                if family.is_none() || !labels.iter().all(known) {
                    faults.push(format!("{}: {name} {labels:?}", file.display()));
                }
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn the_guide_lists_each_metric_with_its_labels() {
        let page = std::fs::read_to_string(root().join("docs/guide/metrics.md")).unwrap();
        for family in FAMILIES {
            let name = &samples(family)[0];
            let row = page.lines().find(|line| {
                let cell = line
                    .strip_prefix("| `")
                    .and_then(|row| row.split('|').next());
                cell.is_some_and(|cell| cell.split('`').any(|word| word == name))
            });
            let row = row.unwrap_or_else(|| panic!("no row of {name}"));
            let cell = row.split('|').nth(2).unwrap_or_default();
            for label in family.labels {
                assert!(cell.contains(&format!("`{label}`")), "{name}: {cell}");
            }
        }
    }

    #[test]
    fn names_are_unique_and_end_with_their_unit() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len());
        for family in FAMILIES.iter().filter(|it| it.kind == Kind::Histogram) {
            assert!(family.name.ends_with("_seconds"), "{}", family.name);
        }
        assert!(names.iter().all(|name| !name.ends_with("_total")));
    }
}
