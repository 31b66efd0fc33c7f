//! HTTP dates: the three forms in which a server may write a moment.
//!
//! ```text
//!   Sun, 06 Nov 1994 08:49:37 GMT      as all write today
//!   Sunday, 06-Nov-94 08:49:37 GMT     RFC 850: two digits of the year, from 1970 on
//!   Sun Nov  6 08:49:37 1994           C's asctime()
//! ```
//!
//! Source: RFC 9110 (2022), section 5.6.7.

use std::time::UNIX_EPOCH;

/// Returns the date in `text` in nanoseconds since 1970, at most `u64::MAX` (2554); `None` if it
/// is not an HTTP date.
pub(crate) fn parse(text: &str) -> Option<u64> {
    // The crate refuses leap seconds; one lasts as long as the second before it.
    let (text, leap) = match text.split_once(":60 ") {
        Some((before, rest)) => (&*format!("{before}:59 {rest}"), 1),
        None => (text, 0),
    };
    let since = httpdate::parse_http_date(text)
        .ok()?
        .duration_since(UNIX_EPOCH);
    Some((since.ok()?.as_secs() + leap).saturating_mul(1_000_000_000))
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_three_forms_are_read() {
        for (text, secs) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 23:59:60 GMT", 951_868_800),
            ("Saturday, 21-Nov-26 00:00:00 GMT", 1_795_219_200),
            ("Tue Nov 21 00:00:00 2034", 2_047_680_000),
        ] {
            assert_eq!(parse(text), Some(secs * 1_000_000_000), "{text}");
        }
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT"), Some(u64::MAX));
    }

    #[test]
    fn text_that_is_not_a_date_returns_none() {
        for text in [
            "",
            "Sun, ",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "S\u{fc}n, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_be_sent(
            text in "(Sun|Sunday|Mon),? [0-9 -]{1,3}(Nov|Feb)?[ -][0-9: ]{1,14}( GMT)?", other: String,
        ) {
            let _ = (parse(&text), parse(&other));
        }
    }
}
