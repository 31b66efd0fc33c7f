//! Numbers: messages about a number in a period that cannot be read or kept, and the number that
//! was probably meant.

use ratekeeper_core::{Error, Nanos};

use crate::config::document::meant;
use crate::config::document::other_words::UNLIMITED;
use crate::config::document::scalar::{SHORTEST, Scalar, rolling};
use crate::config::{Text, codes, error, shown};

const SPACING: Scalar = Scalar::Span {
    least: SHORTEST,
    most: Nanos::MAX,
};

/// Kind of number that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// `limit = "100/1m"`, or a word of the calendar.
    Limit,
    /// `refill = "10/1s"`
    Refill,
    /// `spacing = "200ms"`
    Spacing,
    /// `lease = "60s"`, of a concurrency.
    Lease,
}

impl Written {
    /// Returns the field, and an example of its value.
    fn field(self) -> (&'static str, &'static str) {
        match self {
            Self::Limit => ("limit", "100/1m"),
            Self::Refill => ("refill", "10/1s"),
            Self::Spacing => ("spacing", "200ms"),
            Self::Lease => ("lease", "60s"),
        }
    }

    /// Returns the label of a text that is not of this kind.
    fn label(self) -> &'static str {
        match self {
            Self::Limit => "expected NUMBER/PERIOD",
            Self::Refill => "expected NUMBER/DURATION",
            _ => "expected a duration",
        }
    }

    /// Returns the grammar, with an example.
    fn grammar(self) -> String {
        let (field, example) = self.field();
        let (form, or) = match self {
            Self::Limit => (
                "number and a duration",
                ", or a calendar period, as in \"100/day\"",
            ),
            Self::Refill => ("number and a duration (ns, us, ms, s, m, h, d, w)", ""),
            _ => ("whole number and a unit (ns, us, ms, s, m, h, d, w)", ""),
        };
        format!("write a {form}, as in {field} = \"{example}\"{or}")
    }

    /// Returns the value that was probably meant, if there is one that can be read.
    fn meant(self, text: &str) -> Option<String> {
        let value = match self {
            Self::Limit => meant::quota(text)?,
            Self::Refill => {
                let quota = meant::quota(text)?;
                let (number, word) = quota.split_once('/')?;
                format!("{number}/{}", rolling(word).unwrap_or(word))
            }
            Self::Spacing | Self::Lease => {
                SPACING.meant(text, &format!("\"{}\"", self.field().1))?
            }
        };
        Some(format!("{} = \"{value}\"", self.field().0))
    }
}

/// Returns help for a text in place of a quota that means something else.
fn other_than_a_quota(text: &str) -> Option<String> {
    if is_unlimited(text) {
        return Some(UNLIMITED.into());
    }
    if text.trim().eq_ignore_ascii_case("blocked") {
        return Some(
            "write numbers here, and for the refused keys an [[override]] with set = \"blocked\""
                .into(),
        );
    }
    if text.contains('$') {
        return Some("write the number: a policy has no variables".into());
    }
    None
}

/// Returns true for a word or a number that stands for no limit in other programs.
pub(crate) fn is_unlimited(text: &str) -> bool {
    const WORDS: [&str; 9] = [
        "unlimited",
        "infinite",
        "infinity",
        "inf",
        "none",
        "off",
        "-1",
        "disabled",
        "no limit",
    ];
    WORDS.contains(&text.trim().to_ascii_lowercase().as_str())
}

/// Reports the reason why core refuses a number.
fn refuse(refused: Error, text: &Text<'_>, written: Written) {
    let value = shown(text.value);
    if matches!(refused, Error::Quota | Error::Span) {
        let (code, kind) = match written {
            Written::Limit => (codes::QUOTA, "a valid limit"),
            Written::Refill => (codes::QUOTA, "a valid refill"),
            _ => (codes::SPAN, "a valid duration"),
        };
        let meant = written
            .meant(text.value)
            .map(|meant| format!("write {meant}"))
            .or_else(|| other_than_a_quota(text.value).filter(|_| written == Written::Limit));
        let message = format!("\"{value}\" is not {kind}");
        error(code, text.at, message, written.label())
            .help(meant.unwrap_or_else(|| written.grammar()));
        return;
    }
    let help = match refused {
        Error::NoPermits => {
            "write at least 1, or let the proxy refuse all such requests; an [[override]] refuses those of \
             a key: set = \"blocked\""
        }
        Error::TooFast => "write a lower number: requests cannot come this fast",
        Error::TooLong
        | Error::SpanTooLong
        | Error::WindowTooLong
        | Error::RefillTooLong
        | Error::DecayTooLong => "write a shorter period, or a smaller bucket that refills faster",
        Error::TooManyPermits => "count in larger units: the maximum is 9,007,199,254,740,991",
        Error::SubBuckets => "write fewer sub-buckets, or a longer period",
        _ => &written.grammar(),
    };
    let message = format!("\"{value}\" cannot be used");
    error(codes::NOT_COUNTABLE, text.at, message, refused.to_string()).help(help);
}

/// Reads a duration above zero; `None` if it is not one, which is reported.
pub(crate) fn duration(text: &Text<'_>, written: Written) -> Option<Nanos> {
    let duration = text.value.parse().and_then(|duration| match duration {
        Nanos::ZERO => Err(Error::NoSpan),
        duration => Ok(duration),
    });
    built(duration, text, written)
}

/// Returns the value that core built, or reports a finding at the value that it refused.
pub(crate) fn built<T>(result: Result<T, Error>, text: &Text<'_>, written: Written) -> Option<T> {
    result.map_err(|reason| refuse(reason, text, written)).ok()
}
