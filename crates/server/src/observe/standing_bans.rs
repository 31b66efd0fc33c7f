//! Standing bans: the bans that began at this process and have not ended.
//!
//! ```text
//!   a decision that bans a key, POST /v1/bans --> limit, key: its end
//!   DELETE /v1/bans, a reset of the key       --> forgotten
//!   a look, once a second                     --> those that have ended: the event `ban.ended`
//! ```
//!
//! A ban is part of the state of its key, and nothing but that state decides ([ADR
//! 0027](../../../docs/adr/0027-a-ban-is-part-of-its-limit.md)). This list is for the
//! metrics and the log. Only a decision that begins a ban comes here.
//!
//! * [`MAX_BANS`] of all limits are listed; a further one is neither counted nor reported at its end.
//!   Each takes about 100 bytes and its key, which is at most 1,040 bytes.
//! * With a shared store each process lists the bans that it began. One that another process lifts
//!   is listed until its end would have come.
//! * A key that a full memory store pushes out loses its ban, and is listed until the end as well.

use std::collections::HashMap;

use parking_lot::Mutex;
use ratekeeper_core::{Key, LimitId, Time};
use ratekeeper_policy::{Policy, Rule};

/// Maximum number of listed bans of all limits.
pub(crate) const MAX_BANS: usize = 10_000;

/// The bans that stand.
#[derive(Debug, Default)]
pub(crate) struct StandingBans(Mutex<BanList>);

#[derive(Debug, Default)]
struct BanList {
    len: usize,
    /// Ends by key.
    limits: HashMap<LimitId, HashMap<Box<[u8]>, Time>>,
}

/// Bans of one limit that have ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct EndedBans {
    pub(crate) limit: LimitId,
    /// The key of one of them.
    pub(crate) key: Box<[u8]>,
    /// Number of the others.
    pub(crate) others: usize,
}

impl StandingBans {
    /// Notes a ban that ends at `end`, in place of an earlier one of the key.
    pub(crate) fn begin(&self, limit: LimitId, key: Key<'_>, end: Time) {
        let mut list = self.0.lock();
        let has_room = list.len < MAX_BANS;
        let keys = list.limits.entry(limit).or_default();
        if let Some(known) = keys.get_mut(key.as_bytes()) {
            *known = end;
        } else if has_room {
            keys.insert(key.as_bytes().into(), end);
            list.len += 1;
        }
    }

    /// Forgets the ban of a key, which was lifted.
    pub(crate) fn lift(&self, limit: LimitId, key: Key<'_>) {
        let mut list = self.0.lock();
        let keys = list.limits.get_mut(&limit);
        let removed = keys.and_then(|keys| keys.remove(key.as_bytes()));
        list.len -= usize::from(removed.is_some());
    }

    /// Forgets the bans of limits that ban no more.
    pub(crate) fn install(&self, policy: &Policy) {
        let banning = policy.rules.iter();
        let banning = banning.filter(|rule| rule.limit.algorithm.bans().is_some());
        let banning: Vec<LimitId> = banning.map(|rule| rule.limit.id).collect();
        let mut list = self.0.lock();
        list.limits.retain(|limit, _| banning.contains(limit));
        list.len = list.limits.values().map(HashMap::len).sum();
    }

    /// Returns the number of bans of a limit.
    pub(crate) fn count(&self, limit: LimitId) -> u64 {
        let list = self.0.lock();
        list.limits.get(&limit).map_or(0, |keys| keys.len() as u64)
    }

    /// Removes the bans that have ended by `now`, and returns one of each limit.
    pub(crate) fn look(&self, now: Time) -> Vec<EndedBans> {
        let mut list = self.0.lock();
        let mut ended = Vec::new();
        if list.len == 0 {
            return ended;
        }
        for (limit, keys) in &mut list.limits {
            let mut gone = keys.extract_if(|_, end| *end <= now);
            if let Some((key, _)) = gone.next() {
                let others = gone.count();
                ended.push(EndedBans {
                    limit: *limit,
                    key,
                    others,
                });
            }
        }
        list.len -= ended.iter().map(|bans| bans.others + 1).sum::<usize>();
        ended
    }
}

/// Returns the number of keys of a limit that operators have banned, and of those that they have
/// allowed.
pub(crate) fn counts_by_hand(policy: &Policy, rule: &Rule, unix_millis: u64) -> [u64; 2] {
    let table = policy.by_hand.table();
    let mut counts = [0; 2];
    for (_, entry) in table.of_limit(&rule.limit.name, unix_millis) {
        counts[entry.act as usize] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Nanos;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Nanos::from_secs(seconds)
    }

    #[test]
    fn a_ban_is_listed_until_it_ends_or_is_lifted() {
        let (bans, limit) = (StandingBans::default(), LimitId::new(3));
        let key = |name: &'static str| Key::from_bytes(name.as_bytes());
        for name in ["ada", "bob", "cy"] {
            bans.begin(limit, key(name), at(10));
        }
        bans.begin(limit, key("cy"), at(20));
        bans.lift(limit, key("bob"));
        bans.lift(limit, key("dan"));
        assert_eq!((bans.count(limit), bans.count(LimitId::new(0))), (2, 0));
        assert_eq!(bans.look(at(9)), []);
        let ended = |key: &[u8]| EndedBans {
            limit,
            key: key.into(),
            others: 0,
        };
        assert_eq!(bans.look(at(10)), [ended(b"ada")]);
        assert_eq!(bans.look(at(30)), [ended(b"cy")]);
        assert_eq!((bans.count(limit), bans.0.lock().len), (0, 0));
    }

    #[test]
    fn bans_are_bounded_and_their_ends_are_one_line_for_each_limit() {
        let (bans, limit) = (StandingBans::default(), LimitId::new(0));
        for number in 0..MAX_BANS + 10 {
            bans.begin(limit, Key::from_bytes(&number.to_le_bytes()), at(10));
        }
        assert_eq!(bans.count(limit), MAX_BANS as u64);
        let ended = bans.look(at(10));
        assert_eq!((ended.len(), ended[0].others), (1, MAX_BANS - 1));
        bans.begin(limit, Key::from_bytes(b"late"), at(20));
        assert_eq!(bans.count(limit), 1, "there is room again");
    }
}
