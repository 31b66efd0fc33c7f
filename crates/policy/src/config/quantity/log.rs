//! Log: requirements of a sliding log on its numbers, with the arithmetic shown.

use std::ops::Range;

use ratekeeper_core::algorithms::log::MAX_PERMITS;
use ratekeeper_core::{Error, Log, Nanos, Quota};

use crate::config::{At, Findings, Table, codes};

/// Bytes that a log keeps for a permit.
const BYTES: u64 = 8;

/// Returns the log of a quota and a gap; `None` if they make no sense, which is reported.
pub(super) fn log(
    table: Table<'_>,
    quota: Quota,
    gap: Nanos,
    gap_at: Range<usize>,
    text: &At<&str>,
    out: &mut Findings<'_>,
) -> Option<Result<Log, Error>> {
    let (permits, per) = (quota.permits().get(), quota.per());
    if permits > u64::from(MAX_PERMITS) {
        let (bytes, most) = (permits * BYTES, u64::from(MAX_PERMITS) * BYTES);
        let message = format!("a log of {permits} requests is too long");
        let label =
            format!("{permits} x {BYTES} bytes = {bytes} for each key; the maximum is {most}");
        out.error(codes::NOT_COUNTABLE, text.at.clone(), message, label)
            .help(
                "write algorithm = { name = \"sub-buckets\", count = 60, edge = \"full\" }, which \
                    gives the same guarantee in 520 bytes",
            );
        return None;
    }
    let apart = u128::from(gap.as_nanos()) * u128::from(permits);
    // A request that costs more than one takes several places of a log at once.
    if !table.has("cost") && apart > u128::from(per.as_nanos()) {
        let whole = u64::try_from(apart).map_or_else(
            |_| "more than 584 years".to_owned(),
            |nanos| Nanos::from_nanos(nanos).to_string(),
        );
        let message = format!("{permits} requests with this `min_gap` do not fit into {per}");
        let label = format!("{permits} x {gap} = {whole}, longer than {per}");
        let fits = Nanos::from_nanos(per.as_nanos() / permits);
        let help = match fits {
            Nanos::ZERO => format!("write spacing = \"{gap}\" instead"),
            fits => format!(
                "write min_gap = \"{fits}\" or less, or spacing = \"{gap}\" instead of the limit"
            ),
        };
        out.error(codes::PARAMETERS, gap_at, message, label)
            .related(text.at.clone())
            .help(help);
        return None;
    }
    Some(Log::sliding(quota).and_then(|log| log.with_gap(gap)))
}
