//! Trend: the rates of a limit between two polls, and its refusals of the last minute.

use std::collections::{BTreeMap, VecDeque};

use super::row::{Decided, ratio};

/// Number of rates kept: a minute of them.
const RATES: usize = 60;
/// Number of rates in one character.
const STEP: usize = 5;

/// Rates of a limit.
#[derive(Debug, Default)]
pub(super) struct Trend {
    /// The decisions of each server at its last answer.
    last: BTreeMap<String, Decided>,
    /// Decisions a second between the last two polls, as in [`Decided::counts`].
    pub(super) rates: [f64; 3],
    denied: VecDeque<f64>,
}

impl Trend {
    /// Notes the decisions of the servers that answered, each since its own last answer. A server
    /// that was restarted counts from zero.
    pub(super) fn note(&mut self, decided: &[Decided]) {
        self.rates = [0.0; 3];
        for now in decided {
            let before = self.last.insert(now.server.clone(), now.clone());
            let Some(before) = before.filter(|before| before.at_ms < now.at_ms) else {
                continue;
            };
            let millis = now.at_ms - before.at_ms;
            for (kind, rate) in self.rates.iter_mut().enumerate() {
                let more = now.counts[kind].saturating_sub(before.counts[kind]);
                *rate += ratio(more.saturating_mul(1_000), millis);
            }
        }
        self.denied.push_back(self.rates[1]);
        if self.denied.len() > RATES {
            self.denied.pop_front();
        }
    }

    /// Returns a character for each 5 s: `.` for no refusals, `#` for the most of the minute.
    pub(super) fn text(&self) -> String {
        let most = self.denied.iter().copied().fold(0.0, f64::max);
        let rates: Vec<f64> = self.denied.iter().copied().collect();
        let steps = rates.chunks(STEP).map(|step| {
            let high = step.iter().copied().fold(0.0, f64::max);
            match high / most.max(f64::MIN_POSITIVE) {
                0.0 => '.',
                part if part <= 1.0 / 3.0 => ':',
                part if part <= 2.0 / 3.0 => '|',
                _ => '#',
            }
        });
        steps.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(server: &str, at_ms: u64, [all, denied]: [u64; 2]) -> Decided {
        let counts = [all, denied, 0];
        Decided {
            server: server.into(),
            at_ms,
            counts,
        }
    }

    #[test]
    fn a_server_that_misses_a_poll_makes_no_spike() {
        let mut trend = Trend::default();
        let a = |at_ms| decided("a", at_ms, [at_ms / 100, 0]);
        let b = |at_ms| decided("b", at_ms, [1_000_000 + at_ms / 50, at_ms / 100]);
        trend.note(&[a(1_000), b(1_000)]);
        trend.note(&[a(2_000), b(2_000)]);
        assert_eq!(trend.rates[..2], [30.0, 10.0]);
        trend.note(&[a(3_000)]);
        assert_eq!(trend.rates[..2], [10.0, 0.0]);
        trend.note(&[a(4_000), b(4_000)]);
        assert_eq!(trend.rates[..2], [30.0, 10.0]);
    }

    #[test]
    fn refusals_show_beside_the_most_of_the_minute() {
        let mut trend = Trend::default();
        let mut at_ms = 0;
        let mut note = |trend: &mut Trend, counts: [u64; 2], millis: u64| {
            at_ms += millis;
            trend.note(&[decided("a", at_ms, counts)]);
        };
        let mut denied = 100;
        note(&mut trend, [100, denied], 1_000);
        assert_eq!(
            trend.rates[..2],
            [0.0, 0.0],
            "counts before the first poll are no rate"
        );
        for (times, more) in [(4, 0), (5, 3), (5, 6), (5, 9), (5, 0)] {
            for _ in 0..times {
                denied += more;
                note(&mut trend, [denied, denied], 1_000);
            }
        }
        assert_eq!(trend.text(), ".:|#.");
        note(&mut trend, [denied + 8, denied + 4], 2_000);
        assert_eq!(trend.rates[..2], [4.0, 2.0]);
        note(&mut trend, [0, 0], 1_000);
        assert_eq!(trend.rates[..2], [0.0, 0.0], "a restart");
        (0..200).for_each(|_| note(&mut trend, [0, 0], 1_000));
        assert_eq!(trend.text(), "............");
    }
}
