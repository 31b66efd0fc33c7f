//! Old databases: one notice a day while a database of `[geo]` is old.
//!
//! The notice at the start and at each reload is the warning RK0364 of the policy.

use ratekeeper_policy::Geo;

use crate::context::ServiceContext;

/// Seconds between two notices.
const DAY: u64 = 86_400;

/// When the last notice was given.
#[derive(Debug)]
pub(crate) struct DailyNotice {
    last_unix_seconds: u64,
}

impl DailyNotice {
    pub(crate) fn new(unix_seconds: u64) -> Self {
        Self {
            last_unix_seconds: unix_seconds,
        }
    }

    /// Gives the notice of each old database, if the last was given a day ago.
    pub(crate) fn give(&mut self, shared: &ServiceContext) {
        let now = shared.unix_seconds();
        if !self.is_due(now) {
            return;
        }
        let policy = shared.keeper.policy();
        let files = policy.geo.iter().flat_map(Geo::files);
        for file in files.filter(|file| file.is_old(now)) {
            let (name, days) = (file.name, file.days_old(now));
            let text = format!(
                "RK0364: the database `{name}` is {days} days old: download the current one"
            );
            shared.sink.notice(text);
        }
    }

    /// Returns true once a day.
    pub(crate) fn is_due(&mut self, unix_seconds: u64) -> bool {
        let is_due = unix_seconds.saturating_sub(self.last_unix_seconds) >= DAY;
        // A clock that is set back begins a new day.
        if is_due || unix_seconds < self.last_unix_seconds {
            self.last_unix_seconds = unix_seconds;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_due_each_day() {
        let mut notice = DailyNotice::new(100 * DAY);
        for (unix_seconds, is_due) in [
            (100 * DAY, false),
            (101 * DAY - 1, false),
            (101 * DAY, true),
            (101 * DAY + 5, false),
            (110 * DAY, true),
            (50 * DAY, false), // the clock is set back
            (51 * DAY - 1, false),
            (51 * DAY, true),
        ] {
            assert_eq!(notice.is_due(unix_seconds), is_due, "{unix_seconds}");
        }
    }
}
