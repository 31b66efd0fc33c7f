//! Schedule: an hourly job need not run on the hour.
//!
//! Cron jobs of a thousand machines that all say `0 * * * *` are a herd by appointment. Each
//! client runs in the same period, at an offset of its own that follows from its name.
//!
//! ```text
//!   period    |-----------------------|-----------------------|
//!   client a  |     x                 |     x                 |
//!   client b  |               x       |               x       |
//! ```
//!
//! * `offset = hash(name) x period / 2^64`, which does what `hash mod period` does without
//!   its bias: the same on every machine, in every version, after
//!   every restart. Nothing is stored and nothing drifts.
//! * Trade-off: the load is even for many clients and only likely so for few.
//! * Source: G. Fowler, L. Noll, K.-P. Vo, FNV-1a (1991); D. Stafford's mixer in
//!   [`SplitMix`], since FNV alone leaves names that end alike close together.

use ratekeeper_core::{Nanos, Origin, Time};

use crate::random::{Random, SplitMix};

/// Returns by how much the runs of `client` lie behind the start of each `period`: below
/// `period`, zero for a period of zero.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_resilience::schedule;
/// let hour = Duration::from_secs(3_600);
/// assert!(schedule::offset(b"host-17", hour) < hour.into());
/// assert_eq!(schedule::offset(b"host-17", hour), schedule::offset(b"host-17", hour));
/// ```
pub fn offset(client: &[u8], period: impl Into<Nanos>) -> Nanos {
    let name = client
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    match period.into().as_nanos().checked_sub(1) {
        None => Nanos::ZERO,
        Some(last) => SplitMix::new(name).up_to(Nanos::from_nanos(last)),
    }
}

/// Returns the first run of `client` from `now` on. Periods begin at multiples since 1970.
pub fn next_run(client: &[u8], period: impl Into<Nanos>, now: Time, origin: Origin) -> Time {
    let period = period.into();
    if period == Nanos::ZERO {
        return now;
    }
    let offset = offset(client, period).as_nanos();
    let unix = origin.unix_nanos(now);
    // Time since the last run; a run at this very moment counts as a whole period ago.
    let since = unix.saturating_sub(offset) % period.as_nanos();
    let wait = match (unix < offset, since) {
        (true, _) => offset - unix,
        (false, 0) => 0,
        (false, since) => period.as_nanos() - since,
    };
    now + Nanos::from_nanos(wait)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thousand_machines_are_spread_over_the_hour() {
        let mut minutes = [0_u32; 60];
        for machine in 0..6_000 {
            let name = format!("host-{machine}");
            let offset = offset(name.as_bytes(), Nanos::from_secs(3_600));
            minutes[usize::try_from(offset.as_nanos() / 60_000_000_000).unwrap()] += 1;
        }
        // 100 each, with a standard deviation of 10.
        assert!(
            minutes.iter().all(|count| (60..140).contains(count)),
            "{minutes:?}"
        );
    }

    #[test]
    fn offsets_never_change() {
        // Computed elsewhere: a new version must not move the runs of a fleet.
        let hour = Nanos::from_secs(3_600);
        assert_eq!(offset(b"", hour).as_nanos(), OFFSETS[0]);
        assert_eq!(offset(b"host-1", hour).as_nanos(), OFFSETS[1]);
    }

    const OFFSETS: [u64; 2] = [2_749_300_290_344, 2_082_954_896_798];

    proptest! {
        #[test]
        fn runs_are_one_period_apart(
            name: Vec<u8>, period in 1_u64..1 << 50, now in 0_u64..1 << 60, origin in 0_u64..1 << 60,
        ) {
            let (period, origin) = (Nanos::from_nanos(period), Origin::from_unix_nanos(origin));
            let now = Time::from_nanos(now);
            let run = next_run(&name, period, now, origin);
            prop_assert!(run >= now && run.since(now) <= period);
            let again = next_run(&name, period, run, origin);
            prop_assert_eq!(run, again);
            let next = next_run(&name, period, run + Nanos::from_nanos(1), origin);
            prop_assert_eq!(next.since(run), period);
        }
    }
}
