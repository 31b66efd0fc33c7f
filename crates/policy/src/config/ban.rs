//! Ban: reads when a limit bans a key, and wraps the limit in it.
//!
//! ```text
//!   ban = { after = 3, within = "24h", for = "1h", grow = 2.0, max = "24h" }
//!
//!   3/24h refusals: 1h, 2h, 4h, 8h, 16h, 24h, 24h, ..
//! ```

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, BanTerms, Banning, Denials, MAX_BAN, Nanos, Permits, Quota,
};
use toml::de::DeValue;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::fields::MAX_GROWTH;
use super::limit::Draft;
use super::quantity::{Quantity, QuantityByDay};
use super::read::{At, Table};

/// `grow` of bans that stay as long as the first.
const CONSTANT: u32 = 1_000;

/// Returns the quantity with the ban written beside it, if there is one; `None` if the ban is
/// reported as wrong.
pub(super) fn with_ban(
    table: Table<'_>,
    quantity: Quantity,
    out: &mut Findings<'_>,
) -> Option<Quantity> {
    let Some(ban) = table.table("ban") else {
        return Some(quantity);
    };
    let terms = terms(ban, out)?;
    if let Some(what) = contradicts(&quantity.algorithm) {
        let message = format!("`ban` cannot be combined with {what}");
        let label = "a ban stands beside a limit that admits or refuses at once, at no cost";
        out.error(codes::BAN_BESIDE, ban.at(), message, label)
            .related(quantity.at)
            .help("leave one of them out, or add a second limit with the ban");
        return None;
    }
    let banning = |algorithm| Banning::new(algorithm, terms).map(AnyAlgorithm::from);
    let by_day = quantity.by_day.map(|by_day| QuantityByDay {
        others: by_day
            .others
            .into_iter()
            .map(|(algorithm, text)| (banning(algorithm.clone()).unwrap_or(algorithm), text))
            .collect(),
        ..by_day
    });
    match banning(quantity.algorithm) {
        Ok(algorithm) => Some(Quantity {
            algorithm,
            by_day,
            ..quantity
        }),
        Err(error) => {
            out.error(
                codes::BAN,
                ban.at(),
                "the values of `ban` cannot be used",
                error.to_string(),
            )
            .help("write for example within = \"24h\"");
            None
        }
    }
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

fn terms(ban: Table<'_>, out: &mut Findings<'_>) -> Option<BanTerms> {
    let after = ban.number("after");
    let [within, first, longest] =
        ["within", "for", "max"].map(|name| ban.text(name).map(|text| duration(&text, name, out)));
    let growth = match ban.get("grow") {
        None => Some(At::new(CONSTANT, 0..0)),
        Some(_) => growth(ban, out),
    };
    let (within, first, longest) = (
        within??,
        first??,
        longest.map_or(Some(None), |it| it.map(Some)),
    );
    let (after, growth, longest) = (after?, growth?, longest?);
    let grows = growth.value > CONSTANT;
    let longest = match longest {
        None if grows => {
            let message = "`grow` of a ban needs a `max`";
            out.error(
                codes::BAN,
                growth.at,
                message,
                "without `max`, no ban is the longest",
            )
            .help("add for example max = \"24h\"");
            return None;
        }
        Some(longest) if !grows => {
            let message = "`max` of a ban has no effect without `grow`";
            out.error(
                codes::BAN,
                longest.at,
                message,
                "every ban is as long as `for`",
            )
            .help("add grow = 2.0, or leave `max` out");
            return None;
        }
        Some(longest) if longest.value < first.value => {
            let message = "`max` of a ban is shorter than its first";
            let label = format!("less than {}", first.value);
            out.error(codes::BAN, longest.at, message, label)
                .related(first.at)
                .help(format!("write max = \"{}\" or longer", first.value));
            return None;
        }
        Some(longest) => longest.value,
        None => first.value,
    };
    Some(BanTerms {
        strikes: Quota::new(Permits::new(after.value), within.value).ok()?,
        first: first.value,
        growth_thousandths: growth.value,
        longest,
    })
}

/// Warns of a ban of all requests together, which a few refusals of one client begin.
pub(super) fn all_clients(draft: &Draft<'_>, out: &mut Findings<'_>) {
    let rule = &draft.rule;
    if rule.limit.algorithm.bans().is_none() || !rule.key.is_empty() || draft.is_off() {
        return;
    }
    let message = format!(
        "the ban of limit `{}` refuses every client",
        rule.limit.name
    );
    let label = "counts all requests together, so the refusals of one client ban them all";
    out.warning(codes::BANS_ALL, draft.places.key.clone(), message, label)
        .help("write key = [\"ip\"], or leave `ban` out");
}

/// Reads a duration above zero, up to the longest ban; reports anything else.
fn duration(text: &At<&str>, name: &str, out: &mut Findings<'_>) -> Option<At<Nanos>> {
    let duration = text.value.parse::<Nanos>().ok();
    if let Some(duration) =
        duration.filter(|duration| (Nanos::from_nanos(1)..=MAX_BAN).contains(duration))
    {
        return Some(At::new(duration, text.at.clone()));
    }
    let message = format!("\"{}\" is not a valid `{name}` of a ban", shown(text.value));
    let label = format!("expected a duration of at most {MAX_BAN}");
    out.error(codes::BAN, text.at.clone(), message, label)
        .help(format!(
            "write a whole number and a unit (s, m, h, d, w), as in {name} = \"1h\""
        ));
    None
}

/// Reads a factor in thousandths; reports one that is not from 1 to the largest.
fn growth(ban: Table<'_>, out: &mut Findings<'_>) -> Option<At<u32>> {
    let node = ban.get("grow")?;
    let text = match node.get_ref() {
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        _ => return None, // reported as of the wrong type
    };
    if let Some(growth) = thousandths(&text) {
        return Some(At::new(growth, node.span()));
    }
    let message = format!("`{}` is not a valid `grow` of a ban", shown(&text));
    let label = format!("expected a number from 1 to {MAX_GROWTH}, with at most three decimals");
    out.error(codes::BAN, node.span(), message, label)
        .help("write for example grow = 2.0");
    None
}

/// Reads `2`, `2.0`, `1.125`.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if !part
        .bytes()
        .chain(whole.bytes())
        .all(|digit| digit.is_ascii_digit())
    {
        return None;
    }
    let part = format!("{part:0<3}");
    let whole: u32 = whole.parse().ok()?;
    let (part, rest) = part.split_at_checked(3)?;
    let part: u32 = part.parse().ok()?;
    let is_exact = rest.bytes().all(|digit| digit == b'0');
    let most = u32::try_from(MAX_GROWTH).ok()? * CONSTANT;
    let growth = whole.checked_mul(CONSTANT)?.checked_add(part)?;
    (is_exact && (CONSTANT..=most).contains(&growth)).then_some(growth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_exact() {
        for (text, expected) in [
            ("1", Some(1_000)),
            ("2.0", Some(2_000)),
            ("1.5", Some(1_500)),
            ("1.125000", Some(1_125)),
            ("100", Some(100_000)),
            ("100.001", None),
            ("1.0001", None),
            ("0.999", None),
            ("-2.0", None),
            ("2e0", None),
            ("nan", None),
            ("inf", None),
            ("1.+1", None),
            ("99999999999", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
