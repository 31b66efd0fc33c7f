//! Spent: processor time of a server per answer, round by round.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use crate::compare::{self, Side};
use crate::report;
use crate::server::Server;

/// Processor time of the rounds of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    /// Of each round.
    micros: Vec<AnswerMicros>,
    /// Thousands of answers a second, in the fastest round.
    most: f64,
}

/// Microseconds of processor time per answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerMicros {
    pub(crate) user: f64,
    pub(crate) kernel: f64,
}

impl AnswerMicros {
    pub(crate) fn all(self) -> f64 {
        self.user + self.kernel
    }
}

impl Spent {
    /// Measures one round: `load` runs for this many seconds, and returns its result and the number
    /// of answers.
    pub(crate) fn round<T>(
        &mut self,
        server: &Server,
        seconds: u32,
        load: impl FnOnce(u16) -> (T, u64),
    ) -> T {
        let before = server.cpu_micros();
        let (counted, answers) = load(server.port());
        let after = server.cpu_micros();
        let answers = answers as f64;
        self.micros.push(AnswerMicros {
            user: (after[0] - before[0]) / answers,
            kernel: (after[1] - before[1]) / answers,
        });
        self.most = self.most.max(answers / f64::from(seconds) / 1000.0);
        counted
    }

    /// Returns the round that took the least time.
    pub(crate) fn least(&self) -> AnswerMicros {
        let least = self.micros.iter().copied();
        let least = least.min_by(|a, b| a.all().total_cmp(&b.all()));
        least.expect("a round was measured")
    }

    /// Returns thousands of answers a second, in the fastest round.
    pub(crate) fn most(&self) -> f64 {
        self.most
    }

    /// Returns the ratios of the time of each round to that of the same round of `other`, in order.
    pub(crate) fn ratios_to(&self, other: &Self) -> Vec<f64> {
        let pairs = self.micros.iter().zip(&other.micros);
        let mut ratios: Vec<_> = pairs.map(|(own, other)| own.all() / other.all()).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    fn sorted(&self) -> Vec<f64> {
        let mut micros: Vec<_> = self.micros.iter().map(|round| round.all()).collect();
        micros.sort_by(f64::total_cmp);
        micros
    }
}

/// Notes our rows beside the one named `reference` for the comparison.
pub(crate) fn note(what: &str, reference: &str, rows: &[(&str, &Spent)]) {
    let side = |(name, spent): (&str, &Spent)| {
        let micros = spent.sorted();
        Side {
            name: name.trim_start_matches("floor: ").to_owned(),
            least: micros[0],
            median: Some(micros[micros.len() / 2]),
        }
    };
    let Some(peer) = rows.iter().find(|(name, _)| *name == reference) else {
        return;
    };
    for row in rows {
        if row.0 != reference && !row.0.starts_with("floor") {
            let what = format!("{what}, {}, us of server time", row.0);
            compare::note(what, side(*row), side(*peer));
        }
    }
}

/// Prints the rows beneath `title`; ratios are to the least of the row named `reference`.
pub(crate) fn table(title: &str, reference: &str, rows: &[(&str, &Spent)]) {
    let base = rows.iter().find(|(name, _)| *name == reference);
    let base = base.map_or(f64::NAN, |(_, spent)| spent.sorted()[0]);
    report::line(&format!("\n{title}"));
    report::line(&format!(
        "{:<34} {:>8} {:>8} {:>7} {:>9}",
        "", "least", "median", "ratio", "k/s most"
    ));
    for (name, spent) in rows {
        let micros = spent.sorted();
        report::line(&format!(
            "{name:<34} {:>8.2} {:>8.2} {:>7.2} {:>9.1}",
            micros[0],
            micros[micros.len() / 2],
            micros[0] / base,
            spent.most
        ));
    }
}
