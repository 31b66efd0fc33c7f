//! Workloads at the very rate of a token bucket pass whole, one by one and all at once.

use ratekeeper_core::{Gcra, Nanos, Permits, Quota};
use ratekeeper_lab::arrivals::{ArrivalPattern, Rate};
use ratekeeper_lab::workload::{MAX_REQUESTS, Traffic};
use ratekeeper_lab::{Bench, Workload, play};

#[test]
fn requests_at_the_rate_of_a_bucket_pass() {
    for permits in [1_u64, 2, 3, 5, 7, 11, 60, 100, 333, 1_000_000] {
        for seconds in [1, 7, 60, 3_600, 86_400] {
            let per = Nanos::from_secs(seconds);
            let quota = Quota::new(Permits::new(permits), per).expect("a quota");
            let rate = Rate::new(permits, per).expect("a rate");
            let spans = (1_000 / permits).max(1);
            let span = Nanos::from_secs(seconds * spans);
            assert!(rate.within(span) <= MAX_REQUESTS);
            for pattern in [ArrivalPattern::Steady, ArrivalPattern::Burst] {
                let seed = 1;
                let traffic = Traffic { rate, span, seed };
                let workload = Workload::patterned(traffic, pattern).expect("not too large");
                let bucket = Gcra::token_bucket(quota).expect("a bucket");
                let report = play(&mut Bench::new(bucket.into()), &workload, None);
                let admitted = report.total.admitted;
                assert_eq!(admitted, rate.within(span), "{quota}, {pattern:?}");
            }
        }
    }
}
