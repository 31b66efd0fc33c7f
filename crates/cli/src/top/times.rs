//! Times: how long decisions took in the last polls, of all servers together.

use std::collections::{BTreeMap, VecDeque};

/// Number of polls that count.
const POLLS: usize = 10;

/// The decisions of a server since its start, by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerTimes {
    pub(crate) server: String,
    /// Upper bounds in seconds, infinite for the last, and counts.
    pub(crate) buckets: Vec<(f64, u64)>,
}

/// Times of the decisions of the last polls.
#[derive(Debug, Default)]
pub(super) struct Times {
    last: BTreeMap<String, Vec<(f64, u64)>>,
    /// The decisions between two polls, by time.
    recent: VecDeque<Vec<(f64, u64)>>,
}

impl Times {
    /// Notes the times of the servers that answered, each since its own last answer.
    pub(super) fn note(&mut self, servers: &[ServerTimes]) {
        let mut sum: Vec<(f64, u64)> = Vec::new();
        for now in servers {
            let before = self.last.insert(now.server.clone(), now.buckets.clone());
            let Some(before) = before.filter(|it| it.len() == now.buckets.len()) else {
                continue;
            };
            sum.resize(now.buckets.len().max(sum.len()), (0.0, 0));
            for ((all, (bound, count)), (_, before)) in sum.iter_mut().zip(&now.buckets).zip(before)
            {
                *all = (*bound, all.1 + count.saturating_sub(before));
            }
        }
        self.recent.push_back(sum);
        if self.recent.len() > POLLS {
            self.recent.pop_front();
        }
    }

    /// Returns the time within which that part of the decisions was made, in words; `None` without
    /// decisions.
    pub(super) fn within(&self, percent: u64) -> Option<String> {
        let mut all: Vec<(f64, u64)> = Vec::new();
        for poll in &self.recent {
            all.resize(poll.len().max(all.len()), (0.0, 0));
            for (all, (bound, count)) in all.iter_mut().zip(poll) {
                *all = (*bound, all.1 + count);
            }
        }
        let count: u64 = all.iter().map(|(_, count)| count).sum();
        let wanted = (count * percent).div_ceil(100); // rounded up: at least so many
        let mut sum = 0;
        let reached = all.iter().position(|(_, count)| {
            sum += count;
            wanted > 0 && sum >= wanted
        })?;
        let (bound, _) = all[reached];
        if bound.is_finite() {
            return Some(words(bound));
        }
        let (last, _) = all.get(reached.checked_sub(1)?)?;
        Some(format!("above {}", words(*last)))
    }
}

fn words(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0} us", seconds * 1e6),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(server: &str, counts: [u64; 3]) -> ServerTimes {
        let bounds = [0.000_1, 0.01, f64::INFINITY];
        ServerTimes {
            server: server.into(),
            buckets: bounds.into_iter().zip(counts).collect(),
        }
    }

    #[test]
    fn the_last_polls_of_all_servers_count() {
        let mut times = Times::default();
        times.note(&[of("a", [50, 50, 50]), of("b", [0, 0, 0])]);
        assert_eq!(times.within(99), None, "counts before the first poll");
        times.note(&[of("a", [149, 50, 50]), of("b", [0, 1, 0])]);
        assert_eq!(times.within(99).as_deref(), Some("100 us"));
        assert_eq!(times.within(100).as_deref(), Some("10 ms"));
        times.note(&[of("b", [0, 1, 9])]);
        assert_eq!(times.within(99).as_deref(), Some("above 10 ms"));
        (0..POLLS).for_each(|_| times.note(&[of("b", [0, 1, 9])]));
        assert_eq!(times.within(99), None);
    }
}
