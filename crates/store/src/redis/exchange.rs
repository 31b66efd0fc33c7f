//! Exchange: a request decided here, and written if nothing has changed meanwhile.
//!
//! ```text
//!   load --> decide --> swap, if each key still holds what was loaded --> done
//!    ^                     |
//!    +---- no, another ----+      at most TRIES times
//! ```
//!
//! For what the script cannot do: cores without a twin, requests that name a key twice, looks
//! and resets, and limits whose states have changed their meaning. Two calls instead of one,
//! one if nothing is to be written; the results are the same.

use ratekeeper_core::UnixMicros;

use super::batch::{Ask, Batch, Found, state_of};
use super::limits::Earlier;
use super::settle::Outcome;
use super::state::State;
use super::trouble::Trouble;

/// Times that a request is decided anew because another process has changed its keys. Each
/// time one of the others has succeeded.
pub(super) const TRIES: u32 = 64;

/// A request on its way through an exchange.
pub(super) struct Exchange<'a> {
    batch: Batch<'a>,
    /// Keys of earlier shapes, after those of the batch: of which key, and what it was.
    earlier: Vec<(usize, &'a Earlier)>,
    names: Vec<Vec<u8>>,
}

/// What an exchange has decided, and what is to be written for it.
pub(super) struct Exchanged {
    pub(super) outcome: Outcome,
    /// The arguments of `swap.lua`; none if nothing is to be written.
    pub(super) swap: Option<Vec<Vec<u8>>>,
}

impl<'a> Exchange<'a> {
    /// The exchange of `ask`; `rename` gives the names of its keys under earlier labels.
    pub(super) fn of(ask: &'a Ask, rename: impl Fn(usize, &Earlier) -> Box<[u8]>) -> Self {
        let batch = Batch::of([ask]);
        let mut names: Vec<_> = batch.names().into_iter().map(<[u8]>::to_vec).collect();
        let mut earlier = Vec::new();
        for (key, item) in batch.items().enumerate() {
            for old in &item.limit.earlier {
                earlier.push((key, old));
                names.push(rename(batch.index_of(key), old).into_vec());
            }
        }
        Self {
            batch,
            earlier,
            names,
        }
    }

    /// All keys.
    pub(super) fn names(&self) -> Vec<&[u8]> {
        self.names.iter().map(Vec::as_slice).collect()
    }

    /// Decides.
    pub(super) fn decide(&self, found: &Found) -> Result<Exchanged, Trouble> {
        let now = found.now;
        let count = self.batch.items().count();
        let mut before = Vec::with_capacity(count);
        for (key, item) in self.batch.items().enumerate() {
            before.push(match &found.values[key] {
                Some(bytes) => state_of(item, bytes, now)?,
                None => self.inherited(key, found),
            });
        }
        let mut after = before.clone();
        let outcome = self.batch.settle_over(&mut after, now).remove(0);
        Ok(Exchanged {
            outcome,
            swap: self.swap(found, &before, &after),
        })
    }

    /// What the key has used under an earlier label, the newest there is.
    fn inherited(&self, key: usize, found: &Found) -> State {
        let new = &self.batch.item(key).limit.algorithm;
        let count = self.batch.items().count();
        let mut old = self.earlier.iter().zip(&found.values[count..]);
        old.find_map(|((of, old), value)| {
            let bytes = value.as_deref().filter(|_| *of == key)?;
            let state = State::read(&old.algorithm, bytes, found.now)?;
            Some(state.carried(&old.algorithm, new, found.now))
        })
        .unwrap_or_default()
    }

    fn swap(&self, found: &Found, before: &[State], after: &[State]) -> Option<Vec<Vec<u8>>> {
        let mut arguments = Vec::new();
        let mut changes = false;
        for (key, item) in self.batch.items().enumerate() {
            let algorithm = &item.limit.algorithm;
            let value = found.values[key].clone().unwrap_or_default();
            let is_new = found.values[key].is_none();
            let (next, expires) = if before[key] == after[key] && !is_new {
                (value.clone(), Vec::new())
            } else {
                let next = after[key].write(algorithm, found.now);
                (
                    next,
                    expires_ms(found.now, after[key].lasts(algorithm, found.now)),
                )
            };
            changes |= next != value;
            arguments.extend([value, next, expires]);
        }
        // What was carried over is no longer needed where it was.
        for value in &found.values[before.len()..] {
            changes |= value.is_some();
            arguments.extend([value.clone().unwrap_or_default(), Vec::new(), Vec::new()]);
        }
        changes.then_some(arguments)
    }
}

/// The millisecond at which a value that lasts `micros` may go: later, never earlier.
fn expires_ms(now: UnixMicros, micros: u64) -> Vec<u8> {
    let at = now.get().saturating_add(micros).div_ceil(1_000) + 1;
    at.min(LAST_MS).to_string().into_bytes()
}

/// The last millisecond that the store takes.
const LAST_MS: u64 = 1 << 62;
