//! Writer: the end of a value of GCRA in a shared store, which names the numbers of its writer; see
//! `stored_form.rs`.

use alloc::format;
use alloc::vec::Vec;

use super::Gcra;
use crate::algorithm::Denials;
use crate::{Nanos, Permits, Quota};

/// Precedes the units of debt beyond a state.
pub(super) const BEYOND: u8 = b'+';
/// Precedes the permits of a debt under earlier numbers.
pub(super) const EARLIER: u8 = b'^';
/// Precedes the microseconds since 1970 of the last moment that other numbers promised.
pub(super) const PROMISED: u8 = b'~';

/// The end of a value: the numbers of its writer.
pub(super) struct Writer {
    permits: u64,
    nanos: u64,
    burst: u64,
    queue: u64,
    /// The debt at the time of writing, in permits, if only earlier numbers of the rate explain it.
    pub(super) earlier: u64,
    /// The last moment that other numbers promised, in microseconds since 1970.
    pub(super) promised: Option<u64>,
    pub(super) beyond: u64,
}

impl Writer {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let (name, beyond) = marked(name, BEYOND)?;
        let (name, promised) = marked(name, PROMISED)?;
        let (name, earlier) = marked(name, EARLIER)?;
        let mut numbers = name.strip_prefix(b"/")?.split(|&byte| byte == b'/');
        let permits = decimal(numbers.next()?)?;
        let mut nanos = numbers.next()?.splitn(2, |&byte| byte == b'e').map(decimal);
        let (digits, zeros) = (nanos.next()??, nanos.next()??);
        let scale = 10_u64.checked_pow(u32::try_from(zeros).ok()?)?;
        let writer = Self {
            permits,
            nanos: digits.checked_mul(scale)?,
            burst: decimal(numbers.next()?)?,
            queue: numbers.next().map_or(Some(0), decimal)?,
            earlier: earlier.unwrap_or(0),
            promised,
            beyond: beyond.unwrap_or(0),
        };
        numbers.next().is_none().then_some(writer)
    }

    /// Returns true if these are the numbers of `gcra`.
    pub(super) fn is(&self, gcra: &Gcra) -> bool {
        let interval = gcra.interval.get();
        gcra.grid.grants(self.permits, interval, self.nanos)
            && gcra.burst == interval.saturating_mul(self.burst)
            && gcra.queue == interval.saturating_mul(self.queue)
    }

    pub(super) fn limit(&self) -> Option<Gcra> {
        let nanos = Nanos::from_nanos(self.nanos);
        let quota = Quota::new(Permits::new(self.permits), nanos).ok()?;
        let quota = quota.with_burst(Permits::new(self.burst)).ok()?;
        let limit = Gcra::new(quota, Permits::new(self.queue)).ok()?;
        let earlier = limit.interval.get().saturating_mul(self.earlier);
        Some(Gcra { earlier, ..limit }.with_denials(Denials::Free))
    }
}

/// Appends a number behind its mark.
pub(super) fn mark(bytes: &mut Vec<u8>, mark: u8, number: u64) {
    bytes.extend(format!("{}{number}", char::from(mark)).into_bytes());
}

/// Returns what precedes a mark, and the number behind it.
fn marked(text: &[u8], mark: u8) -> Option<(&[u8], Option<u64>)> {
    let mut parts = text.splitn(2, |&byte| byte == mark);
    let before = parts.next()?;
    Some(match parts.next() {
        Some(digits) => (before, Some(decimal(digits)?)),
        None => (before, None),
    })
}

/// Returns a decimal number.
fn decimal(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()); // no sign
    is_plain.then(|| text.parse().ok())?
}
