//! Limit work: metrics of requests under way: their waits, their reservations, their permits.

use super::durations::WAITS;
use super::family::MetricList;
use super::limits::LimitsSnapshot;
use super::table;

impl LimitsSnapshot {
    /// Writes the work that limits have under way: waits, reservations, loans.
    pub(super) fn encode_work(&self, out: &mut MetricList) {
        let mut series = table::QUEUE_WAIT.open(out);
        for limit in self.all() {
            if let Some(waits) = &limit.row.waits {
                series.durations(&[&limit.name], &waits.snapshot(&WAITS));
            }
        }
        let queues = self.all().filter(|it| it.row.waits.is_some());
        let lengths = queues.map(|it| ([&*it.name], it.levels.queue_length.unwrap_or_default()));
        table::QUEUE_LENGTH.each(out, lengths);
        let reserved = || {
            let all = self.all();
            all.filter_map(|limit| Some((&*limit.name, limit.levels.reservations?)))
        };
        let mut series = table::RESERVED_UNITS.open(out);
        for (name, counts) in reserved() {
            series.number(&[name], signed(counts.units));
        }
        let settlements = reserved().flat_map(|(name, counts)| {
            [
                ([name, "ok"], counts.ok),
                ([name, "over_reserve"], counts.over_reserve),
                ([name, "late"], counts.late),
                ([name, "expired"], counts.expired),
                ([name, "elsewhere"], counts.elsewhere),
            ]
        });
        table::SETTLEMENTS.each(out, settlements);
        let loans = || {
            let all = self.all();
            all.filter_map(|limit| Some(([&*limit.name], limit.levels.loans?)))
        };
        let in_use = loans().map(|(name, loans)| (name, loans.in_use));
        table::CONCURRENCY_IN_USE.each(out, in_use);
        let lapsed = loans().map(|(name, loans)| (name, loans.lapsed));
        table::LEASES_EXPIRED.each(out, lapsed);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are doubles; more than 2^53 units are not told apart"
)]
fn signed(units: i64) -> f64 {
    units as f64
}
