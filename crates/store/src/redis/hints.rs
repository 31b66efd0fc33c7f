//! Hints: debts that this process remembers, for a store that loses them.
//!
//! ```text
//!   answers     rk:{ada}:daily paid at 12:00:07      remembered, at most PLACES keys
//!   a sign of loss: a connection was lost or made anew; an answer found less than is known
//!   next call   rk:{ada}:daily, and "12:00:07"  -->  the store takes the later of the two
//! ```
//!
//! * **While nothing is lost nothing is sent.** After a sign of loss, the next call for each
//!   key sends its remembered debt; further calls for that key do not.
//! * **The later of two moments, never the sum**: TATs only move forward. Where one has been
//!   moved back (given back, reset, cut) its value is marked, is believed, and outlives every
//!   older hint: see `gcra/stored_form.rs` of the core.
//! * **Bounded.** If keys share a place, only the one with the longer debt is remembered. Other
//!   debts are forgiven if the store loses them, as without hints.
//! * **Token buckets only** (GCRA), because only their later state is the whole truth.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use ratekeeper_core::{AnyState, Gcra, Listed as _, Paid, StoredForm as _, UnixMicros};
use tokio::time::Instant;

use super::batch::{RedisBatch, ScriptReply};
use super::settle::Item;
use super::state::paid;

/// Maximum number of keys that are remembered: 4 MiB.
const PLACES: usize = 65_536;

/// Number of possible losses, counted by the connections of all servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses(Arc<AtomicU32>);

impl Losses {
    /// Counts a loss: a server may have lost its data, or another has taken over.
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of losses so far: a call that is sent now is answered after them.
    pub(super) fn so_far(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The remembered debts.
#[derive(Debug)]
pub(super) struct KeyHints {
    places: Box<[Mutex<KeyHint>]>,
    hashers: [RandomState; 2],
    pub(super) losses: Losses,
    /// Last reading of the store's clock, and when it was received.
    clock: Mutex<Option<(UnixMicros, Instant)>>,
}

/// The remembered debt of a key.
#[derive(Clone, Copy, Debug, Default)]
struct KeyHint {
    /// Hash of its name: together with its place, 80 bits that no client can predict.
    mark: u64,
    /// `None` if nothing is owed, or the store's value must be believed.
    paid: Option<Paid>,
    /// Time of the answer, on the store's clock.
    seen: UnixMicros,
    /// Version of the limit that decided.
    version: u32,
    /// Number of losses before the call.
    losses: u32,
}

impl KeyHints {
    pub(super) fn new(losses: Losses) -> Self {
        Self {
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
            hashers: [RandomState::default(), RandomState::default()],
            losses,
            clock: Mutex::default(),
        }
    }

    /// Returns the debts to send for the keys of a batch; `None` if there is no debt to send.
    pub(super) fn of(&self, batch: &RedisBatch<'_>) -> Option<Vec<Option<Paid>>> {
        let losses = self.losses.so_far();
        let hint = |item: &Item| {
            gcra(item)?;
            let (mark, place) = self.place(&item.name);
            let hint = *place.lock();
            let is_ours = hint.mark == mark && hint.version == item.limit.version;
            hint.paid.filter(|_| is_ours && hint.losses != losses)
        };
        let mut hints: Vec<_> = batch.items().map(hint).collect();
        if hints.iter().all(Option::is_none) {
            return None;
        }
        let now = self.now();
        for hint in &mut hints {
            *hint = hint.filter(|paid| paid.micros() > now);
        }
        Some(hints)
    }

    /// Returns an estimate of the store's clock: debts of long ago would be taken for others.
    fn now(&self) -> UnixMicros {
        let clock = *self.clock.lock();
        clock.map_or_else(UnixMicros::default, |(shown, heard)| {
            let passed = u64::try_from(heard.elapsed().as_micros()).unwrap_or(u64::MAX);
            UnixMicros::new(shown.get().saturating_add(passed))
        })
    }

    /// Remembers the debts after a call, which was sent after `losses` losses.
    pub(super) fn note(
        &self,
        batch: &RedisBatch<'_>,
        found: &ScriptReply,
        after: &[AnyState],
        losses: u32,
    ) {
        *self.clock.lock() = Some((found.now, Instant::now()));
        let mut lost = false;
        for ((item, after), value) in batch.items().zip(after).zip(&found.values) {
            if let Some(gcra) = gcra(item) {
                let is_earlier = Gcra::with_state(after, |tat| gcra.is_earlier(tat, found.now));
                let after = paid(gcra, after, found.now);
                let bytes = value.as_deref().unwrap_or_default();
                let before = gcra_state(gcra, bytes, found.now);
                let seen = ReplyFacts {
                    at: found.now,
                    losses,
                    before,
                    after,
                    // A value of other numbers is paid at another rate; a hint has one's own.
                    lowered: Gcra::is_lowered(bytes)
                        || !bytes.is_empty() && !gcra.wrote(bytes)
                        || is_earlier
                        || after < before,
                };
                lost |= self.note_one(item, &seen);
            }
        }
        if lost {
            self.losses.count();
        }
    }

    /// Remembers the debt of a key; returns true if the store has lost one that it held before.
    fn note_one(&self, item: &Item, seen: &ReplyFacts) -> bool {
        let (mark, place) = self.place(&item.name);
        let mut hint = place.lock();
        let next = KeyHint {
            mark,
            paid: seen.after.filter(|_| !seen.lowered),
            seen: seen.at,
            version: item.limit.version,
            losses: seen.losses,
        };
        let known = hint.paid.filter(|paid| paid.micros() > seen.at);
        if hint.mark != mark {
            if known <= next.paid {
                *hint = next;
            }
            return false;
        }
        if hint.version != item.limit.version {
            *hint = next;
            return false;
        }
        if seen.at < hint.seen {
            return false; // overtaken by a later answer
        }
        if seen.lowered || known <= seen.before {
            *hint = next;
            return false;
        }
        hint.paid = known.max(seen.after);
        hint.seen = seen.at;
        true
    }

    fn place(&self, name: &[u8]) -> (u64, &Mutex<KeyHint>) {
        let [mark, place] = [0, 1].map(|which| self.hashers[which].hash_one(name));
        let place = place % PLACES as u64;
        (mark, &self.places[usize::try_from(place).unwrap_or(0)])
    }
}

/// The facts of an answer about a key.
struct ReplyFacts {
    at: UnixMicros,
    /// Number of losses before the call.
    losses: u32,
    before: Option<Paid>,
    after: Option<Paid>,
    /// True if something was given back, now or before.
    lowered: bool,
}

fn gcra(item: &Item) -> Option<&Gcra> {
    Gcra::of(&item.limit.algorithm)
}

/// Returns when the debt of a value is paid.
fn gcra_state(gcra: &Gcra, bytes: &[u8], now: UnixMicros) -> Option<Paid> {
    gcra.paid(&gcra.read(bytes, now)?, now)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ratekeeper_core::{Limit, Mode, Origin, Permits};
    use smallvec::smallvec;

    use super::super::batch::RedisRequest;
    use super::super::limits::KnownLimits;
    use super::*;
    use crate::act::{ActKind, ChargeCorrection};
    use crate::conformance::limit;

    /// Time at which all debts are noted.
    const NOW: u64 = 1_000_000;

    struct Bench {
        hints: KeyHints,
        limit: Arc<super::super::limits::Prepared>,
    }

    impl Bench {
        fn new() -> Self {
            let limit = Limit {
                name: "daily".into(),
                ..limit(0, Gcra::token_bucket("1000/1d".parse().unwrap()).unwrap())
            };
            Self {
                hints: KeyHints::new(Losses::default()),
                limit: KnownLimits::new(Origin::UNIX, String::new()).prepare(&limit),
            }
        }

        fn item(&self, name: &str) -> Item {
            Item {
                limit: Arc::clone(&self.limit),
                name: name.as_bytes().into(),
                cost: Permits::ONE,
                mode: Mode::Enforce,
                lease: None,
                correction: ChargeCorrection::GiveBack,
                receipt: None,
                earlier: Vec::new(),
            }
        }

        /// Notes an answer at `at`: a key that was not known owes until `owed`.
        fn hears(&self, name: &str, at: u64, owed: u64) {
            let seen = ReplyFacts {
                at: UnixMicros::new(at),
                losses: self.hints.losses.so_far(),
                before: None,
                after: Some(paid(owed)),
                lowered: false,
            };
            let lost = self.hints.note_one(&self.item(name), &seen);
            assert!(!lost, "no loss for a new {name}");
        }

        /// Returns the debt that would be sent for a key after a loss.
        fn tells(&self, name: &str) -> Option<Paid> {
            let ask = RedisRequest {
                act: ActKind::Look,
                items: smallvec![self.item(name)],
            };
            self.hints.of(&RedisBatch::of([&ask]))?[0]
        }

        /// Returns the place of a key, as a number.
        fn place(&self, name: &str) -> usize {
            let (_, place) = self.hints.place(name.as_bytes());
            std::ptr::from_ref(place).addr()
        }
    }

    fn paid(micros: u64) -> Paid {
        let daily = Gcra::token_bucket("1000/1d".parse().unwrap()).unwrap();
        daily.paid_by(UnixMicros::new(micros))
    }

    #[test]
    fn a_full_table_keeps_of_each_place_the_longest_debt() {
        let bench = Bench::new();
        // Three keys for each place; no two debts are equal, and they are not in order.
        let count = 3 * u64::try_from(PLACES).unwrap();
        let debt = |number: u64| NOW + 1 + number.wrapping_mul(0x9e37_79b1) % (1 << 40);
        let keys: Vec<_> = (0..count)
            .map(|number| (format!("key-{number}"), debt(number)))
            .collect();
        let mut longest = HashMap::new();
        for (name, owed) in &keys {
            bench.hears(name, NOW, *owed);
            let place = longest.entry(bench.place(name)).or_insert(0);
            *place = (*owed).max(*place);
        }
        assert!(longest.len() <= PLACES && longest.len() > PLACES / 2);
        bench.hints.losses.count();
        let mut given = 0;
        for (name, owed) in &keys {
            let kept = longest[&bench.place(name)] == *owed;
            assert_eq!(bench.tells(name), kept.then(|| paid(*owed)), "{name}");
            given += usize::from(kept);
        }
        assert_eq!(given, longest.len(), "one debt is kept per place");
    }

    #[test]
    fn a_debt_that_is_paid_gives_up_its_place() {
        let bench = Bench::new();
        let others = (0..).map(|number| format!("other-{number}"));
        let mut others = others.filter(|name| bench.place(name) == bench.place("ada"));
        let bob = others.next().unwrap();
        bench.hears("ada", NOW, NOW + 50);
        bench.hears(&bob, NOW + 10, NOW + 40);
        bench.hints.losses.count();
        assert_eq!(bench.tells("ada"), Some(paid(NOW + 50)));
        assert_eq!(bench.tells(&bob), None, "the debt of ada is longer");

        bench.hears(&bob, NOW + 50, NOW + 60);
        bench.hints.losses.count();
        assert_eq!(bench.tells("ada"), None);
        assert_eq!(bench.tells(&bob), Some(paid(NOW + 60)));
    }
}
