//! Limit work: metrics of requests under way: their waits, their reservations, their permits.

use super::family::MetricList;
use super::limits::LimitsSnapshot;
use super::table;

impl LimitsSnapshot {
    /// Writes the work that limits have under way: waits, reservations, loans.
    pub(super) fn encode_work(&self, out: &mut MetricList) {
        let waits = || {
            self.all()
                .filter_map(|it| Some((&*it.name, it.waits.as_ref()?)))
        };
        if waits().next().is_some() {
            let mut series = table::QUEUE_WAIT.open(out);
            for (name, waits) in waits() {
                series.durations(&[name], waits);
            }
            let queues = self.all().filter(|it| it.waits.is_some());
            let lengths =
                queues.map(|it| ([&*it.name], it.levels.queue_length.unwrap_or_default()));
            table::QUEUE_LENGTH.each(out, lengths);
        }
        let reserved = || {
            let all = self.all();
            all.filter_map(|limit| Some((&*limit.name, limit.levels.reservations?)))
        };
        if reserved().next().is_some() {
            let mut series = table::RESERVED_UNITS.open(out);
            for (name, counts) in reserved() {
                series.number(&[name], signed(counts.units));
            }
            let mut series = table::SETTLEMENTS.open(out);
            for (name, counts) in reserved() {
                for (result, count) in [
                    ("ok", counts.ok),
                    ("over_reserve", counts.over_reserve),
                    ("late", counts.late),
                    ("expired", counts.expired),
                    ("elsewhere", counts.elsewhere),
                ] {
                    series.count(&[name, result], count);
                }
            }
        }
        let loans = || {
            let all = self.all();
            all.filter_map(|limit| Some(([&*limit.name], limit.levels.loans?)))
        };
        if loans().next().is_some() {
            let in_use = loans().map(|(name, loans)| (name, loans.in_use));
            table::CONCURRENCY_IN_USE.each(out, in_use);
            let lapsed = loans().map(|(name, loans)| (name, loans.lapsed));
            table::LEASES_EXPIRED.each(out, lapsed);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are doubles; more than 2^53 units are not told apart"
)]
fn signed(units: i64) -> f64 {
    units as f64
}
