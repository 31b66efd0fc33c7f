//! Processor: its counter, where the system vouches that it is steady.
//!
//! ```text
//!   Linux          | the kernel names it among its clock sources, from which it strikes one that
//!                  | stops, changes its rate, or differs between processors
//!   macOS on ARM   | by the architecture
//!   others         | nothing: the machine's clock is read, in 20 to 50 ns in place of 9
//! ```

use std::fs;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
pub(super) use tick_counter::aarch64_tick_counter as count;
#[cfg(target_arch = "x86_64")]
pub(super) use tick_counter::x86_64_tick_counter as count;

use crate::counter::CounterStep;

/// A processor without a counter that programs can read.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const fn count() -> u64 {
    0
}

/// The clock sources that Linux may use, by their names.
const LINUX_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
/// Those that are the processor's counter.
const COUNTERS: [&str; 2] = ["tsc", "arch_sys_counter"];

/// Returns the counter's step, measured once for the process by `nanos`, the machine's clock; `None`
/// if the counter cannot be relied on.
pub(super) fn step(nanos: impl Fn() -> u64) -> Option<CounterStep> {
    static STEP: OnceLock<Option<CounterStep>> = OnceLock::new();
    let measured = || is_steady().then(|| CounterStep::measure(count, nanos))?;
    *STEP.get_or_init(measured)
}

fn is_steady() -> bool {
    if cfg!(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )) {
        let sources = fs::read_to_string(LINUX_SOURCES).unwrap_or_default();
        return sources
            .split_whitespace()
            .any(|name| COUNTERS.contains(&name));
    }
    cfg!(all(target_os = "macos", target_arch = "aarch64"))
}
