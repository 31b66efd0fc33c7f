//! Priority: reads the part of a limit that is for some of its requests.
//!
//! ```text
//!   [[limit]]  limit = "100/1m"  priority = { last = "20%", match = { path = "/health" } }
//! ```

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Denials};

use super::requests::{requests, takes_all};
use crate::config::{
    Draft, PolicyFiles, Spot, Table, ValueError, codes, error, first_reason, is_excluded,
};
use crate::{PathCase, Priority};

/// Algorithms for which the room beside a cost is defined: a request is allowed at once or refused,
/// and the remaining permits are free for the next.
const ALGORITHMS: [&str; 9] = [
    "token bucket",
    "interval bucket",
    "fixed window",
    "calendar window",
    "sliding window counter",
    "sub-buckets",
    "sliding window log",
    "quota reset",
    "concurrency",
];

/// Reads `priority` of a limit; `None` if it has none, or it is reported as wrong.
pub(crate) fn limit_priority(draft: &mut Draft<'_>, files: &PolicyFiles) -> Option<()> {
    let written = draft.table.table("priority");
    let table = written.filter(|_| !is_excluded(draft.table, "priority"))?;
    let read = priority(table, draft.rule.matcher.path_case, files);
    let what = "cannot have a `priority`";
    draft.unless(what, codes::PRIORITY, table.at(), refused(draft))?;
    let priority = read?;
    let algorithm = &draft.rule.limit.algorithm;
    leaves_room(draft, algorithm, &priority, table.place("last"))?;
    draft.rule.priority = Some(Box::new(priority));
    Some(())
}

/// Reads `last` and `match`.
pub(crate) fn priority(
    table: Table<'_>,
    path_case: PathCase,
    files: &PolicyFiles,
) -> Option<Priority> {
    let mut matcher = requests(table, files).matcher;
    matcher.path_case = path_case;
    if takes_all(table, &matcher) {
        let message = "the `match` of `priority` is that of every request";
        let label = "all requests would have priority";
        error(codes::PRIORITY, table.at(), message, label)
            .help("write for example match = { path = \"/health\" }");
        return None;
    }
    let last_percent = table.percent("last")?.try_into().ok()?;
    Some(Priority {
        last_percent,
        matcher,
    })
}

/// Returns why a limit cannot have a priority.
fn refused(draft: &Draft<'_>) -> Option<ValueError> {
    let name = draft.rule.limit.algorithm.name();
    first_reason! {
        draft.denials == Denials::Counted =>
            "refused requests would be charged to the part of the others",
            "write count_denied = false in this limit";
        draft.rule.is_for_descriptors() =>
            "the limit is for descriptors, which name all of their entries",
            "write two limits, each with its own descriptor";
        !ALGORITHMS.contains(&name) => format!("a {name} has no part that could be left free"),
            "write limit = \"100/1m\", a bucket, or algorithm = \"sliding-window-log\"";
    }
}

/// Returns `None`, and reports it, if no request without priority passes the limit with the numbers
/// of `algorithm`.
pub(crate) fn leaves_room(
    draft: &Draft<'_>,
    algorithm: &AnyAlgorithm,
    priority: &Priority,
    at: Spot<'_>,
) -> Option<()> {
    let cost = draft.rule.cost.least();
    let capacity = algorithm.capacity();
    let headroom = priority.headroom(capacity);
    let needs = headroom.get() + cost.get();
    if needs <= capacity.get() {
        return Some(());
    }
    let message = format!("{draft} leaves nothing for requests without priority");
    let label =
        format!("{headroom} of {capacity} are kept, rounded up, and a request costs {cost}");
    error(codes::PRIORITY, at, message, label)
        .related(draft.quantity_at)
        .help("write a smaller part, or a larger limit");
    None
}
