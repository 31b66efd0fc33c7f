//! Fields of a limit, of `[defaults]`, and of the responses that limits name.

use ratekeeper_core::{MAX_BAN, MAX_STRIKES, Nanos, Quota};

use super::algorithm::{ALGORITHM, ALGORITHMS, BALANCE, BUCKET, CONCURRENCY, QUEUE, WARMUP};
use super::correction::{COSTS, COUNT, RESET_ON, WITHIN};
use super::requests::{MATCH, NUMBERS};
use super::{
    ANCHOR, DAY, MAX_AT_ONCE, MAX_GROWTH, MAX_KEY_PARTS, MAX_PERCENT, MAX_PLANS, MISSING, NAME,
    POLICY, QUOTA, STATUS,
};
use crate::config::document::shape::{
    Either, Factor, Flag, List, Map, Moment, SPAN, Shape, TEXT, Table, Texts, Whole, Word, fields,
    name, pattern, percent, span,
};
use crate::http::unit::MAX_DECIMALS;
use crate::model::rules::rule::MAX_OTHERWISE;

/// Maximum number of names in `replaces`: each is looked at per request to which the limit applies.
const MAX_REPLACED: usize = 16;
/// `concurrency`: a number, or a table.
const CONCURRENCIES: &[Shape] = &[Whole(1, MAX_AT_ONCE), Table(&CONCURRENCY)];
/// Exactly one of these sets the quantity of a limit.
pub(crate) const QUANTITIES: &[&str] = &["limit", "bucket", "spacing", "concurrency", "balance"];
/// `for` of an alert: keys are looked at once a second, and a day is longer than an operator waits.
const HOLD: Shape = span(Nanos::SECOND, DAY);
/// `within`, `for` and `max` of a ban.
const LENGTH: Shape = span(Nanos::from_nanos(1), MAX_BAN);
/// `signal` of an elastic limit.
const SIGNAL: &str = "^([a-z0-9-]{1,40}|upstream[.]([a-z0-9-]{1,40}[.])?(latency|errors))$";
/// `below` of a signal.
const BELOW: &str = "^([1-9][0-9]{0,3}%|[0-9]+(us|ms|s))$";

fields! {
    pub(crate) DEFAULTS = "`[defaults]`" {
        shared LIMIT { mode missing_key response count_denied status on_store_error path_case };
    }

    /// One `[[limit]]`.
    pub(crate) LIMIT = "a limit" one of QUANTITIES {
        required name: pattern(NAME), "\"per-ip\"",
            "Unique name, which identifies the counters across reloads.";
        optional r#match: Table(&MATCH), "{ path = \"/login\" }",
            "Requests that the limit applies to (default: all).";
        required key: List(MAX_KEY_PARTS), "[\"ip\"]",
            "Parts of the key: one counter for each combination of their values.";
        optional limit: pattern(QUOTA), "\"100/1m\"",
            "Requests in a period: a duration (1m), counted by the algorithm, or a calendar period \
             (day).";
        optional bucket: Table(&BUCKET), "{ size = 20, refill = \"10/1s\" }",
            "Bucket of permits: its size (the burst) and its refill.";
        optional spacing: SPAN, "\"200ms\"", "Minimum time between two requests.";
        optional concurrency: Either(CONCURRENCIES), "{ max = 50, lease = \"60s\" }",
            "Maximum number of permits on loan at once; POST /v1/acquire takes a permit, POST \
             /v1/release returns it.";
        optional balance: Table(&BALANCE), "{ start = 100, max = 1000000 }",
            "Prepaid credits, which do not refill; POST /v1/grant of the admin listener adds some.";
        optional anchor: Either(&[Whole(1, 31), pattern(ANCHOR), Moment]), "15",
            "Beside a calendar limit: the day on which its periods begin. For a month a number (in \
             a shorter month, its last day), a date or attr:NAME, an attribute with the day of \
             each key; for a week mon to sun; for a year a date.";
        optional algorithm: Either(&[Word(ALGORITHMS), Table(&ALGORITHM)]), "\"fixed-window\"",
            "Algorithm of `limit` (default token-bucket).";
        optional queue: Table(&QUEUE), "{ max = 100, max_wait = \"2s\" }",
            "Queue for excess requests, beside a token bucket, a leaky bucket or spacing.";
        optional warmup: Table(&WARMUP), "{ period = \"10s\", cold_factor = 3 }",
            "Warm-up beside `limit`: after a rest, requests are admitted slowly at first, as in \
             Guava.";
        optional unit: Table(&UNIT), "{ name = \"USD\", decimals = 2 }",
            "Unit of the quantities and the cost, which then have decimals: size = \"200.00\".";
        optional cost: Either(COSTS), "5",
            "Cost of a request: a number, the attribute or the value of the body that holds it, \
             prices of some requests, or an estimate that the actual cost replaces.";
        optional count: Table(&COUNT), "{ status = [401, 403] }",
            "Results that count. A request is charged when it is judged; a report of another \
             result gives the charge back.";
        optional reset_on: Table(&RESET_ON), "{ status = [200] }",
            "Results after which the key begins anew.";
        optional report_within: WITHIN, "\"10m\"",
            "Time within which POST /v1/report corrects a charge, at most 24h (default 2m); \
             without a report the charge stays.";
        optional active: Table(&ACTIVE), "{ hours = \"01:00-06:00\", timezone = \"Europe/Oslo\" }",
            "Hours, days and dates at which the limit applies (default: always).";
        optional alert: Table(&ALERT), "{ above = \"80%\", for = \"2m\" }",
            "Reports keys that stay above a part of the limit.";
        optional mode: Word(&["enforce", "shadow", "off"]), "\"shadow\"",
            "enforce: decides and refuses; shadow: decides and counts; off: does nothing.";
        optional missing_key: pattern(MISSING), "\"use:ip\"",
            "Behaviour for a request without a part of the key: skip, deny, shared, or use:PART \
             (default use:ip).";
        optional response: pattern(NAME), "\"slow-down\"",
            "Response of a refusal: the name of a [response.NAME].";
        optional status: STATUS, "429",
            "HTTP status of a refusal; overrides that of a `response` beside it.";
        optional on_store_error: Word(&["local", "allow", "deny"]), "\"local\"",
            "Decision while the Redis store fails: local (this process applies its share of the \
             limit), allow or deny. It also applies to a late call. The charge of a late call \
             stays in the store, so deny costs permits that no request used, and local counts the \
             request twice.";
        optional count_denied: Flag, "true", "Counts refused requests as well.";
        optional path_case: Word(&["insensitive", "sensitive"]), "\"sensitive\"",
            "Case of paths: insensitive (default) treats /Login and /login as one path, sensitive \
             as two.";
        optional plans: Map(&NUMBERS, MAX_PLANS), "{ pro = \"600/1m\" }",
            "Numbers for the requests of a plan, in place of the limit's own; \"unlimited\" or \
             \"blocked\".";
        optional ban: Table(&BAN), "{ after = 3, within = \"24h\", for = \"1h\" }",
            "Bans a key after some refusals by this limit: it is refused until the ban ends.";
        optional soft: Table(&SOFT), "{ extra = \"10%\" }",
            "Requests over the limit that pass with a warning.";
        optional elastic: Table(&ELASTIC),
            "{ up_to = \"200/1m\", while = { signal = \"load\", below = \"70%\" } }",
            "Requests over the limit that pass while a signal is low.";
        optional otherwise: Texts(MAX_OTHERWISE), "\"named\"",
            "Names of the limits that are asked, in order, when this one denies; they are asked by \
             no other request.";
        optional replaces: Texts(MAX_REPLACED), "\"api\"",
            "Names of the limits that are not asked about the requests to which this one applies.";
        optional on_limit: pattern("^route:[a-z0-9-]{1,40}$"), "\"route:spare\"",
            "The gateway forwards the requests that this limit denies to the route of this name; \
             other listeners refuse them.";
        optional percent: Whole(0, 100), "10",
            "Percentage of the keys for which the limit is enforced; for the others it decides and \
             counts (default 100). A larger percentage enforces it for the keys of a smaller one \
             as well.";
        optional candidate: TEXT, "\"80/1m\"",
            "Another number that is tried beside the limit: it decides and counts by itself, and \
             never refuses. Written like the number of a plan.";
        optional scope: Word(&["cluster", "node"]), "\"node\"",
            "With [store.redis]: cluster (default) counts in all processes together, node in each \
             process by itself, as every limit does whose counters are in memory.";
        optional distinct: TEXT, "\"attr:account\"",
            "Counts different values of a key part in each window, and not requests.";
        optional priority: Table(&PRIORITY),
            "{ last = \"20%\", match = { path = \"/health\" } }",
            "Keeps the last part of the limit for some of its requests.";
    }

    /// How much a limit allows, by itself: a limiter inside a program.
    pub(crate) QUANTITY = "a limiter" one of QUANTITIES {
        shared LIMIT { limit bucket spacing concurrency balance anchor algorithm queue warmup
            count_denied };
        shared POLICY { timezone };
    }

    pub(super) ACTIVE = "`active`" {
        optional hours: pattern("^[0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9]$"), "\"01:00-06:00\"",
            "Hours of a day by the clocks of the time zone; over midnight if the end is earlier.";
        optional days: Texts(7), "[\"mon-fri\"]",
            "Days of the week: mon to sun, or a range; hours over midnight belong to the day on \
             which they begin.";
        optional timezone: TEXT, "\"UTC\"",
            "IANA time zone of hours, days and dates without an offset (default: that of the \
             policy).";
        optional from: Moment, "2026-01-01T00:00:00Z",
            "First moment: a date, or a date and a time.";
        optional until: Moment, "2100-01-01T00:00:00Z",
            "End: the first moment at which the limit applies no more.";
    }

    pub(super) BAN = "`ban`" {
        required after: Whole(1, MAX_STRIKES as u64), "3",
            "Number of refusals by this limit that begin a ban.";
        required within: LENGTH, "\"24h\"",
            "Time within which the refusals count; also how long after its end a ban makes the \
             next one longer.";
        required r#for: LENGTH, "\"1h\"", "Length of the first ban.";
        optional grow: Factor(MAX_GROWTH), "2.0",
            "Factor by which each further ban is longer (default 1).";
        optional max: LENGTH, "\"24h\"", "Maximum length of a ban; needed with `grow`.";
    }

    pub(super) SOFT = "`soft`" {
        required extra: Either(&[percent(MAX_PERCENT), Whole(1, Quota::MAX_PERMITS)]), "\"10%\"",
            "Requests over the limit in the same period: a percentage of it, rounded down, or a \
             number.";
    }

    pub(super) ELASTIC = "`elastic`" {
        required up_to: pattern(QUOTA), "\"200/1m\"",
            "Maximum while the signal is low: a larger number, in the period of the limit.";
        required r#while: Table(&WHILE), "{ signal = \"load\", below = \"70%\" }",
            "Signal that allows the extra; without a level, or with one that has ended, it does \
             not.";
    }

    WHILE = "`while`" {
        required signal: pattern(SIGNAL), "\"load\"",
            "load: of this machine; upstream.latency, upstream.errors, upstream.ROUTE.latency \
             or upstream.ROUTE.errors: of [listen.proxy] in the last 10 s; or the name of a \
             signal that PUT /v1/signals/NAME sets.";
        required below: pattern(BELOW), "\"70%\"",
            "Level of the signal from which the extra ends: a percentage, or a time for a latency.";
    }

    pub(super) PRIORITY = "`priority`" {
        required last: percent(99), "\"20%\"",
            "Part of the limit, rounded up, that other requests leave free: 1% to 99%.";
        required r#match: Table(&MATCH), "{ path = \"/health\" }",
            "Requests with priority, which may use the whole limit.";
    }

    pub(super) UNIT = "`unit`" {
        required name: name(16, ""), "\"USD\"", "Name of the unit, as people read it.";
        required decimals: Whole(0, MAX_DECIMALS as u64), "2",
            "Number of decimals: permits are counted in the smallest part.";
    }

    pub(super) RESPONSE = "a response" {
        optional status: STATUS, "429", "HTTP status of the refusal.";
        optional body: Either(&[Word(&["problem+json", "none"]), Table(&BODY)]), "\"problem+json\"",
            "Content of the body.";
        optional detail: TEXT, "\"Try again in {retry_after}.\"",
            "Field `detail` of problem+json; {retry_after} and {limit} are filled in.";
    }

    pub(super) BODY = "a body" {
        required text: TEXT, "\"Slow down: try again in {retry_after}.\"",
            "Text of the body; {retry_after} and {limit} are filled in.";
        optional r#type: TEXT, "\"text/plain; charset=utf-8\"",
            "Content type of the body (default: plain text).";
    }

    pub(super) ALERT = "`alert`" {
        required above: percent(99), "\"80%\"",
            "Part of the limit that a key has used up when it is above: 1% to 99%.";
        required r#for: HOLD, "\"2m\"",
            "Time for which a key is above, without a break, before its alert starts: 1s to 24h.";
    }
}
