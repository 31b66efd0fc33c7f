//! Machine load: the signal `load` of elastic limits, read once a second.
//!
//! The load of the last minute, as the system counts it, divided by the number of processors: at
//! 100 % as many tasks want to run as can. If it cannot be read, the signal ends by itself within
//! [`LASTS`], and limits are not elastic.

use std::thread::available_parallelism;
use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_policy::LOAD;

use crate::context::ServiceContext;

/// How often it is read.
pub(super) const READ: Duration = Duration::from_secs(1);
/// How long a reading counts, if no other follows.
const LASTS: Nanos = Nanos::from_secs(5);
/// Where Linux states it.
const FILE: &str = "/proc/loadavg";
/// Where Linux states the processors that it runs tasks on.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Sets the signal, if a limit of the policy has it.
pub(super) fn read(shared: &ServiceContext, processors: usize) {
    let policy = shared.keeper.look_at_policy();
    let is_used = policy.signals().any(|signal| signal.name() == LOAD);
    drop(policy);
    if !is_used {
        return;
    }
    // A file of the kernel: reading it waits for no disk.
    let text = std::fs::read_to_string(FILE).unwrap_or_default();
    if let Some(load) = load(&text, processors) {
        shared.keeper.set_signal(LOAD, load, LASTS);
    }
}

/// Returns the number of processors that the load is of: those of the machine, also in a container
/// with fewer.
pub(super) fn processors() -> usize {
    let online = std::fs::read_to_string(ONLINE).unwrap_or_default();
    let online = online_processors(online.trim());
    online.unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
}

/// Counts the processors of a list such as `0-3,8`.
fn online_processors(text: &str) -> Option<usize> {
    text.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            last.checked_sub(first)?.checked_add(1)
        })
        .sum()
}

/// Returns the load in parts per million of the processors, rounded up, so that no reading is taken
/// for a lower one.
fn load(text: &str, processors: usize) -> Option<u32> {
    let (whole, hundredths) = text.split(' ').next()?.split_once('.')?;
    let hundredths = hundredths.parse::<u64>().ok().filter(|&part| part < 100)?;
    let load = whole.parse::<u64>().ok()?.checked_mul(100)? + hundredths;
    let ppm = load.saturating_mul(10_000).div_ceil(processors as u64);
    Some(u32::try_from(ppm).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_a_list_are_counted() {
        for (list, count) in [
            ("0", Some(1)),
            ("0-63", Some(64)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-1", None),
            ("0-x", None),
        ] {
            assert_eq!(online_processors(list), count, "{list:?}");
        }
    }

    #[test]
    fn the_first_number_is_divided_by_the_processors() {
        for (text, processors, ppm) in [
            ("0.00 0.01 0.05 1/123 4567\n", 2, Some(0)),
            ("0.70 9.99 9.99 1/123 4567\n", 1, Some(700_000)),
            ("1.40 0.00 0.00 1/123 4567\n", 2, Some(700_000)),
            ("0.01 0.00 0.00 1/123 4567\n", 3, Some(3_334)),
            ("99999999.99 0 0", 1, Some(u32::MAX)),
            ("", 1, None),
            ("1", 1, None),
            ("1.5x", 1, None),
            ("-1.50", 1, None),
        ] {
            assert_eq!(load(text, processors), ppm, "{text:?}");
        }
    }
}
