//! Geo: the age of the databases that a policy names.

use ratekeeper_policy::Geo;

use super::{Finding, Judgement};

/// Returns a finding for each database.
pub(crate) fn ages(geo: Option<&Geo>, unix_seconds: u64) -> Vec<Finding> {
    let files = geo.into_iter().flat_map(Geo::files);
    let age = |file: ratekeeper_policy::GeoFile<'_>| {
        let days = file.days_old(unix_seconds);
        let message = format!("{} is {days} days old", file.name);
        let judged = if file.is_old(unix_seconds) {
            Judgement::warning(
                message,
                "download the current one: networks have moved since",
            )
        } else {
            Judgement::ok(message)
        };
        Finding::new(file.field, judged).with("days_old", days)
    };
    files.map(age).collect()
}
