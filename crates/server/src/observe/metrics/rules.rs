//! Rules: the counters of Envoy's rate limit service, by rule, with its meanings.
//!
//! ```text
//!   hits of a descriptor --> path of its rule, or a name with values of the call
//!                              a rule?  --> its five counters, always there
//!                              a name?  --> a row, up to MAX_CALLER_SERIES; then `other`
//! ```
//!
//! Names that carry values of calls (`detailed_metric`, `value_to_metric`) are made by
//! callers, so their rows are bounded and the rest is counted in one row. A limit that comes
//! with a call is counted by the keys of its descriptor, without values: a value may be a user.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::counter::Counter;
use arc_swap::ArcSwapOption;
use parking_lot::RwLock;
use ratekeeper_policy::envoy::{CounterSeries, EnvoyAnswer, EnvoyConfig};

/// The counters of a rule, by the names of that service.
pub(super) const KINDS: [&str; 5] = [
    "total_hits",
    "over_limit",
    "near_limit",
    "within_limit",
    "shadow_mode",
];

/// Maximum number of rows named by callers; one more holds the rest.
const MAX_CALLER_SERIES: usize = 10_000;
/// Name of that row: no rule has it, as every rule's begins with its domain and a dot.
const OTHER: &str = "other";

type RuleRow = [Counter; KINDS.len()];
type RuleRows = BTreeMap<Arc<str>, Arc<RuleRow>>;

#[derive(Debug, Default)]
pub(super) struct RuleTable {
    rows: RwLock<AllRows>,
    numbered: ArcSwapOption<Numbered>,
}

/// Rows by name. The two kinds have separate bounds, so that names made by callers never take
/// the place of a rule.
#[derive(Debug, Default)]
struct AllRows {
    /// One for each rule of the configuration in force.
    rules: RuleRows,
    /// Named by callers, at most [`MAX_CALLER_SERIES`] and `other`.
    callers: RuleRows,
}

/// The rows of one configuration, by the numbers of its rules.
#[derive(Debug)]
pub(super) struct Numbered {
    config: Arc<EnvoyConfig>,
    rows: Vec<Arc<RuleRow>>,
}

impl RuleTable {
    /// Makes a row for each rule of `config`, which comes into force. Rows of rules that stay keep
    /// their counts; rows of rules that went are dropped.
    pub(super) fn install(&self, config: &Arc<EnvoyConfig>) -> Arc<Numbered> {
        let mut rows = self.rows.write();
        let mut rules = RuleRows::new();
        let mut numbers = Vec::new();
        for rule in config.rules() {
            let known = rows
                .rules
                .get(&*rule.path)
                .or(rows.callers.get(&*rule.path));
            let known = known.cloned().unwrap_or_default();
            let row = rules.entry(Arc::clone(&rule.path)).or_insert(known);
            numbers.push(Arc::clone(row));
        }
        rows.callers.retain(|name, _| !rules.contains_key(name));
        rows.rules = rules;
        let numbered = Arc::new(Numbered {
            config: Arc::clone(config),
            rows: numbers,
        });
        self.numbered.store(Some(Arc::clone(&numbered)));
        numbered
    }

    /// Counts the hits of a call.
    pub(super) fn record(&self, answer: &EnvoyAnswer<'_>, config: &Arc<EnvoyConfig>) {
        let known = self.numbered.load_full();
        let known = known.filter(|known| Arc::ptr_eq(&known.config, config));
        let numbered = known.unwrap_or_else(|| self.install(config));
        for hits in answer
            .statuses
            .iter()
            .filter_map(|status| status.hits.as_ref())
        {
            let counts = [
                hits.total_hits,
                hits.over_limit,
                hits.near_limit,
                hits.within_limit,
                hits.shadow_mode,
            ];
            match &hits.series {
                CounterSeries::Rule(rule) => {
                    if let Some(row) = numbered.rows.get(rule.index()) {
                        add(row, counts);
                    }
                }
                CounterSeries::Named(name) => add(&self.row(name), counts),
            }
        }
    }

    fn row(&self, name: &str) -> Arc<RuleRow> {
        let rows = self.rows.read();
        if let Some(row) = rows.rules.get(name).or(rows.callers.get(name)) {
            return Arc::clone(row);
        }
        drop(rows);
        let mut rows = self.rows.write();
        let callers = &mut rows.callers;
        let fits = callers.len() < MAX_CALLER_SERIES || callers.contains_key(name);
        let name = if fits { name } else { OTHER };
        Arc::clone(callers.entry(name.into()).or_default())
    }

    /// Returns names and counts: first the rules, then the rows named by callers, each in order.
    pub(super) fn snapshot(&self) -> Vec<(Arc<str>, [u64; KINDS.len()])> {
        let rows = self.rows.read();
        let counts = |row: &RuleRow| row.each_ref().map(Counter::count);
        let all = rows.rules.iter().chain(&rows.callers);
        all.map(|(name, row)| (Arc::clone(name), counts(row)))
            .collect()
    }
}

fn add(row: &RuleRow, counts: [u64; KINDS.len()]) {
    for (counter, count) in row.iter().zip(counts) {
        if count > 0 {
            counter.add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Origin;
    use ratekeeper_policy::envoy::{EnvoySettings, File, load};

    fn config(text: &str) -> Arc<EnvoyConfig> {
        let file = File {
            name: "a.yaml",
            text,
        };
        Arc::new(
            load(&[file], EnvoySettings::default(), Origin::UNIX)
                .unwrap()
                .config,
        )
    }

    #[test]
    fn names_of_callers_are_bounded_and_take_no_place_of_a_rule() {
        let rules = RuleTable::default();
        for number in 0..MAX_CALLER_SERIES + 10 {
            add(&rules.row(&format!("d.key_{number}")), [1, 0, 0, 1, 0]);
        }
        add(&rules.row("d.key_0"), [2, 2, 0, 0, 0]);
        let row = |wanted: &str| {
            let rows = rules.snapshot();
            let found = rows.into_iter().find(|(name, _)| &**name == wanted);
            found.map(|(_, counts)| counts)
        };
        assert_eq!(rules.snapshot().len(), MAX_CALLER_SERIES + 1);
        assert_eq!(row("d.key_0"), Some([3, 2, 0, 1, 0]));
        assert_eq!(row(OTHER), Some([10, 0, 0, 10, 0]));

        // A rule that comes when the rows of callers are full has a row of its own.
        let one = "{ key: late, rate_limit: { unit: hour, requests_per_unit: 1 } }";
        rules.install(&config(&format!("domain: d\ndescriptors: [{one}]")));
        assert_eq!(row("d.late"), Some([0; 5]));
        add(&rules.row("d.late"), [1, 0, 0, 1, 0]);

        // It keeps its counts while it stays, and loses its row when it goes.
        let two = "{ key: other, rate_limit: { unit: hour, requests_per_unit: 1 } }";
        rules.install(&config(&format!("domain: d\ndescriptors: [{one}, {two}]")));
        assert_eq!(row("d.late"), Some([1, 0, 0, 1, 0]));
        rules.install(&config(&format!("domain: d\ndescriptors: [{two}]")));
        assert_eq!(row("d.late"), None);
    }
}
