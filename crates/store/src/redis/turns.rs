//! Turns: exchanges of one process over one key run one at a time.
//!
//! ```text
//!   this process    a --load-swap--> b --load-swap--> c ..     one at a time for a key
//!   another              x --load- - -swap fails, again-->     they race with one another's
//! ```
//!
//! Two processes that race at one pace may go on as they began: one swaps, the other has just
//! loaded. So an exchange that has lost a few times in a row waits for a random time.
//!
//! Without turns, one of n concurrent exchanges succeeds, and the others try again: n rounds
//! for the last. With them an exchange races with other processes only.

use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::RandomState;
use smallvec::SmallVec;
use tokio::sync::{Mutex, MutexGuard};

/// Number of turns. Keys that share one wait for each other in vain; many make that rare.
const TURNS: usize = 256;

/// Races lost in a row after which the next is delayed.
const UNLUCKY: u32 = 8;
/// Maximum delay: several races take as long.
const MAX_PAUSE: Duration = Duration::from_millis(4);

/// Delays the next race of an exchange that has lost too many in a row.
pub(super) async fn pause(lost: u32) {
    if lost >= UNLUCKY {
        let random = RandomState::default().hash_one(lost);
        let share = f64::from(u16::try_from(random >> 48).unwrap_or(0)) / f64::from(u16::MAX);
        tokio::time::sleep(MAX_PAUSE.mul_f64(share)).await;
    }
}

/// The locks that exchanges take, by key.
#[derive(Debug)]
pub(super) struct Turns {
    turns: Box<[Mutex<()>]>,
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl Turns {
    /// Waits for the turns of all these keys. Every exchange takes turns in the same order, to
    /// avoid deadlocks.
    pub(super) async fn take(&self, names: &[&[u8]]) -> SmallVec<[MutexGuard<'_, ()>; 4]> {
        let turn = |name: &&[u8]| self.hasher.hash_one(name) % TURNS as u64;
        let mut turns: SmallVec<[u64; 4]> = names.iter().map(turn).collect();
        turns.sort_unstable();
        turns.dedup();
        let mut taken = SmallVec::new();
        for turn in turns {
            let turn = usize::try_from(turn).unwrap_or(0);
            taken.push(self.turns[turn].lock().await);
        }
        taken
    }
}
