//! A quota reads the text that it prints, whatever its numbers.

use proptest::prelude::*;
use ratekeeper_core::{Nanos, Quota};

/// Small numbers, whole units, and any others.
fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![1..=10_u64, Just(most), 1..=most]
}

fn span() -> impl Strategy<Value = Nanos> {
    let units = prop_oneof![
        Just(1),
        Just(1_000),
        Just(1_000_000),
        Just(1_000_000_000),
        Just(3_600_000_000_000),
        Just(7 * 86_400_000_000_000),
    ];
    let whole = (1..=1_000_u64, units).prop_map(|(count, unit)| count * unit);
    prop_oneof![whole, 1..=u64::MAX].prop_map(Nanos::from_nanos)
}

proptest! {
    #[test]
    fn a_quota_reads_what_it_prints(
        permits in number(Quota::MAX_PERMITS),
        per in span(),
        burst in proptest::option::of(number(Quota::MAX_PERMITS)),
    ) {
        let quota = Quota::new(permits, per).unwrap();
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        prop_assert_eq!(quota.to_string().parse(), Ok(quota));
        prop_assert_eq!(per.to_string().parse(), Ok(per));
    }

    #[test]
    fn a_text_that_is_read_means_its_numbers(text in "[0-9]{1,3}(/[0-9]{1,3}(ns|us|ms|s|m|h|d|w))?( burst [0-9]{1,3})?") {
        if let Ok(quota) = text.parse::<Quota>() {
            let printed = quota.to_string();
            prop_assert_eq!(printed.parse(), Ok(quota));
            prop_assert!(quota.permits().get() > 0 && quota.burst_size().get() > 0);
        }
    }
}
