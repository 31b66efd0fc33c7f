//! Index over patterns by a gram: four bytes that all values of a pattern contain.
//!
//! ```text
//!   *checkout*          chec heck ecko .. kout   the gram that the fewest patterns have
//!   /api/**/action7     /api /act acti .. ion7   the same
//!   value               each four bytes of it: one look-up, which most often ends at one bit
//! ```
//!
//! For patterns without a common part at one place, and those that share theirs with many.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

/// Number of words of the filter, 8 KiB: with 4,000 grams it leaves out 15 of 16 others.
const FILTER_WORDS: usize = 1 << 10;

/// Lists of patterns, by gram.
pub(crate) type GramLists = HashMap<u32, Vec<u32>, RandomState>;

/// The index.
#[derive(Clone, Debug, Default)]
pub(crate) struct GramIndex {
    /// Has a bit for each gram of `lists`.
    filter: Box<[u64]>,
    lists: GramLists,
}

/// Returns the grams of a text, each as a number.
pub(crate) fn grams(text: &[u8]) -> impl Iterator<Item = u32> {
    let last_four = |word: &mut u32, byte: &u8| {
        *word = *word << 8 | u32::from(*byte);
        Some(*word)
    };
    text.iter().scan(0, last_four).skip(3)
}

impl GramIndex {
    /// Indexes patterns by one gram of each.
    pub(crate) fn new(mut lists: GramLists) -> Self {
        let mut filter = vec![0; if lists.is_empty() { 0 } else { FILTER_WORDS }];
        for (gram, list) in &mut lists {
            let (word, bit) = filter_place(*gram);
            filter[word] |= bit;
            list.sort_unstable();
            list.dedup();
        }
        let filter = filter.into();
        Self { filter, lists }
    }

    /// Calls `found` with lists of all patterns that may match a text, each list in rising order
    /// and once, until it returns true; returns true if it did.
    pub(crate) fn any_near<'a>(
        &'a self,
        text: &[u8],
        found: impl FnMut(&'a [u32]) -> bool,
    ) -> bool {
        let Some(filter) = self.filter.first_chunk::<FILTER_WORDS>() else {
            return false;
        };
        let may_have = |gram: &u32| {
            let (word, bit) = filter_place(*gram);
            filter[word] & bit != 0
        };
        let mut near: SmallVec<[u32; 8]> = grams(text).filter(may_have).collect();
        near.sort_unstable();
        near.dedup();
        let lists = near.iter().filter_map(|gram| self.lists.get(gram));
        lists.map(Vec::as_slice).any(found)
    }
}

/// Returns the word of a gram in the filter, and its bit there.
fn filter_place(gram: u32) -> (usize, u64) {
    let hash = gram.wrapping_mul(0x9e37_79b1);
    let word = (hash >> 22) as usize; // 10 bits: below FILTER_WORDS
    (word, 1 << (hash >> 16 & 63))
}
