//! Every law and oracle, for every algorithm: everywhere on small parameters, along random
//! lives on large ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../algorithms/cases.rs"]
mod cases;
mod everywhere;
mod lives;
mod pairs;

use std::sync::Arc;

use ratekeeper_core::{
    BanTerms, Calendar, CalendarWindow, Denials, Edge, Interval, Nanos, Origin, Permits, Quota,
    Time,
};

const EDGES: [Edge; 3] = [Edge::Drop, Edge::Full, Edge::Weighted];
const DENIALS: [Denials; 2] = [Denials::Free, Denials::Counted];

fn quota(permits: u64, nanos: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(nanos)).unwrap()
}

fn nanos(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

/// Windows of unequal length, over and over, like days when the clocks change.
#[derive(Clone, Debug)]
struct Uneven {
    lengths: &'static [u64],
    unit: u64,
}

impl Calendar for Uneven {
    fn window_at(&self, now: Time) -> CalendarWindow {
        let whole = self.lengths.iter().sum::<u64>() * self.unit;
        let mut start = now.as_nanos() / whole * whole;
        for length in self.lengths.iter().cycle() {
            let end = start.saturating_add(length * self.unit);
            if now.as_nanos() < end || end == u64::MAX {
                let (start, end) = (Time::from_nanos(start), Time::from_nanos(end));
                return CalendarWindow { start, end };
            }
            start = end;
        }
        unreachable!("the lengths repeat for ever")
    }
    fn name(&self) -> &'static str {
        "uneven"
    }
    fn shortest(&self) -> Nanos {
        nanos(self.lengths.iter().min().unwrap() * self.unit)
    }
    fn on_clock(&self, _origin: Origin) -> Arc<dyn Calendar> {
        Arc::new(self.clone())
    }
}

/// Interval buckets of a third of the quota each third of its span, on a grid first.
fn intervals(quota: Quota) -> Vec<Interval> {
    let (most, third) = (quota.permits(), nanos(quota.per().as_nanos().div_ceil(3)));
    let refill = Permits::new(most.get().div_ceil(3));
    let on_grid = Interval::on_grid(most, refill, third, nanos(1));
    let from_first = Interval::from_first(most, refill, third);
    [on_grid, from_first].into_iter().flatten().collect()
}

fn ban_terms(after: u64, within: u64, first: u64, longest: u64) -> BanTerms {
    BanTerms {
        strikes: quota(after, within),
        first: nanos(first),
        growth_thousandths: 1_500,
        longest: nanos(longest),
    }
}
