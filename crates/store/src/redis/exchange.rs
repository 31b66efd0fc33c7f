//! Exchange: requests decided here, and written if nothing has changed meanwhile.
//!
//! ```text
//!   load --> decide --> swap, if each key still holds the loaded value --> done
//!    ^                     |
//!    +---- no, another ----+      with the requests that have come meanwhile
//! ```
//!
//! For requests that the script does not support: cores without a twin, a key named twice, looks
//! and resets, and limits with states that have changed their meaning. Two calls instead of one,
//! one if nothing is to be written; the results are the same.

use ratekeeper_core::{
    Algorithm as _, AnyState, EXPIRY_STEP_MICROS, Gcra, KeptValue, Listed as _, Nanos, Paid,
    UnixMicros,
};

use super::batch::{RedisBatch, ScriptReply, state_of};
use super::limits::Earlier;
use super::settle::Item;
use super::state::{learn, micros_left, paid};
use super::trouble::Trouble;
use crate::act::{ActKind, AnyAnswer};

/// Requests that are decided by an exchange.
pub(super) struct Exchange<'a> {
    pub(super) batch: RedisBatch<'a>,
    /// Keys under earlier labels, after those of the batch: index of the key, earlier limit.
    earlier: Vec<(usize, &'a Earlier)>,
    pub(super) names: Vec<&'a [u8]>,
    /// True if the caller gives the time.
    given: bool,
}

/// The answers of an exchange, and the values to write.
pub(super) struct Exchanged {
    pub(super) answers: Vec<AnyAnswer>,
    /// The arguments of `swap.lua`; `None` if nothing is to be written.
    pub(super) swap: Option<Vec<Vec<u8>>>,
    /// The states of the keys of the batch, afterwards.
    pub(super) after: Vec<AnyState>,
}

impl<'a> Exchange<'a> {
    /// Creates the exchange of these requests, at a time that the caller gives or at the server's.
    pub(super) fn of(batch: RedisBatch<'a>, given: Option<UnixMicros>) -> Self {
        let mut names = batch.names();
        let mut earlier = Vec::new();
        for (key, item) in batch.items().enumerate() {
            for (old, name) in &item.earlier {
                earlier.push((key, &item.limit.earlier[*old]));
                names.push(name);
            }
        }
        Self {
            batch,
            earlier,
            names,
            given: given.is_some(),
        }
    }

    /// Decides over the states found, or over the debts in `hints` where these are larger.
    pub(super) fn decide(
        &self,
        found: &ScriptReply,
        hints: Option<&[Option<Paid>]>,
    ) -> Result<Exchanged, Trouble> {
        let now = found.now;
        let count = self.batch.items().count();
        let mut before = Vec::with_capacity(count);
        for (key, item) in self.batch.items().enumerate() {
            before.push(match &found.values[key] {
                Some(bytes) => match state_of(item, bytes, now) {
                    // A foreign value is removed, as any state.
                    Err(_) if self.batch.removes().is_some() => AnyState::default(),
                    state => state?,
                },
                None => self.inherited(key, found),
            });
        }
        let kept = before.clone();
        for (key, hint) in hints.unwrap_or_default().iter().enumerate() {
            if let Some(hint) = hint {
                let value = found.values[key].as_deref().unwrap_or_default();
                let limit = &self.batch.item(key).limit.algorithm;
                learn(limit, &mut before[key], value, *hint, now);
            }
        }
        let mut after = before.clone();
        let answers = self.batch.settle_over(&mut after, now);
        // Debts that were remembered and not found are written, whatever the decision.
        let swap = self.swap(found, [&kept, &before, &after]);
        Ok(Exchanged {
            answers,
            swap,
            after,
        })
    }

    /// Returns the usage of the key under its newest earlier label, as a state.
    fn inherited(&self, key: usize, found: &ScriptReply) -> AnyState {
        let new = &self.batch.item(key).limit.algorithm;
        let count = self.batch.items().count();
        let mut old = self.earlier.iter().zip(&found.values[count..]);
        old.find_map(|((of, old), value)| {
            let bytes = value.as_deref().filter(|_| *of == key)?;
            let mut state = old.algorithm.read(bytes, found.now)?;
            new.carry(&mut state, &old.algorithm, found.now.time(), Nanos::ZERO);
            Some(state)
        })
        .unwrap_or_default()
    }

    /// Returns the arguments of `swap.lua`, from the states found, with hints, and afterwards.
    fn swap(
        &self,
        found: &ScriptReply,
        [kept, before, after]: [&[AnyState]; 3],
    ) -> Option<Vec<Vec<u8>>> {
        let mut arguments = Vec::new();
        let mut changes = false;
        for (key, item) in self.batch.items().enumerate() {
            let value = found.values[key].clone().unwrap_or_default();
            let states = [&kept[key], &before[key], &after[key]];
            let (next, expires) = match self.written(item, &value, states, found.now) {
                None => (value.clone(), Vec::new()),
                Some((next, stays)) => (next, expires_ms(found.now, stays)),
            };
            changes |= next != value;
            arguments.extend([value, next, expires]);
        }
        // States that were carried over are no longer needed under their earlier names.
        for value in &found.values[before.len()..] {
            changes |= value.is_some();
            arguments.extend([value.clone().unwrap_or_default(), Vec::new(), Vec::new()]);
        }
        changes.then_some(arguments)
    }

    /// Returns the new value, and for how many microseconds it stays; `None` if it is left as it
    /// is. A TAT that is moved back is marked: see `gcra/stored_form.rs` of the core.
    fn written(
        &self,
        item: &Item,
        value: &[u8],
        [kept, before, after]: [&AnyState; 3],
        now: UnixMicros,
    ) -> Option<(Vec<u8>, u64)> {
        let algorithm = &item.limit.algorithm;
        let mut next = KeptValue {
            bytes: Vec::new(),
            micros: micros_left(algorithm, after, now),
        };
        algorithm.write(after, now, &mut next.bytes);
        // If the caller gives the time nothing is remembered, and no mark is needed.
        let is_reset = self.batch.removes() == Some(ActKind::Reset);
        let erases = self.batch.removes() == Some(ActKind::Erase) || is_reset && self.given;
        let gcra = Gcra::of(algorithm).filter(|_| !erases);
        let was_lowered = Gcra::is_lowered(value);
        // A value of other numbers is converted once, whatever the decision: it would go on at the
        // other rate.
        let is_own = gcra.is_none_or(|gcra| gcra.wrote(value));
        let mut is_lowered = false;
        if let Some(gcra) = gcra {
            let (paid, was) = (paid(gcra, after, now), paid(gcra, before, now));
            let moved_back = kept != after && (was_lowered || paid < was);
            is_lowered = is_reset && !was_lowered || moved_back || was_lowered && !is_own;
            if is_lowered {
                // A debt keeps the moment at which it was paid: the clock may step back.
                if next.bytes.is_empty() {
                    next.bytes = gcra.value(gcra.paid_by(now));
                }
                Gcra::lower(&mut next.bytes);
                next.micros = next.micros.max(gcra.lowered_stays());
            }
        }
        let is_fresh = *kept == AnyState::default();
        let is_kept = kept == after && !(is_fresh && self.batch.removes().is_some());
        if is_kept && !value.is_empty() && is_own && !is_lowered {
            return None;
        }
        if self.batch.removes().is_none() {
            algorithm.keep_beyond(&mut next, value, now);
        }
        Some((next.bytes, next.micros))
    }
}

/// Returns the millisecond at which a value that lasts `micros` may expire: see
/// [`EXPIRY_STEP_MICROS`]. Empty for a value that lasts for ever.
fn expires_ms(now: UnixMicros, micros: u64) -> Vec<u8> {
    if micros == u64::MAX {
        return Vec::new();
    }
    let steps = now.get().saturating_add(micros) / EXPIRY_STEP_MICROS + 1;
    let at = steps * (EXPIRY_STEP_MICROS / 1_000); // far below 2^64
    at.min(LAST_MS).to_string().into_bytes()
}

/// The last millisecond that the store accepts.
const LAST_MS: u64 = 1 << 62;
