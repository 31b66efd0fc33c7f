//! Cost: reads `cost`, a number, an attribute, prices, or an estimate.

use ratekeeper_core::Permits;

use super::requests::matching;
use crate::config::{
    At, Draft, Node, PolicyFiles, Table, codes, error, invalid, is_word, shown, whole,
};
use crate::{
    BodyField, Cost, CostSource, Field, PathCase, Price, PriceList, Unit, ValueError, is_token,
};

/// Maximum number of characters of a field of a response.
const MAX_FIELD: usize = 128;

/// Values of a limit that its cost needs.
pub(super) struct CostSurroundings<'a> {
    pub(super) limit: Table<'a>,
    pub(super) unit: Option<Unit>,
    pub(super) path_case: PathCase,
    pub(super) files: &'a PolicyFiles,
}

/// Reads `cost`; `None` means refused. The range is empty if it is not written.
pub(super) fn cost<'a>(around: &CostSurroundings<'a>) -> Option<At<'a, Cost>> {
    let limit = around.limit;
    match limit.table("cost") {
        Some(estimate) => written(estimate, "reserve", around),
        None if limit.has("cost") => written(limit, "cost", around),
        None => Some(At::new(Cost::Request, limit.place("cost"))),
    }
}

/// Reads a cost in `field`; `None` means refused.
fn written<'a>(
    table: Table<'a>,
    field: &'static str,
    around: &CostSurroundings<'_>,
) -> Option<At<'a, Cost>> {
    let node = table.get(field)?;
    match node.value.as_array() {
        Some(_) => prices(table.tables(field), around),
        None => amount(node, field, around),
    }
}

/// Reads the prices of some requests; `None` means refused. The place is that of the highest.
fn prices<'a>(
    tables: impl Iterator<Item = Table<'a>>,
    around: &CostSurroundings<'_>,
) -> Option<At<'a, Cost>> {
    let mut usual = around.unit.as_ref().map_or(Permits::ONE, Unit::one);
    let mut higher = Vec::new();
    for written in tables {
        let cost = Permits::new(written.number("is")?);
        let mut matcher = matching(written, around.files).matcher;
        matcher.path_case = around.path_case;
        let by_absence = matcher.fields.iter().any(|(field, patterns)| {
            matches!(field, Field::Header(_)) && patterns.iter().any(|it| it.negated)
        });
        if by_absence {
            let message = format!("a price of {} is lower for a header", around.limit);
            let label = "a visitor who sends this value would pay less";
            error(codes::COST, written.place("header"), message, label)
                .help("write the values that cost more, without `!`");
            return None;
        }
        if matcher.fields.is_empty() {
            usual = usual.max(cost); // of every request
        }
        higher.push(At::new(Price { matcher, is: cost }, written.place("is")));
    }
    higher.sort_by_key(|price| std::cmp::Reverse(price.value.is));
    let at = higher.first()?.at;
    higher.retain(|price| price.value.is > usual);
    let higher = higher.into_iter().map(|price| price.value).collect();
    Some(At::new(Cost::Priced(PriceList { higher, usual }), at))
}

/// Reports a price by a field that the requests of its limit do not have.
pub(crate) fn unmet(draft: &Draft<'_>) {
    let rule = &draft.rule;
    let is_met = |field: &Field| match field {
        Field::Descriptor(name) => rule.entry_names().any(|known| known == name),
        _ => !rule.is_for_descriptors(),
    };
    let mut fields = rule.cost.prices().iter().flat_map(|it| &it.matcher.fields);
    if let Some((field, _)) = fields.find(|(field, _)| !is_met(field)) {
        let message = format!("a price of {draft} is for `{field}`");
        let label = "no request of this limit has it";
        let help = if rule.is_for_descriptors() {
            "name an entry of the descriptor that `match` or `key` of the limit names"
        } else {
            "write a price by path, method, host or header"
        };
        error(codes::COST, draft.table.place("cost"), message, label).help(help);
    }
}

/// Reads a number or an attribute in `field`; `None` means refused.
fn amount<'a>(node: Node<'a>, field: &str, around: &CostSurroundings<'_>) -> Option<At<'a, Cost>> {
    let CostSurroundings { limit, unit, .. } = around;
    if let Some(text) = node.value.as_str() {
        if let Some(attribute) = text.strip_prefix("attr:").filter(|name| !name.is_empty()) {
            let cost = Cost::Attribute(attribute.to_owned(), unit.clone());
            return Some(At::new(cost, node.at));
        }
        if text.starts_with("json:") || text.starts_with("form:") {
            let label = "expected \"json:/NAME\" or \"form:NAME\"";
            let refuse = |error| invalid(codes::COST, node.at, error, label);
            let field = BodyField::parse(text).map_err(refuse).ok()?;
            return Some(At::new(Cost::Body(field, unit.clone()), node.at));
        }
        let help = match text.trim().parse::<u64>() {
            Ok(number) => format!("write it without quotes: {field} = {number}"),
            Err(_) if text.starts_with("response.") => {
                format!(
                    "write cost = {{ reserve = 1, settle = \"{}\" }}",
                    shown(text)
                )
            }
            Err(_) if is_attribute(text) => format!("write {field} = \"attr:{text}\""),
            Err(_) => {
                format!("write a number, or the attribute that holds it: {field} = \"attr:amount\"")
            }
        };
        let message = format!("\"{}\" is not a valid cost of {limit}", shown(text));
        let label = "expected a number, \"attr:NAME\" or \"json:/NAME\"";
        error(codes::COST, node.at, message, label).help(help);
        return None;
    }
    let number = whole(node.value).filter(|number| *number > 0)?;
    Some(At::new(Cost::Fixed(Permits::new(number)), node.at))
}

/// Returns true for a word that may be the name of an attribute.
fn is_attribute(text: &str) -> bool {
    text.len() <= MAX_FIELD && text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_word(text)
}

/// Reads `settle` of an estimate: a field or a trailer of a response, or a value of its body.
pub(super) fn settle(limit: Table<'_>) -> Option<CostSource> {
    let text = limit.table("cost")?.text("settle")?;
    let of_response = text.value.strip_prefix("response.");
    let named = of_response.and_then(|source| source.split_once(':'));
    let is_name = |name: &str| (1..=MAX_FIELD).contains(&name.len()) && name.bytes().all(is_token);
    if let Some((place, name)) = named.filter(|(_, name)| is_name(name)) {
        let name = name.to_ascii_lowercase().into();
        match place {
            "header" => return Some(CostSource::Header(name)),
            "trailer" => return Some(CostSource::Trailer(name)),
            _ => {}
        }
    }
    let label = "expected \"response.header:NAME\", \"response.trailer:NAME\" or \
                 \"response.json:/NAME\"";
    if let Some(source) = of_response.filter(|source| source.starts_with("json:")) {
        let refuse = |error: ValueError| {
            let words = [error.reason, error.help];
            let [reason, help] = words.map(|text| text.replacen("json:", "response.json:", 1));
            invalid(codes::COST, text.at, ValueError::new(reason, help), label);
        };
        let field = BodyField::parse(source).map_err(refuse);
        return field.ok().map(CostSource::Body);
    }
    let message = format!("\"{text}\" is not a place in a response");
    let help = "write settle = \"response.header:x-tokens-used\" or settle = \
                \"response.json:/usage/total_tokens\", or leave it out and send the cost with \
                POST /v1/report";
    error(codes::COST, text.at, message, label).help(help);
    None
}
