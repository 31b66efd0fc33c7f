//! Axis: round numbers, and the positions of values between them.
//!
//! ```text
//!   linear  0 ---- 5 ---- 10 ---- 15          log  1 ---- 10 ---- 100
//! ```

use ratekeeper_core::Nanos;

/// Units of time axes with their nanoseconds, the largest first, and the minimum count at which a
/// unit is used, because ticks are whole.
const UNITS: [(&str, u64, u64); 7] = [
    ("d", 86_400_000_000_000, 5),
    ("h", 3_600_000_000_000, 5),
    ("min", 60_000_000_000, 5),
    ("s", 1_000_000_000, 3),
    ("ms", 1_000_000, 3),
    ("us", 1_000, 3),
    ("ns", 1, 0),
];
/// Ratio of offered to admitted above which the axis is logarithmic, because a linear one would
/// show only the offered.
const FAR_APART: f64 = 4.0;

/// The axis of rates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scale {
    bottom: f64,
    top: f64,
    pub(crate) is_log: bool,
    /// Unit of the labels (`s`, `min`, `h` or `d`), and its seconds.
    unit: (&'static str, f64),
}

impl Scale {
    /// Creates an axis that covers all of these rates, offered and admitted.
    pub(crate) fn of(rates: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut offered_most, mut admitted_most, mut least) = (0.0_f64, 0.0_f64, f64::MAX);
        for (offered, admitted) in rates {
            offered_most = offered_most.max(offered);
            admitted_most = admitted_most.max(admitted);
            for rate in [offered, admitted] {
                least = if rate > 0.0 { least.min(rate) } else { least };
            }
        }
        let unit = rate_unit(offered_most.max(admitted_most));
        let top = round_up(offered_most.max(admitted_most) * unit.1) / unit.1;
        let is_log = admitted_most > 0.0 && offered_most > FAR_APART * admitted_most;
        let above_zero = (round_up(least * unit.1 / 4.0) / unit.1).min(top / 10.0);
        Self {
            bottom: if is_log { above_zero } else { 0.0 },
            top,
            is_log,
            unit,
        }
    }

    /// Returns the position of a rate, from 0 at the bottom to 1 at the top.
    pub(crate) fn height(&self, rate: f64) -> f64 {
        let height = if self.is_log {
            (rate.max(self.bottom) / self.bottom).ln() / (self.top / self.bottom).ln()
        } else {
            rate / self.top
        };
        height.clamp(0.0, 1.0)
    }

    /// Unit of the labels: `s`, `min`, `h` or `d`.
    pub(crate) const fn unit(&self) -> &'static str {
        self.unit.0
    }

    /// Returns the label of a rate, in that unit.
    pub(crate) fn label(&self, rate: f64) -> String {
        number(rate * self.unit.1)
    }

    /// Returns round rates within the axis, in ascending order.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let leads_with_two = self
                .label(self.top)
                .trim_start_matches(['0', '.'])
                .starts_with('2');
            let parts = if leads_with_two { 4 } else { 5 };
            let part = |index: i32| self.top * f64::from(index) / f64::from(parts);
            return (0..=parts).map(part).collect();
        }
        let seconds = self.unit.1;
        let first = (self.bottom * seconds).log10().floor();
        let decades = (0..24).map(|decade| 10_f64.powf(first + f64::from(decade)) / seconds);
        let within = |tick: &f64| *tick >= self.bottom * 0.999 && *tick <= self.top * 1.001;
        decades.filter(within).collect()
    }
}

/// Returns the smallest of 1, 2, 5, 10, .. that is at least `value`; 1 if `value` is not positive.
pub(crate) fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0];
    let fits = |step: &&f64| decade * **step >= value * (1.0 - 1e-9);
    decade * steps.iter().find(fits).copied().unwrap_or(10.0)
}

/// Returns the shortest of 1, 2, 5, 10, .. nanoseconds of which `most` cover `span`.
pub(crate) fn round_span(span: Nanos, most: u64) -> Nanos {
    let least = span.as_nanos().div_ceil(most.max(1)).max(1); // up: they must cover it
    let mut decade = 1_u64;
    loop {
        for step in [1, 2, 5] {
            let width = decade.saturating_mul(step);
            if width >= least {
                return Nanos::from_nanos(width);
            }
        }
        decade = decade.saturating_mul(10);
    }
}

/// Round spans of clocks, in seconds.
const CLOCK: [u64; 13] = [
    60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800,
];

/// Returns the shortest span of which `most` cover `span`, round as on clocks: 1, 2, 5 s, .. 1, 2,
/// 5, 10, 15 min, .. 1, 2, 3, 6, 12 h, 1, 2 d, and whole multiples of 1 d.
pub(crate) fn clock_span(span: Nanos, most: u64) -> Nanos {
    const DAY: u64 = 86_400_000_000_000;
    let least = span.as_nanos().div_ceil(most.max(1)); // up: they must cover it
    if least <= 30_000_000_000 {
        return round_span(span, most);
    }
    let fits = |span: &Nanos| span.as_nanos() >= least;
    let round = CLOCK.into_iter().map(Nanos::from_secs).find(fits);
    round.unwrap_or_else(|| Nanos::from_nanos(least.div_ceil(DAY).saturating_mul(DAY)))
}

/// Returns the unit in which a span of this length is shown, and its nanoseconds.
pub(crate) fn unit(span: Nanos) -> (&'static str, u64) {
    let mut units = UNITS.iter();
    let enough = units.find(|(_, nanos, enough)| span.as_nanos() / nanos >= *enough);
    enough.map_or(("ns", 1), |(name, nanos, _)| (name, *nanos))
}

/// Returns at most `most` round moments from 0 to `span`, each with its number in their unit.
pub(crate) fn moments(span: Nanos, most: u64) -> Vec<(Nanos, String)> {
    let (_, unit) = unit(span);
    let units = span.as_nanos().div_ceil(unit); // up: the last tick may lie beyond the end
    let step = round_span(Nanos::from_nanos(units), most).as_nanos();
    let ticks = (0..=most).map(|index| index.saturating_mul(step));
    ticks
        .map(|tick| {
            (
                Nanos::from_nanos(tick.saturating_mul(unit)),
                tick.to_string(),
            )
        })
        .take_while(|(moment, _)| *moment <= span)
        .collect()
}

/// Returns the shortest unit in which the rate is at least one, and its seconds: `s` for 10 a
/// second, `h` for 5 an hour.
fn rate_unit(per_second: f64) -> (&'static str, f64) {
    let units = [("s", 1.0), ("min", 60.0), ("h", 3_600.0), ("d", 86_400.0)];
    let enough = |(_, seconds): &&(&str, f64)| per_second <= 0.0 || per_second * seconds >= 0.999;
    units.iter().find(enough).copied().unwrap_or(units[3])
}

/// Formats a rate for display: `10.00/s`, `5.00/h`.
pub fn rate(per_second: f64) -> String {
    let (unit, seconds) = rate_unit(per_second);
    format!("{:.2}/{unit}", per_second * seconds)
}

/// Formats a number as short as possible: `0.5`, `12.5`, `1500`.
fn number(rate: f64) -> String {
    if rate >= 100.0 {
        return format!("{rate:.0}");
    }
    let text = format!("{rate:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_round() {
        for (value, round) in [
            (0.0, 1.0),
            (0.3, 0.5),
            (1.0, 1.0),
            (1.2, 2.0),
            (73.0, 100.0),
        ] {
            assert!((round_up(value) - round).abs() < 1e-9, "{value}");
        }
        for (value, text) in [
            (0.5, "0.5"),
            (10.0, "10"),
            (12.25, "12.25"),
            (1_500.0, "1500"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn spans_are_covered() {
        let rows = [
            (234, 60, 5_000),
            (10, 60, 200),
            (60, 60, 1_000),
            (61, 60, 2_000),
        ];
        for (secs, most, millis) in rows {
            let width = round_span(Nanos::from_secs(secs), most);
            assert_eq!(width, Nanos::from_millis(millis), "{secs} s in {most}");
        }
    }

    #[test]
    fn rows_are_as_long_as_clocks_count() {
        let minute = 60;
        let (hour, day) = (60 * minute, 24 * 60 * minute);
        let rows = [
            (4, 500),
            (100, 10_000),
            (300, 50_000),
            (10 * minute, 60_000),
            (hour, 600_000),
            (3 * day, 43_200_000),
            (7 * day, 86_400_000),
            (100 * day, 864_000_000),
        ];
        for (secs, millis) in rows {
            let width = clock_span(Nanos::from_secs(secs), 10);
            assert_eq!(width, Nanos::from_millis(millis), "{secs} s");
        }
    }

    #[test]
    fn moments_have_one_unit() {
        let shown = |span| {
            let ticks = moments(span, 5).into_iter().map(|(_, text)| text);
            (ticks.collect::<Vec<_>>().join(" "), unit(span).0)
        };
        assert_eq!(
            shown(Nanos::from_secs(234)),
            ("0 50 100 150 200".into(), "s")
        );
        assert_eq!(shown(Nanos::from_secs(3_600)), ("0 20 40 60".into(), "min"));
        assert_eq!(shown(Nanos::from_millis(10)), ("0 2 4 6 8 10".into(), "ms"));
        assert_eq!(shown(Nanos::from_nanos(1)), ("0 1".into(), "ns"));
    }

    #[test]
    fn slow_rates_are_shown_by_the_hour() {
        let rows = [
            (10.0, "10.00/s"),
            (5.0 / 3_600.0, "5.00/h"),
            (0.0, "0.00/s"),
        ];
        for (per_second, text) in rows {
            assert_eq!(rate(per_second), text);
        }
        let slow = Scale::of([(7.0 / 60.0, 0.0)].into_iter());
        let labels = slow.ticks().into_iter().map(|tick| slow.label(tick));
        assert_eq!(labels.collect::<Vec<_>>(), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(slow.unit(), "min");
    }

    #[test]
    fn a_scale_shows_the_smaller_too() {
        let linear = Scale::of([(20.0, 10.0), (0.0, 12.0)].into_iter());
        assert!(!linear.is_log);
        assert!((linear.height(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(linear.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        let ten = Scale::of([(10.0, 10.0)].into_iter());
        assert_eq!(ten.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let log = Scale::of([(1.0, 1.0), (100.0, 10.0)].into_iter());
        assert!(log.is_log);
        assert_eq!(log.ticks(), [1.0, 10.0, 100.0]);
        assert!(log.height(1.0) > 0.0 && log.height(1.0) < log.height(10.0));
        let nothing = Scale::of(std::iter::empty());
        assert!(nothing.height(0.0).abs() < 1e-9);
    }
}
