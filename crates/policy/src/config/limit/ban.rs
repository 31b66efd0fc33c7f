//! Ban: reads when a limit bans a key, and wraps the limit in it.
//!
//! ```text
//!   ban = { after = 3, within = "24h", for = "1h", grow = 2.0, max = "24h" }
//!
//!   3/24h refusals: 1h, 2h, 4h, 8h, 16h, 24h, 24h, ..
//! ```

use std::iter::once;

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, BanTerms, Banning, Denials, Permits, Quota};

use crate::config::quantity::{Quantity, quantity_at};
use crate::config::{Draft, Table, codes, error, warning};

/// `grow` of bans that stay as long as the first.
const CONSTANT: u32 = 1_000;

/// Returns the quantity with the ban written beside it, if there is one; `None` if the ban is
/// reported as wrong.
pub(crate) fn with_ban(table: Table<'_>, mut quantity: Quantity) -> Option<Quantity> {
    let Some(ban) = table.table("ban") else {
        return Some(quantity);
    };
    let terms = terms(ban)?;
    if let Some(what) = contradicts(&quantity.algorithm) {
        let message = format!("`ban` cannot be combined with {what}");
        let label = "a ban needs a limit that admits or refuses at once, at no cost";
        error(codes::BAN_BESIDE, ban.at(), message, label)
            .related(quantity_at(table))
            .help("leave one of them out, or add a second limit with the ban");
        return None;
    }
    let others = quantity.by_day.iter_mut().flat_map(|it| &mut it.others);
    let others = others.map(|(algorithm, _)| algorithm);
    for algorithm in once(&mut quantity.algorithm).chain(others) {
        match Banning::new(algorithm.clone(), terms) {
            Ok(banning) => *algorithm = banning.into(),
            Err(reason) => {
                let message = "the values of `ban` cannot be used";
                error(codes::BAN, ban.at(), message, reason.to_string())
                    .help("write for example within = \"24h\"");
                return None;
            }
        }
    }
    Some(quantity)
}

/// Returns the part of a limit that makes a refusal mean something else.
fn contradicts(algorithm: &AnyAlgorithm) -> Option<&'static str> {
    if algorithm.denials() == Denials::Counted {
        return Some("`count_denied`");
    }
    match algorithm {
        AnyAlgorithm::Balance(_) => Some("`balance`"),
        AnyAlgorithm::Concurrency(_) => Some("`concurrency`"),
        AnyAlgorithm::WarmUp(_) => Some("`warmup` or \"smooth-bursty\""),
        other => other.queue().map(|_| "`queue`"),
    }
}

fn terms(ban: Table<'_>) -> Option<BanTerms> {
    let after = ban.number("after");
    let [within, first, longest] = ["within", "for", "max"].map(|name| ban.span(name));
    let growth = ban.factor("grow");
    let (after, within, first) = (after?, within?, first?);
    if longest.is_none() && ban.has("max") || growth.is_none() && ban.has("grow") {
        return None; // reported
    }
    let growth = growth.filter(|growth| *growth > CONSTANT);
    let longest = match (longest, growth) {
        (None, Some(_)) => {
            let message = "`grow` of a ban needs a `max`";
            let label = "without `max`, no ban is the longest";
            error(codes::BAN, ban.place("grow"), message, label)
                .help("add for example max = \"24h\"");
            return None;
        }
        (Some(_), None) => {
            let message = "`max` of a ban has no effect without `grow`";
            let label = "every ban is as long as `for`";
            error(codes::BAN, ban.place("max"), message, label)
                .help("add grow = 2.0, or leave `max` out");
            return None;
        }
        (Some(longest), _) if longest < first => {
            let message = "`max` of a ban is shorter than its first";
            let label = format!("less than {first}");
            error(codes::BAN, ban.place("max"), message, label)
                .related(ban.place("for"))
                .help(format!("write max = \"{first}\" or longer"));
            return None;
        }
        (Some(longest), _) => longest,
        (None, None) => first,
    };
    Some(BanTerms {
        strikes: Quota::new(Permits::new(after), within).ok()?,
        first,
        growth_thousandths: growth.unwrap_or(CONSTANT),
        longest,
    })
}

/// Warns of a ban of all requests together, which a few refusals of one client begin.
pub(crate) fn all_clients(draft: &Draft<'_>) {
    let rule = &draft.rule;
    if rule.limit.algorithm.bans().is_none() || !rule.key.is_empty() || draft.is_off() {
        return;
    }
    let message = format!("the ban of {draft} refuses every client");
    let label = "counts all requests together, so the refusals of one client ban them all";
    warning(codes::BANS_ALL, draft.table.place("key"), message, label)
        .help("write key = [\"ip\"], or leave `ban` out");
}
