//! Found: the counts of a limit and of its first keys, and the likely cause of its refusals.

use ratekeeper_core::Time;

use super::sketch::Estimate;

/// The counts of a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopKeysFound {
    /// Start of the counts.
    pub(crate) since: Time,
    pub(crate) requests: u64,
    pub(crate) denied: u64,
    /// Number of those by bans.
    pub(crate) banned: u64,
    /// Number of those without a key: a part of it is missing, or the limit allows it nothing.
    pub(crate) no_key: [u64; 2],
    /// Estimate of the number of different keys.
    pub(crate) distinct: u64,
    /// Estimate of the number of different keys refused.
    pub(crate) distinct_denied: u64,
    /// Estimate of the number of those that were not refused in the previous period.
    pub(crate) first_denied: u64,
    /// Number of refusals of the key that was refused most.
    pub(crate) most_denied: u64,
    /// Maximum count of a key that is not listed.
    pub(crate) unlisted_at_most: u64,
    pub(crate) keys: Vec<TopKey>,
}

/// The counts of one key.
#[derive(Clone, Debug)]
pub(crate) struct TopKey {
    pub(crate) key: Vec<u8>,
    pub(crate) requests: Estimate,
    pub(crate) denied: Estimate,
    /// Time since which it is refused in each period; `None` if it was not refused in the window.
    pub(crate) denied_since: Option<Time>,
    /// Time at which it may pass again, [`Time::MAX`] for never; `None` if it was not refused.
    pub(crate) free_at: Option<Time>,
}

impl TopKeysFound {
    /// Returns the counts of a limit without requests.
    pub(crate) fn none(since: Time) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }

    /// Returns the likely cause of the refusals; empty without one.
    pub(crate) fn cause(&self) -> &'static str {
        let [missing, blocked] = self.no_key;
        match self.distinct_denied {
            _ if self.denied == 0 => "",
            _ if missing * 2 >= self.denied => "no key",
            _ if blocked * 2 >= self.denied => "blocked",
            0 | 1 => "one key",
            _ if self.most_denied * 2 > self.denied => "mostly one key",
            // No key has half of them, so that several are banned.
            _ if self.banned * 2 > self.denied => "ban wave",
            2..=9 => "few keys",
            _ => "many keys",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_key_of_many_and_of_none_have_different_causes() {
        for (denied, no_key, distinct_denied, most_denied, banned, cause) in [
            (0, [0, 0], 0, 0, 0, ""),
            (9, [0, 0], 1, 9, 9, "one key"),
            (100, [0, 0], 20, 51, 49, "mostly one key"),
            (56, [0, 0], 2, 55, 52, "mostly one key"),
            (100, [0, 0], 9, 30, 0, "few keys"),
            (100, [0, 0], 90, 2, 50, "many keys"),
            (100, [0, 0], 90, 2, 51, "ban wave"),
            (20, [20, 0], 0, 0, 0, "no key"),
            (20, [4, 16], 0, 0, 0, "blocked"),
            (20, [4, 4], 1, 12, 0, "one key"),
        ] {
            let found = TopKeysFound {
                denied,
                banned,
                no_key,
                distinct_denied,
                most_denied,
                ..TopKeysFound::default()
            };
            assert_eq!(found.cause(), cause, "{found:?}");
        }
    }
}
