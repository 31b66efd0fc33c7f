//! Counters: the limits that the store counts with.
//!
//! ```text
//!   rule or override        counter (a `Limit`)          key
//!   5 a minute              envoy:minute:DOMAIN          entries
//!   7 a minute, override    the same                     the same
//!   3 a 10 minutes          envoy:spans:2^10s            domain, span, window, entries
//! ```
//!
//! A counter is a window that holds the maximum that can be counted, so it never refuses. The
//! number that a rule grants is not part of it: two numbers for one key are two readings of one
//! counter, and a reload that changes a number changes no state.
//!
//! A span of several units comes with a call, so there can be any number of them. They share 32
//! counters, each of windows that open with a key's first request and last the next power of two
//! of seconds; the key names the window, so its hits are never counted in another, and the
//! counter lasts at least as long as the window does.

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Denials, KeyBuilder, Limit, LimitId, Nanos, Origin, Permits,
    Quota, QuotaReset, Window,
};
use strum::VariantArray;

use super::rule::LevelName;
use super::unit::WindowSpan;
use super::{EnvoyDescriptor, Unit};
use crate::KeyBytes;
use crate::model::keys::value::write_text;

/// Capacity of a counter, at which it stays.
pub(super) const CAPACITY: Permits = Permits::new(Quota::MAX_PERMITS);
/// A charge beyond the capacity fills the counter: full counters stay full.
const DENIALS: Denials = Denials::Counted;
/// Counters of multiplied spans: the last is for 2^31 s, 68 years, and longer.
const CLASSES: usize = 32;
/// Prefix of a key part that is no value of a request, because those are hashed.
const MARK: &[u8] = b"~";

/// Returns the counters of one domain, by unit.
pub(super) fn of_units(domain: &str, origin: Origin) -> Box<[Limit]> {
    let counter = |unit: &Unit| {
        let width = Nanos::from_secs(unit.seconds());
        let window = Window::fixed(quota(width), origin.phase(width));
        let window = window.expect("no unit is longer than 73 years");
        let window = window.with_denials(DENIALS);
        limit(format!("envoy:{unit}:{domain}"), window)
    };
    Unit::VARIANTS.iter().map(counter).collect()
}

/// Returns the counters of multiplied spans, for all domains, by [`class`].
pub(super) fn of_spans() -> Box<[Limit]> {
    let counter = |class| {
        let window = QuotaReset::new(quota(Nanos::from_secs(1_u64 << class)));
        let window = window.expect("no class is longer than 73 years");
        let window = window.with_denials(DENIALS);
        limit(format!("envoy:spans:2^{class}s"), window)
    };
    (0..CLASSES).map(counter).collect()
}

/// Returns the place of a span's counter: the power of two of its seconds, rounded up.
pub(super) fn class(span: WindowSpan) -> usize {
    let class = span.seconds().next_power_of_two().ilog2() as usize;
    class.min(CLASSES - 1)
}

fn quota(width: Nanos) -> Quota {
    Quota::new(CAPACITY, width).expect("neither the capacity nor a unit is zero")
}

fn limit(name: String, window: impl Into<AnyAlgorithm>) -> Limit {
    let algorithm = window.into();
    debug_assert_eq!(algorithm.capacity(), CAPACITY);
    // Counters of one name change only where the clock's zero is moved: then the keeper gives them
    // a version above the first, and their states are converted.
    Limit::new(name, LimitId::default(), algorithm)
}

/// Writes the key of a multiplied span's window.
pub(super) fn write_window(domain: &str, span: WindowSpan, number: u64, out: &mut KeyBytes) {
    write_text(domain.as_bytes(), out);
    let mut key = KeyBuilder::new(out);
    key.part(&[span.unit as u8]);
    key.part(&span.multiplier.to_le_bytes());
    key.part(&number.to_le_bytes());
}

/// Writes entries; a level that shares its counter is written as its pattern.
pub(super) fn write_entries(
    descriptor: &EnvoyDescriptor<'_>,
    levels: &[LevelName],
    out: &mut KeyBytes,
) {
    for (level, (key, value)) in descriptor.entries.iter().enumerate() {
        write_text(key.as_bytes(), out);
        match levels.get(level) {
            Some(LevelName::Shared { pattern, .. }) => {
                // Patterns come from the configuration, which bounds them.
                KeyBuilder::new(out).part(&[MARK, pattern.as_bytes()].concat());
            }
            _ => write_text(value.as_bytes(), out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(entries: &[(&str, &str)], levels: &[LevelName]) -> KeyBytes {
        let mut out = KeyBytes::default();
        let descriptor = EnvoyDescriptor {
            entries: entries.into(),
            ..EnvoyDescriptor::default()
        };
        write_entries(&descriptor, levels, &mut out);
        out
    }

    #[test]
    fn keys_never_run_together() {
        let shared = [LevelName::Shared {
            written: "a_b*".into(),
            pattern: "b*".into(),
        }];
        let keys = [
            key(&[("a_b", "c")], &[]),
            key(&[("a", "b_c")], &[]),
            key(&[("a", "b"), ("c", "")], &[]),
            key(&[("a", "b*")], &[]),
            key(&[("a", "~b*")], &[]),
            key(&[("a", "bc")], &shared),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(one), "key {at}");
        }
        assert_eq!(key(&[("a", "bd")], &shared), keys[5]);
    }

    #[test]
    fn a_class_lasts_as_long_as_its_spans() {
        let counters = of_spans();
        for (unit, multiplier, name) in [
            (Unit::Second, 1, "2^0s"),
            (Unit::Second, 2, "2^1s"),
            (Unit::Second, 3, "2^2s"),
            (Unit::Minute, 10, "2^10s"),
            (Unit::Year, 50, "2^31s"),
            (Unit::Year, u32::MAX, "2^31s"),
        ] {
            let limit = &counters[class(WindowSpan { unit, multiplier })];
            assert_eq!(&*limit.name, format!("envoy:spans:{name}"));
        }
    }
}
