//! Machine: the hardware of the measurement, and the memory of this process.

use std::fs;

/// Returns processor model and number of cores.
pub(crate) fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown").to_owned();
    format!("machine: {model}, {cores} cores, load at start {load}")
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> usize {
    const PAGE: usize = 4096;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * PAGE
}
