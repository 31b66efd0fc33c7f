//! Request id: a name for a request, in the log of the upstream and in error responses.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderName, HeaderValue};

/// The field of the id.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of an id that is kept.
const MAX_ID: usize = 128;
const DIGITS: [u8; 16] = *b"0123456789abcdef";
const PROCESS_DIGITS: usize = 16;
/// Digits of the count: enough for a million requests a second in eight years.
const COUNT_DIGITS: usize = 12;

/// Makes ids: a random number of the process, and a count. They are unique, and not secret.
#[derive(Debug)]
pub struct RequestIds {
    /// Its digits.
    process: [u8; PROCESS_DIGITS],
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self {
            process: digits(RandomState::new().hash_one(0_u8)),
            next: AtomicU64::new(1),
        }
    }
}

impl RequestIds {
    /// Returns the next id.
    pub fn next(&self) -> HeaderValue {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; PROCESS_DIGITS + COUNT_DIGITS];
        id[..PROCESS_DIGITS].copy_from_slice(&self.process);
        id[PROCESS_DIGITS..].copy_from_slice(&digits::<COUNT_DIGITS>(count));
        // Digits: it cannot fail.
        HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("0"))
    }
}

/// Returns the last `N` hexadecimal digits of a number.
fn digits<const N: usize>(number: u64) -> [u8; N] {
    std::array::from_fn(|index| DIGITS[(number >> (4 * (N - 1 - index)) & 0xf) as usize])
}

/// Returns true for an id that is kept: short, and visible characters only.
pub(crate) fn is_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=MAX_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_long_ones_are_not_kept() {
        let ids = RequestIds::default();
        let (first, second) = (ids.next(), ids.next());
        assert_ne!(first, second);
        assert!(is_id(&first));
        for wrong in ["", "a b", &"x".repeat(MAX_ID + 1)] {
            assert!(!is_id(&HeaderValue::from_str(wrong).unwrap()), "{wrong}");
        }
    }
}
