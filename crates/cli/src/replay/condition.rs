//! Condition: `--fail-if 'refused > 0.1%'`, for continuous integration.

use std::fmt;
use std::str::FromStr;

use ratekeeper_policy::Policy;
use ratekeeper_replay::report::ReplayReport;

use crate::{Result, limits};

/// A condition under which `replay` exits with 1.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Condition {
    text: String,
    limit: Option<String>,
    figure: Figure,
    /// A share of all, or a number.
    most: Amount,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    Refused,
    Clients,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Amount {
    Percent(f64),
    Count(f64),
}

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
        let figure = match figure {
            "refused" => Figure::Refused,
            "clients" => Figure::Clients,
            _ => return Err(wrong()),
        };
        let most = most.trim();
        let (digits, amount): (_, fn(f64) -> Amount) = match most.strip_suffix('%') {
            Some(digits) => (digits, Amount::Percent),
            None => (most, Amount::Count),
        };
        let number = digits.trim().parse::<f64>().ok();
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
            let (part, all) = match self.figure {
                Figure::Refused => (counts.refused, counts.requests),
                Figure::Clients => (counts.clients_hit, counts.clients),
            };
            match self.most {
                Amount::Count(most) => part as f64 > most,
                Amount::Percent(most) => part as f64 * 100.0 > most * all as f64,
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
