//! Memory: the default budget of the counters, and warnings before it is used up.
//!
//! ```text
//!   the machine's memory     \
//!   the control group's limit > a quarter of the smallest, 256 MiB at most
//!   the address space's limit/
//! ```

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ratekeeper_store::{MemoryConfig, Usage};

use crate::context::ServiceContext;

/// The default budget is the smallest bound divided by this number,
const PART: u64 = 4;
/// and at least this number of bytes, the minimum that a policy may name.
const MIN_BUDGET: u64 = 1 << 20;
/// How often the use of memory is checked.
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// Number of checks between two warnings of keys that were pushed out: a minute.
const LOOKS_BETWEEN: u32 = 6;
/// Percentage of the budget at which a warning is given,
const NEARLY_FULL: usize = 80;
/// and below which the next warning may be given.
const EASED: usize = 70;

/// The budget of the store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoreBudget {
    pub(crate) bytes: usize,
    /// Why the budget is less than usual, though no operator asked for that.
    pub(crate) reason: Option<String>,
}

/// Returns the budget that the policy or the command line names, else the default on this machine.
pub(crate) fn budget(named: Option<usize>) -> StoreBudget {
    match named {
        Some(bytes) => StoreBudget {
            bytes,
            reason: None,
        },
        None => budget_under(Path::new("/")),
    }
}

fn budget_under(root: &Path) -> StoreBudget {
    let usual = MemoryConfig::default().budget_bytes;
    let bounds = [
        ("the machine's memory", machine(root)),
        (
            "the memory limit of the control group",
            control_groups(root),
        ),
        ("the limit of the address space", address_space(root)),
    ];
    let known = bounds
        .into_iter()
        .filter_map(|(of, bytes)| Some((bytes?, of)));
    let smallest = known.min().and_then(|(bytes, of)| {
        let quarter = usize::try_from((bytes / PART).max(MIN_BUDGET)).ok()?;
        (quarter < usual).then_some((quarter, of, bytes))
    });
    let Some((bytes, of, bound)) = smallest else {
        let (bytes, reason) = (usual, None);
        return StoreBudget { bytes, reason };
    };
    let (shown, bound) = (mebibytes(bytes), mebibytes(bound));
    StoreBudget {
        bytes,
        reason: Some(format!(
            "counters may take {shown} of memory: a quarter of {of} ({bound}); \
             `--memory` or `[store.memory] budget` sets another budget"
        )),
    }
}

/// `MemTotal:       16384000 kB`
fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// `Max address space         204800000            unlimited            bytes`
fn address_space(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the smallest limit of the process's control group and of those above it: `0::/PATH`
/// of version 2, `4:memory:/PATH` of version 1.
fn control_groups(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let names = Path::new(path).components();
        let path: PathBuf = names
            .filter(|name| matches!(name, Component::Normal(_)))
            .collect();
        let limit = |above: &Path| {
            let text = fs::read_to_string(root.join(mount).join(above).join(file)).ok()?;
            text.trim().parse::<u64>().ok() // `max`: no limit
        };
        path.ancestors().filter_map(limit).min()
    });
    limits.min()
}

/// State of the warnings that memory fills.
#[derive(Clone, Debug, Default)]
pub(super) struct Filling {
    nearly_full: bool,
    /// Number of keys pushed out since the start.
    pushed_out: u64,
    /// Number of those that a warning has counted.
    reported: u64,
    /// Number of checks until the next such warning may be given.
    quiet: u32,
}

impl Filling {
    /// Warns while memory fills.
    pub(super) fn watch(&mut self, shared: &ServiceContext) {
        let usage = shared.keeper.store().local().usage();
        shared.sink.notices(self.look(&usage));
    }

    /// Returns a warning if there is something new to report.
    fn look(&mut self, usage: &Usage) -> Option<String> {
        let pushed_out: u64 = usage.limits.iter().map(|limit| limit.evicted.budget).sum();
        let newly = self.pushed_out < pushed_out;
        self.pushed_out = pushed_out;
        self.reported = self.reported.min(pushed_out);
        self.quiet = self.quiet.saturating_sub(1);
        let used = usage.bytes.saturating_mul(100) / usage.budget_bytes.max(1);
        let was_nearly_full = self.nearly_full;
        self.nearly_full = used >= NEARLY_FULL || (was_nearly_full && used >= EASED);
        let hint = "raise the budget by `--memory` or `[store.memory] budget`";
        if newly && self.quiet == 0 {
            let count = pushed_out.saturating_sub(self.reported);
            (self.reported, self.quiet) = (pushed_out, LOOKS_BETWEEN);
            return Some(format!(
                "memory is full: new keys may begin with less than the whole limit (keys evicted \
                 since the last such line: {count}); {hint}"
            ));
        }
        (self.nearly_full && !was_nearly_full).then(|| {
            let [bytes, budget] = [usage.bytes, usage.budget_bytes].map(mebibytes);
            format!("memory is nearly full: counters take {bytes} of {budget}; {hint}")
        })
    }
}

/// Returns whole mebibytes in words, rounded down.
fn mebibytes(bytes: impl TryInto<u64>) -> String {
    format!("{} MiB", bytes.try_into().unwrap_or(u64::MAX) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_store::LimitUsage;

    /// A file system with these files.
    fn machine_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_default_budget_is_a_quarter_of_the_available_memory() {
        /// Files and their contents, the budget in MiB, and what bounds it.
        type Row<'a> = (&'a [(&'a str, &'a str)], usize, &'a str);
        const MIB: usize = 1 << 20;
        let memory = ("proc/meminfo", "MemFree: 5 kB\nMemTotal:  16777216 kB\n");
        let small = ("proc/meminfo", "MemTotal:         524288 kB\n");
        let two = ("proc/self/cgroup", "0::/pod/one\n");
        let one = ("proc/self/cgroup", "5:cpu:/a\n4:hugetlb,memory:/docker/x\n");
        let limits = "Limit   Soft Limit  Hard Limit  Units\n\
                      Max address space         209715200   unlimited   bytes\n";
        let unlimited = "Max address space         unlimited   unlimited   bytes\n";
        let rows: &[Row<'_>] = &[
            (&[], 256, ""),
            (&[memory, ("proc/self/limits", unlimited)], 256, ""),
            (&[small], 128, "machine"),
            (
                &[
                    memory,
                    two,
                    ("sys/fs/cgroup/pod/one/memory.max", "209715200\n"),
                ],
                50,
                "control group",
            ),
            (
                &[
                    memory,
                    two,
                    ("sys/fs/cgroup/pod/one/memory.max", "max\n"),
                    ("sys/fs/cgroup/pod/memory.max", "419430400\n"),
                ],
                100,
                "control group",
            ),
            (
                &[
                    memory,
                    one,
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "83886080\n"),
                ],
                20,
                "control group",
            ),
            (
                &[
                    memory,
                    one,
                    (
                        "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                ],
                256,
                "",
            ),
            (&[memory, ("proc/self/limits", limits)], 50, "address space"),
            (
                &[memory, two, ("sys/fs/cgroup/pod/one/memory.max", "1000\n")],
                1,
                "control group",
            ),
        ];
        for (files, mebibytes, why) in rows {
            let root = machine_with(files);
            let found = budget_under(root.path());
            assert_eq!(found.bytes, mebibytes * MIB, "{files:?}");
            let reason = found.reason.unwrap_or_default();
            assert!(reason.contains(why), "{reason}");
            assert_eq!(reason.is_empty(), why.is_empty(), "{reason}");
        }
    }

    #[test]
    fn warnings_come_before_memory_is_full_and_once_a_minute_after() {
        let mut filling = Filling::default();
        let mut look = |used: usize, pushed_out: u64| {
            let mut limit = LimitUsage::default();
            limit.evicted.budget = pushed_out;
            let usage = Usage {
                bytes: used << 20,
                budget_bytes: 100 << 20,
                limits: vec![limit],
            };
            filling.look(&usage)
        };
        assert_eq!(look(79, 0), None);
        let nearly = look(80, 0).unwrap();
        assert!(nearly.contains("80 MiB of 100 MiB"), "{nearly}");
        assert_eq!(look(95, 0), None, "the warning is not repeated");
        assert_eq!(look(71, 0), None);
        assert_eq!(look(80, 0), None, "the usage did not fall far enough");
        assert_eq!(look(69, 0), None);
        assert!(look(80, 0).is_some());
        assert!(look(94, 7).unwrap().contains("line: 7)"));
        for more in 1..6 {
            assert_eq!(look(94, 7 + more), None, "at most one warning a minute");
        }
        assert!(look(94, 20).unwrap().contains("line: 13)"));
        for _ in 0..10 {
            assert_eq!(look(94, 20), None, "no further key was evicted");
        }
        assert!(look(94, 21).unwrap().contains("line: 1)"));
    }
}
