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
            let mut series = table::QUEUE_LENGTH.open(out);
            for limit in self.all().filter(|limit| limit.waits.is_some()) {
                let length = limit.levels.queue_length.unwrap_or_default();
                series.level(&[&limit.name], length);
            }
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
            all.filter_map(|limit| Some((&*limit.name, limit.levels.loans?)))
        };
        if loans().next().is_some() {
            let mut series = table::CONCURRENCY_IN_USE.open(out);
            for (name, loans) in loans() {
                series.level(&[name], loans.in_use);
            }
            let mut series = table::LEASES_EXPIRED.open(out);
            for (name, loans) in loans() {
                series.count(&[name], loans.lapsed);
            }
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
