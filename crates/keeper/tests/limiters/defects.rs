//! Mistakes that the first users of 0.1 found, each with the tests that fail if it comes back.
//!
//! Beside them stand checks that are no tests: `cargo xtask publish` for licences and metadata of
//! packages, `cargo xtask features` for features alone, the weight of a limiter in `light.rs`.

use std::fs;
use std::path::Path;

/// A mistake; then files, from the root of the repository, and names of tests in them.
type Row = (&'static str, &'static [(&'static str, &'static str)]);

const DEFECTS: &[Row] = &[
    (
        "processes that share a Redis server by the obvious configuration each admitted the limit",
        &[
            (
                "crates/keeper/tests/tower/servers/redis.rs",
                "processes_share_one_limit_whenever_they_were_started",
            ),
            (
                "crates/keeper/tests/tower/servers/redis.rs",
                "a_store_built_by_the_caller_follows_the_clock_of_its_keeper",
            ),
            (
                "crates/keeper/tests/tower/servers/limits.rs",
                "six_processes_admit_one_limit_together_by_every_algorithm",
            ),
        ],
    ),
    (
        "a program that did not tend its store never went back to Redis after an outage",
        &[
            (
                "crates/store/tests/fallback/health.rs",
                "requests_alone_detect_that_the_store_is_back",
            ),
            (
                "crates/keeper/tests/tower/servers/redis.rs",
                "a_redis_that_starts_late_is_used",
            ),
        ],
    ),
    (
        "the taught idiom served what never fits, and the example of a budget refilled it",
        &[
            ("crates/keeper/src/lib.rs", "FailOpenIdioms"),
            (
                "examples/tests/run.rs",
                "examples_print_the_expected_output",
            ),
        ],
    ),
    (
        "a settlement forgave debts of long windows",
        &[
            (
                "crates/keeper/tests/limiters/limiter.rs",
                "a_settlement_forgives_no_debt",
            ),
            (
                "crates/keeper/tests/limiters/keyed.rs",
                "each_key_is_settled_separately",
            ),
        ],
    ),
    (
        "a full store refused newcomers, and did not heal",
        &[
            (
                "crates/store/tests/memory/full/newcomers.rs",
                "clients_that_ask_once_do_not_lock_others_out",
            ),
            (
                "crates/store/tests/memory/full/newcomers.rs",
                "every_algorithm_serves_newcomers",
            ),
        ],
    ),
    (
        "a clock that counts from 1970 refused everything",
        &[
            (
                "crates/keeper/tests/limiters/any_clock.rs",
                "a_limiter_decides_alike_on_any_clock",
            ),
            (
                "crates/keeper/tests/limiters/any_clock.rs",
                "a_keyed_limiter_decides_alike_on_any_clock",
            ),
            (
                "crates/keeper/tests/limiters/any_clock.rs",
                "a_policy_decides_alike_on_any_clock",
            ),
        ],
    ),
    (
        "the field `t` of an answer was the end of a window, not of the wait",
        &[(
            "crates/keeper/tests/policies/fields_come_true.rs",
            "the_fields_of_an_answer_hold",
        )],
    ),
    (
        "the client layer could not be told that a refused POST was not processed",
        &[
            (
                "crates/resilience/tests/clients/layer/retry_if.rs",
                "a_caller_chooses_which_refusals_did_nothing",
            ),
            (
                "crates/resilience/tests/clients/layer/retry_if.rs",
                "options_of_a_request_win_over_the_settings_of_its_client",
            ),
        ],
    ),
    (
        "a limiter did not follow tokio's paused time",
        &[(
            "crates/keeper/tests/limiters/tokio_clock.rs",
            "paused_time_advances_by_the_wait_of_the_limit",
        )],
    ),
    (
        "limits in code could not share a store, nor be charged together, settled or not at all",
        &[
            (
                "crates/keeper/src/limits/tests.rs",
                "one_refusal_charges_nothing_and_a_settlement_corrects_all",
            ),
            (
                "crates/keeper/tests/tower/servers/limits.rs",
                "a_settlement_is_seen_by_every_process",
            ),
        ],
    ),
    (
        "keys were bytes, and composite ones ambiguous",
        &[
            (
                "crates/keeper/src/keyed/key.rs",
                "tuples_have_equal_bytes_only_if_they_are_equal",
            ),
            (
                "crates/keeper/src/keyed/by_hash.rs",
                "keys_have_equal_bytes_only_if_they_are_equal",
            ),
        ],
    ),
    (
        "no guard gave permits back, and no reservation could be kept",
        &[
            (
                "crates/keeper/tests/limiters/owned.rs",
                "a_guard_gives_its_permits_back_and_a_refusal_gives_nothing",
            ),
            (
                "crates/keeper/tests/limiters/owned.rs",
                "a_panic_gives_the_permits_back",
            ),
        ],
    ),
    (
        "no spans, events, counters or serde",
        &[
            (
                "crates/keeper/src/spans.rs",
                "a_wait_has_a_span_and_a_call_that_is_served_at_once_has_none",
            ),
            (
                "crates/keeper/src/observe.rs",
                "refusals_are_events_without_keys_and_a_hook_sees_them",
            ),
            (
                "crates/keeper/src/observe.rs",
                "limits_beyond_the_maximum_share_their_counters",
            ),
            (
                "crates/core/src/serde_forms.rs",
                "values_are_read_as_they_are_written",
            ),
        ],
    ),
    (
        "a quota did not read what it prints, and one text was two limits",
        &[
            (
                "crates/core/tests/algorithms/quota_text.rs",
                "a_quota_reads_what_it_prints",
            ),
            (
                "crates/keeper/tests/limiters/configured.rs",
                "the_same_text_is_the_same_limit",
            ),
        ],
    ),
    (
        "a server without addresses of its connections had one bucket for all",
        &[
            (
                "crates/keeper/tests/tower/keys.rs",
                "a_missing_extension_is_an_error_of_the_server",
            ),
            (
                "crates/keeper/tests/tower/keys.rs",
                "addresses_are_found_in_the_extension_that_is_named",
            ),
        ],
    ),
    (
        "stacked layers spent the outer limit for a request that the inner one refused",
        &[(
            "crates/keeper/tests/tower/together.rs",
            "a_refused_request_is_charged_by_no_limit",
        )],
    ),
];

#[test]
fn every_defect_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (defect, tests) in DEFECTS {
        assert!(!tests.is_empty(), "{defect}: no test");
        for (file, name) in *tests {
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(is_test(&text, name), "{defect}: no test `{name}` in {file}");
        }
    }
}

/// Returns true if `text` has a test of this name: a function with `#[test]` or its like, or an item
/// of documentation tests.
fn is_test(text: &str, name: &str) -> bool {
    let mut before = "";
    text.lines().map(str::trim).any(|line| {
        let marks = std::mem::replace(&mut before, line);
        let function = format!("fn {name}(");
        let is_function =
            line.starts_with(&function) || line.starts_with(&format!("async {function}"));
        let is_marked = marks.starts_with("#[test]") || marks.starts_with("#[tokio::test");
        (is_function && is_marked)
            || (line == format!("struct {name};") && marks == "#[cfg(doctest)]")
    })
}
