//! Condition: `--fail-if 'refused > 0.1%'`, for continuous integration.

use std::str::FromStr;

use ratekeeper_policy::Policy;
use ratekeeper_replay::report::{CountsReport, ReplayReport};

use crate::{Result, limits};

/// A condition under which `replay` exits with 1.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// As the user wrote it.
    pub(crate) text: String,
    limit: Option<String>,
    figure: Figure,
    most: Amount,
}

/// A decimal number: `digits / scale`, in percent of all or alone.
#[derive(Clone, Copy, Debug)]
struct Amount {
    digits: u128,
    scale: u128,
    is_percent: bool,
}

impl Amount {
    /// Maximum number of digits, so that products with counts fit into 128 bits.
    const DIGITS: usize = 15;

    fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && digits.len() <= Self::DIGITS).then_some(Self {
            digits: digits.parse().ok()?,
            scale: 10_u128.pow(u32::try_from(fraction.len()).ok()?),
            is_percent: text.ends_with('%'),
        })
    }

    /// Returns true if `part` of `all` is more.
    fn is_below(self, [part, all]: [u64; 2]) -> bool {
        let [hundred, all] = if self.is_percent {
            [100, u128::from(all)]
        } else {
            [1, 1]
        };
        u128::from(part) * hundred * self.scale > self.digits * all
    }
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
        Ok(Self {
            text: condition.into(),
            limit,
            figure,
            most: Amount::parse(most.trim()).ok_or_else(wrong)?,
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
        counts.is_some_and(|counts| self.most.is_below((self.figure)(counts)))
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
            "refused > %",
            "refused > 1e3",
            "refused > 0.0000000000000001",
        ] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_exact() {
        for (most, counts, is_below) in [
            ("0.57%", [57, 10_000], false),
            ("1.14%", [57, 5_000], false),
            ("1.14 %", [58, 5_000], true),
            ("0%", [0, 0], false),
            ("57", [57, 0], false),
            ("56.9", [57, 0], true),
            ("99999999999999.9%", [u64::MAX, u64::MAX], false),
        ] {
            let most = Amount::parse(most).expect(most);
            assert_eq!(most.is_below(counts), is_below, "{most:?}");
        }
    }
}
