//! Scalar: values that are written as one string, and read themselves.
//!
//! ```text
//!   fields/     within: span(SECOND, DAY)     the kind of a value and its bounds
//!      |
//!   check.rs    reports a text that is none   one sentence, one code and one edit for each kind
//!   read.rs     table.span("within")          the value, if it is one
//! ```

use std::net::{IpAddr, SocketAddr};

use ratekeeper_core::{Error, Nanos, Quota};

use super::other_words;
use crate::Secret;
use crate::config::codes;

/// Kind of a value that is written as a string.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    /// A duration: `2m`.
    Span { least: Nanos, most: Nanos },
    /// A whole percentage from 1%: `80%`.
    Percent { most: u32 },
    /// A number of bytes: `64MiB`.
    Size { least: u64, most: u64 },
    /// The source of a secret: `env:NAME`, `file:PATH`.
    Secret,
    /// The address of a listener: with its port, or `unix:/PATH`; or `off`.
    Address { port: u16 },
    /// Letters, digits, and some other characters.
    Name { most: usize, others: &'static str },
}

/// The shortest duration above zero.
pub(crate) const SHORTEST: Nanos = Nanos::from_nanos(1);

impl Scalar {
    /// Returns the code of a text that is no value of this kind.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Span { .. } => codes::SPAN,
            Self::Percent { .. } => codes::OUT_OF_RANGE,
            Self::Size { .. } => codes::BYTES,
            Self::Secret => codes::SECRET,
            Self::Address { .. } => codes::ADDRESS,
            Self::Name { .. } => codes::NAME,
        }
    }

    /// Returns the pattern of the schema.
    pub(crate) fn pattern(self) -> Option<String> {
        match self {
            Self::Span { .. } => Some("^[0-9]+(ns|us|ms|s|m|h|d|w)$".to_owned()),
            Self::Percent { most } => {
                let digits = most.ilog10();
                Some(format!("^[1-9][0-9]{{0,{digits}}}%$"))
            }
            Self::Size { .. } => Some("^[0-9]+(B|KiB|MiB|GiB)$".to_owned()),
            Self::Secret => Some("^(env|file):.+$".to_owned()),
            Self::Address { .. } => None,
            Self::Name { most, others } => Some(format!("^[A-Za-z0-9{others}]{{1,{most}}}$")),
        }
    }

    /// Returns true if the text is a value of this kind.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Span { least, most } => text
                .parse()
                .is_ok_and(|span: Nanos| (least..=most).contains(&span)),
            Self::Percent { most } => {
                percentage(text).is_some_and(|percent| (1..=most).contains(&percent))
            }
            Self::Size { least, most } => {
                bytes(text).is_some_and(|bytes| (least..=most).contains(&bytes))
            }
            Self::Secret => secret(text).is_some(),
            Self::Address { .. } => {
                let is_path = text
                    .strip_prefix("unix:")
                    .is_some_and(|it| it.starts_with('/'));
                text == "off" || is_path || text.parse::<SocketAddr>().is_ok()
            }
            Self::Name { most, others } => {
                let fits = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
                (1..=most).contains(&text.len()) && text.chars().all(fits)
            }
        }
    }

    /// Returns the label of a text that is no value of this kind: `expected a duration from 1s to 24h`.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Span { least, most } => match (least, most) {
                (SHORTEST, Nanos::MAX) => "expected a duration above zero".to_owned(),
                (SHORTEST, most) => format!("expected a duration of at most {most}"),
                (least, Nanos::MAX) => format!("expected a duration of at least {least}"),
                (least, most) => format!("expected a duration from {least} to {most}"),
            },
            Self::Percent { most } => format!("expected a whole percentage from 1% to {most}%"),
            Self::Size { least, most } => {
                let most = match most {
                    u64::MAX => " or more".to_owned(),
                    most => format!(" to {}", size(most)),
                };
                format!("expected {}{most}, in B, KiB, MiB or GiB", size(least))
            }
            Self::Secret => "expected env:NAME or file:PATH".to_owned(),
            Self::Address { .. } => "expected ADDRESS:PORT, \"unix:/PATH\" or \"off\"".to_owned(),
            Self::Name { most, others } => {
                let others: String = others.chars().flat_map(|other| [' ', other]).collect();
                let or = if others.is_empty() { "" } else { ", or any of" };
                format!("expected 1 to {most} letters and digits{or}{others}")
            }
        }
    }

    /// Returns the value that was probably meant by a text that is none. `example` is one.
    pub(crate) fn meant(self, text: &str, example: &str) -> Option<String> {
        let meant = match self {
            Self::Span { .. } => span_like(text, example),
            Self::Percent { .. } => percentage_like(text),
            Self::Size { .. } => size_like(text),
            Self::Address { .. } if other_words::is_off(text) => Some("off".to_owned()),
            Self::Address { port } => Some(address_like(text, port)),
            Self::Secret | Self::Name { .. } => None,
        };
        meant.filter(|meant| self.accepts(meant))
    }
}

/// Reads `100/1m`; the burst that a quota may have is a field of its own in a policy.
pub(crate) fn rate(text: &str) -> Result<Quota, Error> {
    if text.contains(' ') {
        return Err(Error::Quota);
    }
    text.parse()
}

/// Reads `80%`.
pub(crate) fn percentage(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Reads `64MiB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(digits(text));
    let shift = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Reads `env:NAME` or `file:PATH`.
pub(crate) fn secret(text: &str) -> Option<Secret> {
    match text.split_once(':').filter(|(_, at)| !at.is_empty())? {
        ("env", variable) if !variable.contains(['=', '\0']) => Some(Secret::Env(variable.into())),
        ("file", path) => Some(Secret::File(path.into())),
        _ => None,
    }
}

/// Units of sizes, and the power of two that each is.
const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Writes a number of bytes in the largest unit.
fn size(bytes: u64) -> String {
    let fits = |(_, shift): &&(&str, u32)| bytes.trailing_zeros() >= *shift;
    let (unit, shift) = UNITS.iter().find(fits).unwrap_or(&UNITS[3]);
    format!("{}{unit}", bytes >> shift)
}

/// Returns the number of bytes of the number at the start of a text.
fn digits(text: &str) -> usize {
    text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len()
}

fn span_like(text: &str, example: &str) -> Option<String> {
    let text = text.trim();
    if text.parse::<u32>().is_ok() {
        return Some(format!("{text}{}", unit_like(example)));
    }
    let span = duration_like(text)?;
    Some(rolling(&span).unwrap_or(&span).to_owned())
}

/// Returns the duration that was meant.
pub(super) fn duration_like(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let unit = match unit.trim() {
        word @ ("hour" | "day" | "week" | "month" | "year") if number.is_empty() => {
            return Some(word.to_owned());
        }
        "ms" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        _ => return None,
    };
    let number = if number.is_empty() { "1" } else { number };
    number.parse::<u32>().ok().filter(|number| *number > 0)?;
    Some(format!("{number}{unit}"))
}

/// Returns the duration of about the same length as a word of the calendar.
pub(crate) fn rolling(word: &str) -> Option<&'static str> {
    match word {
        "hour" => Some("1h"),
        "day" => Some("24h"),
        "week" => Some("7d"),
        "month" => Some("30d"),
        "year" => Some("365d"),
        _ => None,
    }
}

/// Returns the unit of a number without one: seconds, or milliseconds if the example has them.
pub(super) fn unit_like(example: &str) -> &'static str {
    if example.ends_with("ms\"") { "ms" } else { "s" }
}

fn percentage_like(text: &str) -> Option<String> {
    match text.trim().trim_end_matches(['%', ' ']).parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Some(format!("{:.0}%", share * 100.0)),
        Ok(percent) => Some(format!("{percent:.0}%")),
        Err(_) => None,
    }
}

fn size_like(text: &str) -> Option<String> {
    let text = text.trim();
    let (number, unit) = text.split_at(digits(text));
    let unit = match unit.trim().chars().next().map(|c| c.to_ascii_lowercase()) {
        Some('k') => "KiB",
        Some('m') => "MiB",
        Some('g') => "GiB",
        Some('b') | None => "B", // as in nginx
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Returns the address that was probably meant: missing or wrong parts are filled in.
fn address_like(text: &str, port: u16) -> String {
    if text.starts_with("unix:") || text.starts_with('/') {
        let path = text.trim_start_matches("unix:").trim_start_matches('/');
        return format!("unix:/{path}");
    }
    // `::1:8080` is an address, too: the port is probably the part with more digits.
    let is_port = |own: &str| own.len() > 3 && own.parse::<u16>().is_ok();
    let with_port = |(host, own): (&str, &str)| is_port(own) && host.parse::<IpAddr>().is_ok();
    if let Ok(address) = text.parse::<IpAddr>()
        && !text.rsplit_once(':').is_some_and(with_port)
    {
        return SocketAddr::new(address, port).to_string();
    }
    let text = text.split_once("://").map_or(text, |(_, address)| address);
    let (host, own) = text.rsplit_once(':').unwrap_or(("", text));
    let port = own.parse().unwrap_or(port);
    let host = match host {
        "*" => "0.0.0.0",
        _ => host.trim_start_matches('[').trim_end_matches(']'),
    };
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("127.0.0.1:{port}"),
    }
}

/// Reads a factor from 1 to `most` in thousandths: `2`, `2.0`, `1.125`.
pub(super) fn thousandths(text: &str, most: u64) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if !part
        .bytes()
        .chain(whole.bytes())
        .all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    let part = format!("{part:0<3}");
    let whole: u32 = whole.parse().ok()?;
    let (part, rest) = part.split_at_checked(3)?;
    let part: u32 = part.parse().ok()?;
    let is_exact = rest.bytes().all(|digit| digit == b'0');
    let growth = whole.checked_mul(1_000)?.checked_add(part)?;
    (is_exact && (1_000..=most * 1_000).contains(&growth.into())).then_some(growth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_exact() {
        for (text, expected) in [
            ("1", Some(1_000)),
            ("2.0", Some(2_000)),
            ("1.5", Some(1_500)),
            ("1.125000", Some(1_125)),
            ("100", Some(100_000)),
            ("100.001", None),
            ("1.0001", None),
            ("0.999", None),
            ("-2.0", None),
            ("2e0", None),
            ("nan", None),
            ("inf", None),
            ("1.+1", None),
            ("99999999999", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text, 100), expected, "{text}");
        }
    }
}
