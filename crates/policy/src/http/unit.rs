//! Unit: the unit of a limit's permits, such as cents of USD.

use std::fmt;

use ratekeeper_core::{Permits, Quota};

/// Maximum number of decimals of a unit: 9,000,000,000 whole ones can be counted even then.
pub(crate) const MAX_DECIMALS: u8 = 6;

/// The unit of the quantities of a limit. Permits are whole numbers of the smallest part.
///
/// ```
/// use ratekeeper_policy::Unit;
/// let dollars = Unit::new("USD", 2);
/// assert_eq!(dollars.show(1_250).to_string(), "12.50 USD");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    name: Box<str>,
    decimals: u8,
}

/// A decimal number in the smallest part of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decimal {
    Exact(u64),
    /// It has more decimals than the unit; rounded up.
    TooFine(u64),
    TooLarge,
    /// It is no decimal number.
    None,
}

impl Unit {
    /// A unit with a name such as USD, and the number of its decimals, 0 to 6; more are cut to 6.
    pub fn new(name: &str, decimals: u8) -> Self {
        Self {
            name: name.into(),
            decimals: decimals.min(MAX_DECIMALS),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of decimals.
    pub const fn decimals(&self) -> u8 {
        self.decimals
    }

    /// Returns the permits in the unit: `12.50 USD`.
    pub fn show(&self, permits: u64) -> impl fmt::Display + use<> {
        let parts = 10_u64.pow(self.decimals.into());
        let (whole, rest) = (permits / parts, permits % parts);
        match usize::from(self.decimals) {
            0 => format!("{whole} {}", self.name),
            width => format!("{whole}.{rest:0width$} {}", self.name),
        }
    }

    /// Returns the permits of a decimal number such as `12.5`: rounded up if it has more decimals
    /// than the unit, as many as can be counted if it is larger. `None` for another text.
    pub fn permits(&self, text: &str) -> Option<Permits> {
        match self.read(text) {
            Decimal::Exact(permits) | Decimal::TooFine(permits) => Some(Permits::new(permits)),
            Decimal::TooLarge => Some(Permits::MAX),
            Decimal::None => None,
        }
    }

    /// Returns the permits of a decimal number; `None` if it has more decimals, cannot be counted,
    /// or is none.
    pub fn exact_permits(&self, text: &str) -> Option<Permits> {
        match self.read(text) {
            Decimal::Exact(permits) => Some(Permits::new(permits)),
            _ => None,
        }
    }

    /// Returns one whole of the unit.
    pub const fn one(&self) -> Permits {
        Permits::new(10_u64.pow(self.decimals as u32))
    }

    /// Reads `12`, `12.5` or `12.50`. A request's text may have any length: it is read once, and no
    /// number overflows.
    pub(crate) fn read(&self, text: &str) -> Decimal {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Decimal::None;
        }
        let kept = fraction.len().min(self.decimals.into());
        let (kept, beyond) = fraction.split_at(kept);
        let zeros = usize::from(self.decimals) - kept.len();
        let all = whole.bytes().chain(kept.bytes());
        let all = all.chain(std::iter::repeat_n(b'0', zeros));
        let mut permits = 0;
        for digit in all {
            permits = permits * 10 + u64::from(digit - b'0');
            if permits > Quota::MAX_PERMITS {
                return Decimal::TooLarge;
            }
        }
        if beyond.bytes().all(|digit| digit == b'0') {
            return Decimal::Exact(permits);
        }
        // Up: against the client.
        match permits {
            Quota::MAX_PERMITS => Decimal::TooLarge,
            permits => Decimal::TooFine(permits + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_exactly() {
        for (decimals, text, expected) in [
            (2, "12.50", Decimal::Exact(1_250)),
            (2, "12.5", Decimal::Exact(1_250)),
            (2, "12", Decimal::Exact(1_200)),
            (2, "0.01", Decimal::Exact(1)),
            (2, "0.10000", Decimal::Exact(10)),
            (2, "12.501", Decimal::TooFine(1_251)),
            (2, "0.0000001", Decimal::TooFine(1)),
            (2, "90071992547409.91", Decimal::Exact(Quota::MAX_PERMITS)),
            (2, "90071992547409.92", Decimal::TooLarge),
            (2, "90071992547409.911", Decimal::TooLarge),
            (2, "99999999999999999999999999", Decimal::TooLarge),
            (0, "7", Decimal::Exact(7)),
            (0, "7.1", Decimal::TooFine(8)),
            (6, "1.000001", Decimal::Exact(1_000_001)),
            (2, "", Decimal::None),
            (2, ".5", Decimal::None),
            (2, "5.", Decimal::None),
            (2, "-5", Decimal::None),
            (2, "1e3", Decimal::None),
            (2, "1,50", Decimal::None),
            (2, "1.5.0", Decimal::None),
        ] {
            assert_eq!(Unit::new("X", decimals).read(text), expected, "{text}");
        }
    }

    #[test]
    fn permits_are_shown_with_their_decimals() {
        for (decimals, permits, text) in [
            (2, 0, "0.00 USD"),
            (2, 5, "0.05 USD"),
            (2, 1_250, "12.50 USD"),
            (0, 7, "7 USD"),
            (6, Quota::MAX_PERMITS, "9007199254.740991 USD"),
        ] {
            let unit = Unit::new("USD", decimals);
            assert_eq!(unit.show(permits).to_string(), text);
        }
    }
}
