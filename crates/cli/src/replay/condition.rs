//! Condition: `--fail-if 'refused > 0.1%'`, for continuous integration.

use std::fmt;
use std::str::FromStr;

use ratekeeper_policy::Policy;
use ratekeeper_replay::report::{CountsReport, ReplayReport};

use crate::{Result, limits};

/// A condition under which `replay` exits with 1.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    text: String,
    limit: Option<String>,
    figure: Figure,
    most: Amount,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    /// A share of all.
    Percent(f64),
    Count(f64),
}

/// Returns a count of a report, and that of which it is a part.
type Figure = fn(&CountsReport) -> [u64; 2];

impl FromStr for Condition {
    type Err = String;

    fn from_str(condition: &str) -> Result<Self, String> {
        let wrong = || {
            "expected refused or clients, perhaps of a limit, and a number or share: \
             'refused > 0.1%', 'per-ip.clients > 10'"
                .to_owned()
        };
        let (figure, most) = condition.split_once('>').ok_or_else(wrong)?;
        let (limit, figure) = match figure.trim().rsplit_once('.') {
            Some((limit, figure)) => (Some(limit.to_owned()), figure),
            None => (None, figure.trim()),
        };
        let figure: Figure = match figure {
            "refused" => |counts| [counts.refused, counts.requests],
            "clients" => |counts| [counts.clients_hit, counts.clients],
            _ => return Err(wrong()),
        };
        let (number, amount): (_, fn(f64) -> Amount) = match most.trim().strip_suffix('%') {
            Some(percent) => (percent, Amount::Percent),
            None => (most, Amount::Count),
        };
        let number = number.trim().parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        Ok(Self {
            text: condition.into(),
            limit,
            figure,
            most: amount(number.ok_or_else(wrong)?),
        })
    }
}

impl Condition {
    /// # Errors
    /// Returns an error if the policy has no such limit.
    pub(crate) fn check(&self, policy: &Policy) -> Result<()> {
        self.limit
            .as_ref()
            .map_or(Ok(()), |limit| limits::named(policy, limit).map(|_| ()))
    }

    /// Returns true if the report has more than the condition names.
    pub(crate) fn is_met(&self, report: &ReplayReport) -> bool {
        let counts = match &self.limit {
            None => Some(&report.all),
            Some(name) => {
                let limit = report.limits.iter().find(|limit| limit.name == *name);
                limit.map(|limit| &limit.counts)
            }
        };
        counts.is_some_and(|counts| {
            let [part, all] = (self.figure)(counts).map(|count| count as f64);
            match self.most {
                Amount::Percent(most) => part * 100.0 > most * all,
                Amount::Count(most) => part > most,
            }
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_or_refused() {
        for text in ["refused > 0.1%", "clients>3", "a.b.refused > 5 %"] {
            assert!(text.parse::<Condition>().is_ok(), "{text}");
        }
        for text in [
            "",
            "refused",
            "refused < 1",
            "hits > 1",
            "refused > -1",
            "refused > x%",
        ] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
