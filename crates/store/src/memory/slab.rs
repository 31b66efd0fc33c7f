//! Slab: entries side by side in chunks, in no order.
//!
//! ```text
//!   chunks   [0]            [1]            [2]
//!            |e e e .. e|   |e e e .. e|   |e e _ .. _|
//!                                              '- the last moves into a gap
//! ```
//!
//! It grows by one chunk at a time and never moves what it holds: growing costs the same
//! at any size, and what is allocated beyond need is less than a chunk.

/// Entries in a chunk.
pub(super) const CHUNK: usize = 128;
/// Room of the first chunk of a limit with few keys; it doubles up to a whole chunk.
const FIRST: usize = 4;
/// Room of the list of chunks at first; it doubles.
const FIRST_CHUNKS: usize = 4;

#[derive(Debug)]
pub(super) struct Slab<T> {
    /// All but the last are full; none is empty.
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    pub(super) fn push(&mut self, entry: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => {
                if last.len() == last.capacity() {
                    last.reserve_exact(last.len()); // doubles, up to a whole chunk
                }
                last.push(entry);
            }
            _ => {
                if self.chunks.len() == self.chunks.capacity() {
                    self.chunks
                        .reserve_exact(self.chunks.len().max(FIRST_CHUNKS));
                }
                let room = if self.chunks.is_empty() { FIRST } else { CHUNK };
                let mut chunk = Vec::with_capacity(room);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let entry = last.pop()?;
        if last.is_empty() {
            self.chunks.pop();
            if self.chunks.is_empty() || self.chunks.len() < self.chunks.capacity() / 4 {
                self.chunks.shrink_to(self.chunks.len() * 2);
            }
        }
        self.len -= 1;
        Some(entry)
    }

    /// Takes the entry out; the last one, if another, moves to its place.
    pub(super) fn swap_remove(&mut self, at: usize) -> Option<T> {
        if at >= self.len {
            return None;
        }
        let last = self.pop()?;
        match self.get_mut(at) {
            Some(place) => Some(std::mem::replace(place, last)),
            None => Some(last), // it was the last
        }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        let first = self.chunks.first().map_or(0, Vec::capacity);
        let rest = self.chunks.len().saturating_sub(1) * CHUNK;
        (first + rest) * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }

    /// Bytes that one more entry needs beyond those in use, while it moves what must move.
    pub(super) fn growth(&self) -> usize {
        match self.chunks.last() {
            Some(last) if last.len() < last.capacity() => 0,
            Some(last) if last.len() < CHUNK => 2 * last.capacity() * size_of::<T>(),
            _ => {
                let room = if self.chunks.is_empty() { FIRST } else { CHUNK };
                let list = if self.chunks.len() == self.chunks.capacity() {
                    self.chunks.len().max(FIRST_CHUNKS) + self.chunks.len()
                } else {
                    0
                };
                room * size_of::<T>() + list * size_of::<Vec<T>>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_as_foretold_and_gives_back() {
        let mut slab = Slab::new();
        for number in 0..10_000_usize {
            let (before, growth) = (slab.bytes(), slab.growth());
            slab.push(number);
            assert!(slab.bytes() <= before + growth, "{number}");
            assert_eq!(slab.get(number), Some(&number));
        }
        let spare = slab.bytes() - 10_000 * size_of::<usize>();
        assert!(spare <= CHUNK * size_of::<usize>() + 2 * 79 * size_of::<Vec<usize>>());
        for left in (0..10_000).rev() {
            assert!(slab.swap_remove(left / 2).is_some());
            assert_eq!(slab.len(), left);
        }
        assert_eq!(slab.bytes(), 0);
    }

    #[test]
    fn the_last_fills_the_gap() {
        let mut slab = Slab::new();
        (0..200).for_each(|number| slab.push(number));
        assert_eq!(slab.swap_remove(3), Some(3));
        assert_eq!(slab.get(3), Some(&199));
        assert_eq!(slab.swap_remove(198), Some(198), "the last itself");
        assert_eq!(slab.swap_remove(198), None);
        assert_eq!(slab.len(), 198);
    }
}
