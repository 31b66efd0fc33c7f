//! Trial: one limit, one key, a list of moments; the outcomes, drawn.

use ratekeeper_core::{Nanos, Permits, Time, Verdict};
use ratekeeper_lab::{Bench, KeyId};
use ratekeeper_policy::Rule;

use crate::output::{BAD, GOOD, WARN, paint_runs};

/// Outcome of one check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Allowed,
    /// Allowed after a wait (shaping).
    Delayed,
    Refused,
}

/// Outcomes of a series of checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trial {
    pub(crate) marks: Vec<Mark>,
    /// Time from the last check until the next would pass; `None` if the cost is above the capacity
    /// of the limit.
    pub(crate) next: Option<Nanos>,
}

/// The only key of a trial.
const KEY: KeyId = 0;

impl Trial {
    /// Checks `rule` at each of the `moments`, for one key, in virtual time.
    pub(crate) fn run(rule: &Rule, moments: &[Nanos], cost: Permits) -> Self {
        let mut bench = Bench::new(rule.limit.algorithm.clone());
        let moments = moments.iter().map(|moment| Time::ZERO + *moment);
        let mut now = Time::ZERO;
        let marks = moments.map(|moment| {
            now = moment;
            Mark::of(bench.decide(KEY, now, cost).verdict)
        });
        let marks = marks.collect();
        let next = bench.look(KEY, now, cost).verdict;
        Self {
            marks,
            next: next.wait().or(next.retry_after()),
        }
    }

    pub(crate) fn count(&self, mark: Mark) -> usize {
        self.marks.iter().filter(|found| **found == mark).count()
    }

    /// Returns the number of checks that one character of the bar stands for.
    pub(crate) fn checks_per_cell(&self) -> usize {
        self.marks.len().div_ceil(MAX_CELLS).max(1)
    }

    /// Returns the bar: `#` allowed, `~` allowed after a wait, `.` refused, `:` some of each.
    pub(crate) fn bar(&self) -> String {
        self.marks
            .chunks(self.checks_per_cell())
            .map(cell)
            .collect()
    }

    /// Returns the bar in colour.
    pub(crate) fn painted_bar(&self) -> String {
        paint_runs(&self.bar(), |cell| {
            Some(match cell {
                b'#' => GOOD,
                b'.' => BAD,
                _ => WARN,
            })
        })
    }
}

/// Maximum length of a bar, in characters.
const MAX_CELLS: usize = 50;

fn cell(marks: &[Mark]) -> char {
    let has = |mark| marks.contains(&mark);
    match (has(Mark::Refused), has(Mark::Allowed), has(Mark::Delayed)) {
        (true, false, false) => '.',
        (true, _, _) => ':',
        (false, true, _) => '#',
        (false, false, _) => '~',
    }
}

impl Mark {
    fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow => Self::Allowed,
            Verdict::AllowAfter(_) => Self::Delayed,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(marks: impl IntoIterator<Item = Mark>) -> Trial {
        Trial {
            marks: marks.into_iter().collect(),
            next: None,
        }
    }

    #[test]
    fn a_bar_shows_each_check_while_they_fit() {
        let marks = [Mark::Allowed, Mark::Delayed, Mark::Refused];
        assert_eq!(trial(marks).bar(), "#~.");
        assert_eq!(trial([]).bar(), "");
    }

    #[test]
    fn a_long_bar_stands_for_several_checks_a_character() {
        let mut marks = vec![Mark::Allowed; 101];
        marks.extend(vec![Mark::Refused; 99]);
        let trial = trial(marks);
        assert_eq!(trial.checks_per_cell(), 4);
        assert_eq!(
            trial.bar(),
            format!("{}:{}", "#".repeat(25), ".".repeat(24))
        );
    }
}
