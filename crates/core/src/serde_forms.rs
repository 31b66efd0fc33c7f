//! Serde forms: quotas and spans as the texts that they print, permits as numbers.
//!
//! ```text
//!   Quota     "100/1m", "50/1s burst 100"
//!   Nanos     "90s", "200ms"
//!   Permits   100
//! ```

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use serde_core::de::{Deserialize, Deserializer, Visitor};
use serde_core::ser::{Serialize, Serializer};

use crate::{Error, Nanos, Permits, Quota};

/// Reads a `T` from a text, without a copy of it.
struct Text<T> {
    expected: &'static str,
    read: PhantomData<T>,
}

impl<T: FromStr<Err = Error>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<T, E> {
        let error = |error| E::custom(format_args!("`{text}`: {error}"));
        text.parse().map_err(error)
    }
}

macro_rules! as_text {
    ($($of:ty: $expected:literal;)*) => {$(
        impl Serialize for $of {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $of {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let (expected, read) = ($expected, PhantomData);
                deserializer.deserialize_str(Text { expected, read })
            }
        }
    )*};
}

as_text! {
    Quota: "a quota, permits and period: `100/1m`";
    Nanos: "a span, a number and a unit: `90s`";
}

impl Serialize for Permits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Permits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        let quota = Quota::per_second(50).burst(100);
        let values = (quota, Nanos::from_secs(90), Permits::new(7));
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(text, r#"["50/1s burst 100","90s",7]"#);
        let read: (Quota, Nanos, Permits) = serde_json::from_str(&text).unwrap();
        assert_eq!(read, values);
        let text = serde_json::json!("3/1m"); // a text that is not borrowed
        assert_eq!(
            serde_json::from_value::<Quota>(text).unwrap(),
            Quota::per_minute(3)
        );
    }

    #[test]
    fn errors_name_the_text_and_the_form() {
        fn error<T: for<'a> Deserialize<'a> + fmt::Debug>(json: &str) -> std::string::String {
            serde_json::from_str::<T>(json).unwrap_err().to_string()
        }
        let texts = [
            error::<Quota>(r#""100 per minute""#),
            error::<Quota>("100"),
            error::<Nanos>(r#""soon""#),
            error::<Permits>("-1"),
        ];
        let starts = [
            "`100 per minute`: not a quota: write permits and period, as in `100/1m`",
            "invalid type: integer `100`, expected a quota, permits and period: `100/1m`",
            "`soon`: ",
            "invalid value: integer `-1`",
        ];
        for (text, start) in texts.iter().zip(starts) {
            assert!(text.starts_with(start), "{text}");
        }
    }
}
