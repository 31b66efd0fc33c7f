//! Trend: the rates of a limit between two polls, and its refusals of the last minute.

use std::collections::VecDeque;

use super::row::ratio;

/// Number of rates kept: a minute of them.
const RATES: usize = 60;
/// Number of rates in one character.
const STEP: usize = 5;

/// Rates of a limit.
#[derive(Debug, Default)]
pub(super) struct Trend {
    /// Time of the last answer, in milliseconds since 1970, and the decisions until then.
    last: Option<(u64, [u64; 2])>,
    /// Decisions a second between the last two polls, as in `BoardRow::decided`.
    pub(super) rates: [f64; 2],
    denied: VecDeque<f64>,
}

impl Trend {
    /// Notes the decisions until a time. A service that was restarted counts from zero.
    pub(super) fn note(&mut self, at_ms: u64, decided: [u64; 2]) {
        let before = self.last.replace((at_ms, decided));
        self.rates = match before.filter(|(before_ms, _)| *before_ms < at_ms) {
            None => [0.0; 2],
            Some((before_ms, before)) => std::array::from_fn(|kind| {
                let more = decided[kind].saturating_sub(before[kind]);
                ratio(more.saturating_mul(1_000), at_ms - before_ms)
            }),
        };
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

    #[test]
    fn refusals_show_beside_the_most_of_the_minute() {
        let mut trend = Trend::default();
        let mut at_ms = 0;
        let mut note = |trend: &mut Trend, decided: [u64; 2], millis: u64| {
            at_ms += millis;
            trend.note(at_ms, decided);
        };
        let mut denied = 100;
        note(&mut trend, [100, denied], 1_000);
        assert_eq!(
            trend.rates[..],
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
        assert_eq!(trend.rates[..], [4.0, 2.0]);
        note(&mut trend, [0, 0], 1_000);
        assert_eq!(trend.rates[..], [0.0, 0.0], "a restart");
        (0..200).for_each(|_| note(&mut trend, [0, 0], 1_000));
        assert_eq!(trend.text(), "............");
    }
}
