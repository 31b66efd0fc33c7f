//! Batch: requests that one call of the script decides, and the answer to each.
//!
//! ```text
//!   requests     a: (user, 1) (address, 1)      b: (user, 1)
//!   keys         user, address                  each once: one read, one write
//!   charges      a.0 a.1* b.0*                  * ends a request: all of it or none
//!   answer       now, value of user, value of address -> the same again, by the cores
//! ```
//!
//! The script returns only the values it found and the time; the requests are then settled
//! here, over the same states at the same moment, by the definition of each core. So callers
//! receive the answers of the definition, and the script has little to do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ratekeeper_core::{AnyState, Gcra, Listed as _, Mode, Paid, Permits, UnixMicros};
use redis::Value;
use smallvec::SmallVec;

use super::script::{Script, Scripts};
use super::settle::{Item, settle};
use super::trouble::Trouble;
use crate::act::{ActKind, AnyAnswer};

/// The items of a request.
pub(super) type Items = SmallVec<[Item; 2]>;

/// The act that a request asks for, and its charges.
#[derive(Debug)]
pub(super) struct RedisRequest {
    pub(super) act: ActKind,
    pub(super) items: Items,
}

impl RedisRequest {
    /// Returns true if it removes states, whatever they are.
    pub(super) fn removes(&self) -> bool {
        matches!(self.act, ActKind::Reset | ActKind::Erase)
    }

    /// Returns true if states under earlier names may go on under the names of its items.
    pub(super) fn inherits(&self) -> bool {
        self.items.iter().any(|item| !item.earlier.is_empty())
    }

    /// Returns true if the script supports the act, the limits and the keys.
    pub(super) fn has_script(&self) -> bool {
        matches!(self.act, ActKind::Decide(_) | ActKind::GiveBack)
            && self.items.iter().all(|item| item.limit.twin.is_some())
            && !self.inherits()
            && !RedisBatch::of([self]).names_one_twice()
    }
}

/// Marks a charge that is made even if the request is refused.
const REGARDLESS: u8 = 8;
/// Marks the last charge of a request.
const LAST: u8 = 16;

/// Requests, and their distinct keys.
pub(super) struct RedisBatch<'a> {
    asks: Vec<&'a RedisRequest>,
    /// The first item of each key.
    keys: Vec<&'a Item>,
    /// For each request, the index of each item's key.
    places: Vec<SmallVec<[usize; 2]>>,
}

impl<'a> RedisBatch<'a> {
    pub(super) fn of(asks: impl IntoIterator<Item = &'a RedisRequest>) -> Self {
        let asks: Vec<_> = asks.into_iter().collect();
        let mut known = HashMap::new();
        let mut keys = Vec::new();
        let mut places = Vec::with_capacity(asks.len());
        for ask in &asks {
            let place = |item: &'a Item| {
                *known.entry(&*item.name).or_insert_with(|| {
                    keys.push(item);
                    keys.len() - 1
                })
            };
            places.push(ask.items.iter().map(place).collect());
        }
        Self { asks, keys, places }
    }

    /// Returns the act that removes states, if there is one.
    pub(super) fn removes(&self) -> Option<ActKind> {
        let mut asks = self.asks.iter().filter(|ask| ask.removes());
        asks.next().map(|ask| ask.act)
    }

    /// Returns the first item of each key.
    pub(super) fn items(&self) -> impl Iterator<Item = &'a Item> {
        self.keys.iter().copied()
    }

    pub(super) fn item(&self, key: usize) -> &'a Item {
        self.keys[key]
    }

    pub(super) fn names(&self) -> Vec<&'a [u8]> {
        self.keys.iter().map(|item| &*item.name).collect()
    }

    /// Returns true if a request names a key twice: each charge must then be decided on top of
    /// the one before, which the script does not do. Headroom is decided with the next charge.
    pub(super) fn names_one_twice(&self) -> bool {
        self.asks.iter().zip(&self.places).any(|(ask, places)| {
            let charges = |at: &usize| ask.items[*at].mode != Mode::Headroom;
            let twice = |at: usize| {
                let mut before = (0..at).filter(charges);
                before.any(|before| places[before] == places[at])
            };
            (0..places.len()).filter(charges).any(twice)
        })
    }

    /// Returns the answer to each request over the values found, and the states afterwards. The
    /// script did nothing for requests with a value that it does not read.
    pub(super) fn settle(
        &self,
        found: &ScriptReply,
    ) -> (Vec<Result<AnyAnswer, Trouble>>, Vec<AnyState>) {
        let now = found.now;
        let read = |(item, value): (&&Item, &Option<Vec<u8>>)| match value {
            Some(bytes) => own_state_of(item, bytes, now),
            None => Ok(AnyState::default()),
        };
        let read: Vec<_> = self.keys.iter().zip(&found.values).map(read).collect();
        let states = read.iter().map(|state| state.clone().unwrap_or_default());
        let mut states: Vec<_> = states.collect();
        let answers = self.settle_over(&mut states, now);
        let unread = |places: &SmallVec<[usize; 2]>| {
            let mut errors = places.iter().filter_map(|&place| read[place].clone().err());
            errors.next().map_or(Ok(()), Err)
        };
        let each = answers.into_iter().zip(&self.places);
        let each = each.map(|(answer, places)| unread(places).map(|()| answer));
        (each.collect(), states)
    }

    /// Settles the requests in order, over the states of the keys.
    pub(super) fn settle_over(&self, states: &mut [AnyState], now: UnixMicros) -> Vec<AnyAnswer> {
        let requests = self.asks.iter().zip(&self.places);
        let settled =
            requests.map(|(ask, places)| settle(ask.act, &ask.items, places, states, now));
        settled.collect()
    }

    /// Returns the script and its arguments; `None` if a limit has no twin. `hints` holds the
    /// remembered debt of each key.
    pub(super) fn script(
        &self,
        scripts: &Scripts,
        given: Option<UnixMicros>,
        hints: Option<Vec<Option<Paid>>>,
    ) -> Option<(Arc<Script>, Vec<Vec<u8>>)> {
        let hints = hints.unwrap_or_default().into_iter();
        let hints = hints.zip(&self.keys).map(|(hint, item)| {
            match (Gcra::of(&item.limit.algorithm), hint) {
                (Some(gcra), Some(paid)) => gcra.value(paid),
                _ => Vec::new(),
            }
        });
        let given = given.map_or(Vec::new(), |now| now.get().to_string().into());
        if let Some((source, packs)) = self.short() {
            let arguments = std::iter::once(given).chain(packs).chain(hints).collect();
            return Some((scripts.short(source), arguments));
        }
        let mut cores = BTreeMap::new();
        let mut arguments = vec![given];
        for item in &self.keys {
            let twin = item.limit.twin.as_ref()?;
            cores.insert(item.limit.tag, twin.source);
            let mut pack = vec![item.limit.tag];
            pack.extend(bytes_of(&twin.numbers));
            pack.extend(ended(&twin.name));
            arguments.push(pack);
        }
        arguments.push(self.charges());
        arguments.extend(hints);
        Some((scripts.decide(&cores), arguments))
    }

    /// Returns the script of the short twin, and for each key the numbers of the limit, then the
    /// price of each request. `None` unless all requests are single charges under one short twin.
    fn short(&self) -> Option<(&'static str, Vec<Vec<u8>>)> {
        let first = self.keys.first()?.limit.short.as_ref()?;
        let mut packs = Vec::with_capacity(self.keys.len());
        for item in &self.keys {
            let twin = item.limit.short.as_ref()?;
            if twin.source != first.source {
                return None;
            }
            let mut pack = bytes_of(&twin.numbers);
            pack.extend(ended(&twin.name));
            packs.push(pack);
        }
        for (ask, places) in self.asks.iter().zip(&self.places) {
            let ([item], [place], ActKind::Decide(_)) = (&*ask.items, &**places, ask.act) else {
                return None;
            };
            packs[*place].extend(bytes_of(&[item.limit.algorithm.short_price(item.cost)]));
        }
        Some((first.source, packs))
    }

    /// See `decide.lua`.
    fn charges(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (ask, places) in self.asks.iter().zip(&self.places) {
            for (at, (item, &place)) in ask.items.iter().zip(places).enumerate() {
                let act = match (ask.act, item.mode) {
                    (ActKind::GiveBack, _) => 2,
                    (_, Mode::Shadow) => 1,
                    (_, Mode::Otherwise) if at > 0 => 3,
                    (_, Mode::Enforce | Mode::Otherwise) => 0,
                    (_, Mode::Once) => 4,
                    (_, Mode::Headroom) => 5,
                };
                let regardless = match ask.act {
                    ActKind::Decide(lend)
                        if matches!(item.mode, Mode::Enforce | Mode::Shadow)
                            && item.limit.algorithm.charges_even_if_refused(lend) =>
                    {
                        REGARDLESS
                    }
                    _ => 0,
                };
                let last = if at + 1 == ask.items.len() { LAST } else { 0 };
                let key = u16::try_from(place + 1).unwrap_or(u16::MAX); // a batch has fewer keys
                bytes.extend_from_slice(&key.to_le_bytes());
                bytes.push(act + regardless + last);
                let beside = match (item.mode, ask.items.get(at + 1)) {
                    (Mode::Headroom, Some(next)) => next.cost,
                    _ => Permits::ZERO,
                };
                bytes.extend(bytes_of(&item.limit.algorithm.price(item.cost + beside)));
            }
        }
        bytes
    }
}

/// Returns a name as a script reads it: with a zero at its end; nothing for none.
fn ended(name: &[u8]) -> Vec<u8> {
    match name {
        [] => Vec::new(),
        name => [name, b"\0"].concat(),
    }
}

fn bytes_of(numbers: &[f64]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.collect()
}

/// Reads a state from bytes that the twin of the item's limit reads.
fn own_state_of(item: &Item, bytes: &[u8], now: UnixMicros) -> Result<AnyState, Trouble> {
    match &item.limit.twin {
        Some(twin) if !bytes.ends_with(&twin.name) => Err(foreign(item)),
        _ => state_of(item, bytes, now),
    }
}

/// Reads a state from its bytes, under the item's limit.
pub(super) fn state_of(item: &Item, bytes: &[u8], now: UnixMicros) -> Result<AnyState, Trouble> {
    let state = item.limit.algorithm.read(bytes, now);
    state.ok_or_else(|| foreign(item))
}

fn foreign(item: &Item) -> Trouble {
    // Not the key: it may be an address that no log may have.
    let limit = &item.limit.label.limit;
    Trouble::Foreign(format!(
        "a value under limit `{limit}` is not a state of it"
    ))
}

/// The time and the values that a script found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ScriptReply {
    pub(super) now: UnixMicros,
    /// One for each key.
    pub(super) values: Vec<Option<Vec<u8>>>,
}

impl ScriptReply {
    /// Reads the answer of a script that was given `count` keys: a list, or for one key a text
    /// of seconds, microseconds, and the value if there is one.
    pub(super) fn read(answer: Value, count: usize) -> Result<Self, Trouble> {
        let strange = || Trouble::Refused("unexpected reply from the script".into());
        let parts = match answer {
            Value::Array(parts) => parts,
            Value::BulkString(text) if count == 1 => {
                return Self::of_text(&text).ok_or_else(strange);
            }
            _ => return Err(strange()),
        };
        let mut parts = parts.into_iter();
        let now = match parts.next() {
            Some(Value::Int(now)) => u64::try_from(now).map_err(|_| strange())?,
            _ => return Err(strange()),
        };
        let value = |part| match part {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(strange()),
        };
        let values: Vec<_> = parts.map(value).collect::<Result<_, _>>()?;
        if values.len() != count {
            return Err(strange());
        }
        Ok(Self {
            now: UnixMicros::new(now),
            values,
        })
    }

    /// Reads the text form. The value may hold any bytes, spaces included.
    fn of_text(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(3, |&byte| byte == b' ');
        let mut number = || str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
        let (seconds, micros) = (number()?, number()?);
        let value = parts.next().filter(|value| !value.is_empty());
        Some(Self {
            now: UnixMicros::new(seconds.checked_mul(1_000_000)?.checked_add(micros)?),
            values: vec![value.map(<[u8]>::to_vec)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_key_is_answered_as_a_text() {
        let check = |text: &str, given: Option<(u64, Option<&str>)>| {
            let found = ScriptReply::read(Value::BulkString(text.into()), 1);
            let given = given.map(|(now, value)| ScriptReply {
                now: UnixMicros::new(now),
                values: vec![value.map(|value| value.as_bytes().to_vec())],
            });
            assert_eq!(found.ok(), given, "{text:?}");
        };
        check(
            "1763712345 7 4836",
            Some((1_763_712_345_000_007, Some("4836"))),
        );
        check(
            "1763712345 678901 -48",
            Some((1_763_712_345_678_901, Some("-48"))),
        );
        check("1763712345 0 ", Some((1_763_712_345_000_000, None)));
        check("1 0 none of ours", Some((1_000_000, Some("none of ours"))));
        for text in ["", "1", "1 ", "1 x ", "-1 2 3", "99999999999999 0 "] {
            check(text, None);
        }
        assert!(ScriptReply::read(Value::BulkString("1 2 3".into()), 2).is_err());
    }
}
