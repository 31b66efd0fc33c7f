//! Entries: the keys of a table with their states, of one size, in one array.
//!
//! ```text
//!   StateTable<A, FlatEntries<WordKey, S>>    typed: the hot path
//!     '--> StateTable<A, dyn Entries<A>>      all other calls, compiled once for all sizes
//! ```

use ratekeeper_core::{Listed, Time};

use super::flat::{self, Fill, Flat, Room};
use super::key::{KeyHasher, SizeClass, StoredKey};

struct Entry<K, S> {
    key: K,
    state: S,
}

/// The entries of a table.
pub(super) struct FlatEntries<K, S> {
    flat: Flat<Entry<K, S>>,
    hasher: KeyHasher,
}

/// The entries of a table, whatever the size of their keys. Slots are those of [`Flat`].
pub(super) trait Entries<A: Listed> {
    fn size(&self) -> SizeClass;
    fn fill(&self) -> Fill;
    /// Bytes of an array with `slots` slots.
    fn bytes_of(&self, slots: usize) -> usize;
    /// Returns the slot and the state of a key.
    fn find(&mut self, hash: u64, key: &[u8]) -> Option<(usize, &mut A::State)>;
    /// Returns true if a key with this hash is here.
    fn has(&self, hash: u64) -> bool;
    fn state(&self, at: usize) -> Option<&A::State>;
    fn state_mut(&mut self, at: usize) -> Option<&mut A::State>;
    /// Looks at up to `left` slots below the `hand`, and stays at the first with an expired state.
    fn is_next_expired(&self, algorithm: &A, now: Time, hand: &mut usize, left: &mut usize)
    -> bool;
    /// Returns the hash of the key in a slot.
    fn hash(&self, at: usize) -> Option<u64>;
    /// Calls `to` with the bytes of the key in a slot, if it has one.
    fn show(&self, at: usize, to: &mut dyn FnMut(&[u8]));
    /// Adds a key. The caller has made room.
    fn insert(&mut self, hash: u64, key: &[u8], state: A::State);
    /// Takes an entry out, and the array with the last one; returns its state, the heap bytes of its
    /// key, and the bytes of an array that is gone.
    fn remove(&mut self, at: usize) -> Option<(A::State, usize, usize)>;
    /// Removes all, and the array.
    fn clear(&mut self);
    /// Moves to an array of `slots`. `keep` receives each state, the hash of its key, and whether
    /// the new array has room; the entries for which it returns true stay. Returns the heap bytes of
    /// the keys of all others.
    fn resize(
        &mut self,
        slots: usize,
        keep: &mut dyn FnMut(&mut A::State, u64, Room) -> bool,
    ) -> usize;
}

impl<K: StoredKey, S> FlatEntries<K, S> {
    pub(super) fn new(hasher: KeyHasher) -> Self {
        Self {
            flat: Flat::new(),
            hasher,
        }
    }

    /// Returns the state of a key that is here, if the first guess finds it.
    #[expect(clippy::inline_always, reason = "see `MemoryStore::decide_one`")]
    #[inline(always)]
    pub(super) fn likely(&mut self, hash: u64, probe: &K::Probe<'_>) -> Option<&mut S> {
        let entry = self.flat.get_mut(self.flat.likely(hash)?)?;
        let is_it = entry.key.is(probe);
        is_it.then_some(&mut entry.state)
    }
}

impl<A: Listed, K: StoredKey> Entries<A> for FlatEntries<K, A::State> {
    fn size(&self) -> SizeClass {
        K::SIZE
    }

    fn fill(&self) -> Fill {
        self.flat.fill()
    }

    fn bytes_of(&self, slots: usize) -> usize {
        Flat::<Entry<K, A::State>>::bytes_of(slots)
    }

    fn find(&mut self, hash: u64, key: &[u8]) -> Option<(usize, &mut A::State)> {
        let probe = K::probe(key);
        let at = self.flat.find(hash, |entry| entry.key.is(&probe))?;
        Some((at, &mut self.flat.get_mut(at)?.state))
    }

    fn has(&self, hash: u64) -> bool {
        let is_it = |entry: &Entry<K, A::State>| entry.key.rehash(&self.hasher) == hash;
        self.flat.find(hash, is_it).is_some()
    }

    fn state(&self, at: usize) -> Option<&A::State> {
        self.flat.get(at).map(|entry| &entry.state)
    }

    fn state_mut(&mut self, at: usize) -> Option<&mut A::State> {
        self.flat.get_mut(at).map(|entry| &mut entry.state)
    }

    fn is_next_expired(
        &self,
        algorithm: &A,
        now: Time,
        hand: &mut usize,
        left: &mut usize,
    ) -> bool {
        let slots = self.flat.fill().slots;
        *left = (*left).min(slots);
        while *left > 0 {
            *left -= 1;
            *hand = flat::before(*hand, slots);
            let entry = self.flat.get(*hand);
            if entry.is_some_and(|it| algorithm.expires_at(&it.state, now) <= now) {
                return true;
            }
        }
        false
    }

    fn hash(&self, at: usize) -> Option<u64> {
        self.flat.get(at).map(|it| it.key.rehash(&self.hasher))
    }

    fn show(&self, at: usize, to: &mut dyn FnMut(&[u8])) {
        if let Some(entry) = self.flat.get(at) {
            entry.key.show(to);
        }
    }

    fn insert(&mut self, hash: u64, key: &[u8], state: A::State) {
        let key = K::new(key);
        self.flat.insert(hash, Entry { key, state });
    }

    fn remove(&mut self, at: usize) -> Option<(A::State, usize, usize)> {
        let hasher = &self.hasher;
        let entry = self.flat.remove(at, |entry| entry.key.rehash(hasher))?;
        let Fill { len, slots } = self.flat.fill();
        let mut array = 0;
        if len == 0 {
            self.flat = Flat::new();
            array = Flat::<Entry<K, A::State>>::bytes_of(slots);
        }
        Some((entry.state, entry.key.heap_bytes(), array))
    }

    fn clear(&mut self) {
        self.flat = Flat::new();
    }

    fn resize(
        &mut self,
        slots: usize,
        keep: &mut dyn FnMut(&mut A::State, u64, Room) -> bool,
    ) -> usize {
        let (hasher, mut key_heap) = (&self.hasher, 0);
        let hash_of = |entry: &Entry<K, A::State>| entry.key.rehash(hasher);
        self.flat.resize(slots, hash_of, |entry, hash, room| {
            let stays = keep(&mut entry.state, hash, room);
            if !stays {
                key_heap += entry.key.heap_bytes();
            }
            stays
        });
        key_heap
    }
}
