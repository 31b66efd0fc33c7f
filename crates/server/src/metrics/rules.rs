//! Rules: what Envoy's rate limit service counted, by rule, with its meanings.
//!
//! ```text
//!   hits of a descriptor --> path of its rule, or a name with values of the call
//!                              known? --> its five counters
//!                              new?   --> a row, up to MAX_SERIES; then the row `other`
//! ```
//!
//! Names that carry values of calls (`detailed_metric`, `value_to_metric`) are made by
//! whoever calls: so rows are bounded, and what does not fit is counted together.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwapOption;
use ratekeeper_policy::envoy::{Answer, Config, Series};

use super::Counter;

/// What is counted, as that service calls it.
pub(super) const KINDS: [&str; 5] = [
    "total_hits",
    "over_limit",
    "near_limit",
    "within_limit",
    "shadow_mode",
];

/// Rows; one more holds what does not fit.
const MAX_SERIES: usize = 10_000;
/// The name of that one: no rule has it, as every rule's begins with its domain and a dot.
const OTHER: &str = "other";

type Row = [Counter; KINDS.len()];

#[derive(Debug, Default)]
pub(super) struct Rules {
    rows: RwLock<BTreeMap<String, Arc<Row>>>,
    numbered: ArcSwapOption<Numbered>,
}

/// The rows of one configuration, by the numbers of its rules.
#[derive(Debug)]
struct Numbered {
    config: Arc<Config>,
    rows: Vec<Arc<Row>>,
}

impl Rules {
    /// Counts what a call added.
    pub(super) fn record(&self, answer: &Answer<'_>, config: &Arc<Config>) {
        let numbered = self.numbered(config);
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
                Series::Rule(rule) => {
                    if let Some(row) = numbered.rows.get(rule.index()) {
                        add(row, counts);
                    }
                }
                Series::Named(name) => add(&self.row(name), counts),
            }
        }
    }

    /// The rows of `config`, made when it is first seen.
    fn numbered(&self, config: &Arc<Config>) -> Arc<Numbered> {
        let known = self.numbered.load_full();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.config, config)) {
            return known;
        }
        let rules = config.rules().into_iter();
        let numbered = Arc::new(Numbered {
            config: Arc::clone(config),
            rows: rules.map(|rule| self.row(&rule.path)).collect(),
        });
        self.numbered.store(Some(Arc::clone(&numbered)));
        numbered
    }

    fn row(&self, name: &str) -> Arc<Row> {
        let known = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = known.get(name) {
            return Arc::clone(row);
        }
        drop(known);
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let fits = rows.len() < MAX_SERIES || rows.contains_key(name);
        let name = if fits { name } else { OTHER };
        Arc::clone(rows.entry(name.to_owned()).or_default())
    }

    /// Names and counts, in order.
    pub(super) fn snapshot(&self) -> Vec<(String, [u64; KINDS.len()])> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let counts = |row: &Row| row.each_ref().map(Counter::count);
        let rows = rows.iter().map(|(name, row)| (name.clone(), counts(row)));
        rows.collect()
    }
}

fn add(row: &Row, counts: [u64; KINDS.len()]) {
    for (counter, count) in row.iter().zip(counts) {
        if count > 0 {
            counter.add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_make_up_is_bounded() {
        let rules = Rules::default();
        for number in 0..MAX_SERIES + 10 {
            add(&rules.row(&format!("d.key_{number}")), [1, 0, 0, 1, 0]);
        }
        add(&rules.row("d.key_0"), [2, 2, 0, 0, 0]);
        let rows = rules.snapshot();
        assert_eq!(rows.len(), MAX_SERIES + 1);
        let row = |wanted: &str| rows.iter().find(|(name, _)| name == wanted).unwrap().1;
        assert_eq!(row("d.key_0"), [3, 2, 0, 1, 0]);
        assert_eq!(row(OTHER), [10, 0, 0, 10, 0]);
    }
}
