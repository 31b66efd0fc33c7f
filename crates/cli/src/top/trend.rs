//! Trend: the rates of a limit between two polls, and its refusals of the last minute.

use std::collections::VecDeque;

use super::board::ratio;

/// Number of rates kept: a minute of them.
const RATES: usize = 60;
/// Number of rates in one character.
const STEP: usize = 5;

/// Rates of a limit.
#[derive(Debug, Default)]
pub(super) struct Trend {
    /// Decisions since the start of the servers at the last poll: all, and those that denied.
    decided: Option<[u64; 2]>,
    /// Decisions a second between the last two polls: all, and those that denied.
    pub(super) rates: [f64; 2],
    denied: VecDeque<f64>,
}

impl Trend {
    /// Notes the decisions `millis` after the last ones. A server that was restarted counts from
    /// zero.
    pub(super) fn note(&mut self, decided: [u64; 2], millis: u64) {
        let before = self.decided.replace(decided).unwrap_or(decided);
        let rate = |kind: usize| {
            let more = decided[kind].saturating_sub(before[kind]);
            ratio(more.saturating_mul(1_000), millis)
        };
        self.rates = [rate(0), rate(1)];
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
    #![expect(clippy::float_cmp, reason = "whole numbers, which are exact")]

    use super::*;

    #[test]
    fn refusals_show_beside_the_most_of_the_minute() {
        let mut trend = Trend::default();
        let mut denied = 100;
        trend.note([100, denied], 1_000);
        assert_eq!(
            trend.rates,
            [0.0, 0.0],
            "counts before the first poll are no rate"
        );
        for (times, more) in [(4, 0), (5, 3), (5, 6), (5, 9), (5, 0)] {
            for _ in 0..times {
                denied += more;
                trend.note([denied, denied], 1_000);
            }
        }
        assert_eq!(trend.text(), ".:|#.");
        trend.note([denied + 8, denied + 4], 2_000);
        assert_eq!(trend.rates, [4.0, 2.0]);
        trend.note([0, 0], 1_000);
        assert_eq!(trend.rates, [0.0, 0.0], "a restart");
        (0..200).for_each(|_| trend.note([0, 0], 1_000));
        assert_eq!(trend.text(), "............");
    }
}
