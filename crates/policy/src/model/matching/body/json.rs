//! JSON: the values that pointers name, in one pass over a body.
//!
//! ```text
//!   {"user": {"id": 7, "name": "ann"}, "items": [..]}     json:/user/id, json:/user/name
//!    ^^^^^^ both pointers go on here                      the rest is skipped, not built
//! ```

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::{BodyField, BodyValue, Place, is_same_name};

/// Integers up to here are exact as floating-point numbers: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads the values of the fields with a pointer. A body that is no JSON has none, except that
/// fields which were ambiguous up to the error stay so. If JSON has a number or a text on the way
/// that serde cannot read (`1e999`, a lone surrogate, other bytes than UTF-8), all its fields are
/// ambiguous, because applications can.
pub(super) fn read(fields: &[BodyField], body: &[u8], values: &mut [BodyValue<String>]) {
    let wanted = fields.iter().enumerate();
    let wanted = wanted.filter_map(|(index, field)| match &field.place {
        Place::Json(steps) => Some(Wanted { index, steps }),
        Place::Form(_) => None,
    });
    let wanted = wanted.collect();
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = Value {
        wanted,
        values: &mut *values,
    };
    let read = value.deserialize(&mut json).and_then(|()| json.end());
    if read.is_err() {
        let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
        for (field, value) in fields.iter().zip(values) {
            if is_json && matches!(field.place, Place::Json(_)) {
                *value = BodyValue::Ambiguous;
            } else if *value != BodyValue::Ambiguous {
                *value = BodyValue::Absent;
            }
        }
    }
}

/// Calls `take` with each text, number and boolean of a JSON value.
pub(crate) fn leaves(json: &[u8], mut take: impl FnMut(&str)) {
    if let Ok(value) = serde_json::from_slice(json) {
        each_leaf(&value, &mut take);
    }
}

fn each_leaf(value: &serde_json::Value, take: &mut dyn FnMut(&str)) {
    match value {
        serde_json::Value::Null => {}
        serde_json::Value::Bool(value) => take(&value.to_string()),
        serde_json::Value::Number(number) => {
            take(&number.as_f64().map(shown).unwrap_or_default());
        }
        serde_json::Value::String(text) => take(text),
        serde_json::Value::Array(list) => list.iter().for_each(|value| each_leaf(value, take)),
        serde_json::Value::Object(map) => map.values().for_each(|value| each_leaf(value, take)),
    }
}

/// Writes `7.0` and `70e-1` as `7`, and all integers that have one nearest double as that: an
/// application may take them for the same number.
fn shown(number: f64) -> String {
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT;
    // The zero has no sign.
    if is_whole {
        format!("{:.0}", number + 0.0)
    } else {
        number.to_string()
    }
}

/// A pointer, and its steps from here on.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    index: usize,
    steps: &'a [Box<str>],
}

type WantedList<'a> = SmallVec<[Wanted<'a>; 4]>;

/// A value on the way of some pointers.
struct Value<'a, 'v> {
    wanted: WantedList<'a>,
    values: &'v mut [BodyValue<String>],
}

impl Value<'_, '_> {
    /// Notes a value for the pointers that end here.
    fn note(self, text: impl Fn() -> BodyValue<String>) {
        for wanted in &self.wanted {
            if wanted.steps.is_empty() {
                self.values[wanted.index].add(text());
            }
        }
    }

    fn text(self, text: &str) {
        self.note(|| BodyValue::Text(text.to_owned()));
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.text(text);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.text(if value { "true" } else { "false" });
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "that is how JavaScript reads it"
    )]
    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "that is how JavaScript reads it"
    )]
    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.text(&shown(number));
        Ok(())
    }

    /// Takes null for an empty text, which is an absent value.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.text("");
        Ok(())
    }

    fn visit_seq<L: SeqAccess<'de>>(self, mut list: L) -> Result<(), L::Error> {
        for index in 0_usize.. {
            let name = index.to_string();
            let wanted = self.wanted.iter().filter_map(|wanted| match wanted.steps {
                [first, steps @ ..] if **first == *name => Some(Wanted { steps, ..*wanted }),
                _ => None,
            });
            let wanted: WantedList<'_> = wanted.collect();
            let more = if wanted.is_empty() {
                list.next_element::<IgnoredAny>()?.is_some()
            } else {
                let values = &mut *self.values;
                list.next_element_seed(Value { wanted, values })?.is_some()
            };
            if !more {
                break;
            }
        }
        self.note(|| BodyValue::Other);
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut seen: SmallVec<[bool; 4]> = SmallVec::from_elem(false, self.wanted.len());
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            let mut below = WantedList::new();
            for (wanted, seen) in self.wanted.iter().zip(&mut seen) {
                let [first, steps @ ..] = wanted.steps else {
                    continue;
                };
                if !is_same_name(first, &name) {
                    continue;
                }
                if *seen {
                    self.values[wanted.index] = BodyValue::Ambiguous;
                }
                *seen = true;
                below.push(Wanted { steps, ..*wanted });
            }
            if below.is_empty() {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(Value {
                    wanted: below,
                    values: &mut *self.values,
                })?;
            }
        }
        self.note(|| BodyValue::Other);
        Ok(())
    }
}
