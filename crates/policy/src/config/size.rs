//! Size: reads numbers of bytes.

use std::ops::{Range, RangeInclusive};

use super::codes;
use super::diagnostic::{Findings, shown};
use super::read::At;

/// A field with a number of bytes.
pub(super) struct SizeField {
    pub(super) name: &'static str,
    pub(super) range: RangeInclusive<u64>,
    /// Why a size outside of the range is refused.
    pub(super) reason: &'static str,
    /// A usual size.
    pub(super) example: &'static str,
}

/// `budget`
pub(super) const BUDGET: SizeField = SizeField {
    name: "budget",
    range: MIN_BUDGET..=u64::MAX,
    reason: "less than the minimum of 1 MiB",
    example: "64MiB",
};

/// The smallest memory budget: below it a store could not hold its own shards.
const MIN_BUDGET: u64 = 1 << 20;

/// Reads a size such as `256MiB`.
pub(super) fn bytes(text: &At<&str>, field: &SizeField, out: &mut Findings<'_>) -> Option<usize> {
    let name = field.name;
    let refuse = |out: &mut Findings<'_>, at: Range<usize>, reason: &str, help: &str| {
        let message = format!("\"{}\" is not a valid size of memory", shown(text.value));
        out.error(codes::BYTES, at, message, reason).help(help);
    };
    let digits = text.value.len()
        - text
            .value
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .len();
    let (number, unit) = text.value.split_at(digits);
    let shift = match unit {
        "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let (Ok(number), Some(shift)) = (number.parse::<u64>(), shift) else {
        let like = size_like(number, unit, &field.range);
        let help = format!(
            "write for example {name} = \"{}\"",
            like.as_deref().unwrap_or(field.example)
        );
        refuse(
            out,
            text.at.clone(),
            "expected a whole number and B, KiB, MiB or GiB",
            &help,
        );
        return None;
    };
    let bytes = number
        .checked_mul(1 << shift)
        .and_then(|bytes| usize::try_from(bytes).ok());
    let Some(bytes) = bytes else {
        refuse(
            out,
            text.at.clone(),
            "more than this machine can address",
            &format!("write for example {name} = \"{}\"", field.example),
        );
        return None;
    };
    if !field.range.contains(&(number << shift)) {
        refuse(
            out,
            text.at.clone(),
            field.reason,
            &format!("write for example {name} = \"{}\"", field.example),
        );
        return None;
    }
    Some(bytes)
}

/// Returns the size that was probably meant, if it is in range.
fn size_like(number: &str, unit: &str, range: &RangeInclusive<u64>) -> Option<String> {
    let number: u64 = number.parse().ok()?;
    let (unit, shift) = match unit.trim().chars().next().map(|c| c.to_ascii_lowercase()) {
        Some('k') => ("KiB", 10),
        Some('g') => ("GiB", 30),
        _ => ("MiB", 20),
    };
    let bytes = number.checked_mul(1 << shift)?;
    range.contains(&bytes).then(|| format!("{number}{unit}"))
}
