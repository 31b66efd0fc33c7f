//! Variants: numbers of plans and overrides, compiled as if the limit had been written with them.
//!
//! ```text
//!   limit = "60/1m"                              "600/1m", "5000/day"
//!   bucket = { size = 40, refill = "20/1s" }     "50/1s burst 100"; without a burst: "50/1s"
//!   spacing = "200ms"                            "50ms"
//!   concurrency = { max = 50, lease = "60s" }    200
//!   all                                          "unlimited", "blocked"
//! ```
//!
//! Everything else of the limit stays: its algorithm, queue, lease and steps.

pub(super) mod key_text;
pub(super) mod other_numbers;
pub(super) mod overrides;
pub(super) mod overrides_edit;
pub(super) mod overrides_file;
pub(super) mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Limit, LimitId, Origin};

use self::other_numbers::written_with;
use super::fields::MAX_VARIANTS;
use super::limit::correction::owing;
use super::limit::draft::ExtraShare;
use super::limit::priority::leaves_room;
use super::quantity::forms::quantity;
use super::quantity::numbers::is_unlimited;
use super::quantity::{Quantity, Surroundings};
use super::reason::nearest;
use super::{At, Draft, Findings, Severity, Spot, ZoneSpec, codes, error, shown};
use crate::{Allowance, Cost, Role, Variant, Variants};

/// Compiles the numbers of plans and overrides, each once.
pub(super) struct VariantReader<'a> {
    zone: &'a ZoneSpec,
    origin: Origin,
    /// By limit and name.
    known: HashMap<(Arc<str>, String), Allowance>,
    count: usize,
}

/// Numbers as written.
#[derive(Clone, Copy)]
pub(super) struct SetText<'a> {
    /// Name of the variant behind that of the limit.
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    /// Field that holds them, for help: `set`; empty in a file of overrides.
    pub(super) field: &'a str,
    pub(super) at: Spot<'a>,
}

impl<'a> SetText<'a> {
    /// Returns other numbers of a limit itself, not of some of its keys.
    pub(super) const fn of_limit(text: &'a str, field: &'a str, at: Spot<'a>) -> Self {
        Self {
            name: "",
            text,
            field,
            at,
        }
    }
}

impl<'a> VariantReader<'a> {
    /// `count` is the number of variants that the policy has so far.
    pub(super) fn new(zone: &'a ZoneSpec, origin: Origin, count: usize) -> Self {
        Self {
            zone,
            origin,
            known: HashMap::new(),
            count,
        }
    }

    /// Returns the allowance for numbers of a limit; `None` if they are reported as wrong.
    pub(super) fn allowance(
        &mut self,
        draft: &mut Draft<'_>,
        set: SetText<'_>,
    ) -> Option<Allowance> {
        match set.text {
            "unlimited" => return Some(Allowance::Unlimited),
            "blocked" => return Some(Allowance::Blocked),
            _ => {}
        }
        // No plan has the text of numbers as its name: those are digits, or have a `/`.
        let known = (Arc::clone(&draft.rule.limit.name), set.name.to_owned());
        if let Some(known) = self.known.get(&known) {
            return Some(*known);
        }
        let quantity = self.quantity(draft, set)?;
        if let Some(priority) = draft.rule.priority.as_deref() {
            leaves_room(draft, &quantity.algorithm, priority, set.at)?;
        }
        let index = u32::try_from(draft.rule.variants.numbers.len()).ok()?;
        let own = &draft.rule.limit;
        // No name or number of a policy has a `+`.
        let name = format!("{}={}", own.name, set.name.replace(' ', "+"));
        let mut variants = variants(own, &name, &quantity);
        for variant in &mut variants {
            let algorithm = variant.limit.algorithm.clone();
            variant.limit.algorithm = owing(algorithm, draft.rule.correction.as_deref());
        }
        self.count += variants.len();
        if self.count > MAX_VARIANTS {
            too_many(set.at);
            return None;
        }
        draft.rule.variants.numbers.extend(variants);
        add_variant(draft, set.name, set.text, self);
        let allowance = Allowance::Variant(index);
        self.known.insert(known, allowance);
        Some(allowance)
    }

    /// Compiles numbers. Errors stand at the numbers, wherever the rest of the limit is.
    pub(super) fn quantity(&self, draft: &Draft<'_>, set: SetText<'_>) -> Option<Quantity> {
        let around = Surroundings {
            zone: self.zone,
            origin: self.origin,
            denials: draft.denials,
        };
        let table = draft.table;
        let findings = Findings::new("");
        let text = At::new(set.text, findings.at(0..0));
        let quantity = written_with(table, &text)
            .and_then(|written| quantity(table.with(&written, &findings), around));
        let mut found = findings.finish().into_iter();
        if let Some(found) = found.find(|one| one.severity == Severity::Error) {
            let help = match help_of_word(&set, found.code) {
                Some(help) => help,
                None if set.field == "candidate" && is_unlimited(set.text) => {
                    "leave `candidate` out".to_owned()
                }
                None => found.help.unwrap_or_default(),
            };
            error(found.code, set.at, found.message, found.label).help(in_field(set.field, &help));
            return None;
        }
        let quantity = quantity?;
        let capacity = quantity.algorithm.capacity();
        match draft.rule.cost.highest() {
            Some(cost) if cost > capacity => {
                let text = shown(set.text);
                let (which, each) = match draft.rule.cost {
                    Cost::Priced(_) => ("requests of the highest price", "a request may cost"),
                    _ => ("a request", "each request costs"),
                };
                let message = format!("{draft} with \"{text}\" can never let {which} pass");
                let label = format!("holds {capacity}, and {each} {cost}");
                error(codes::COST_TOO_HIGH, set.at, message, label).help(match set.field {
                    "candidate" | "extra" => format!("allow at least {cost}"),
                    _ => format!("allow at least {cost}, or write \"blocked\""),
                });
                None
            }
            _ => Some(quantity),
        }
    }
}

/// Reports more variants than a policy may have.
pub(super) fn too_many(at: Spot<'_>) {
    let message =
        format!("plans, overrides and days of keys have more than {MAX_VARIANTS} numbers");
    error(codes::TOO_MANY, at, message, "more than allowed")
        .help("give keys equal numbers where possible; days of keys make 31 of each");
}

/// Returns the variants of a limit for the days on which the months of its keys may begin.
pub(super) fn variants_by_day(own: &Limit, quantity: &Quantity) -> Variants {
    let by_day = quantity.by_day.as_ref();
    Variants {
        numbers: later_days(own, &format!("{}=", own.name), quantity).collect(),
        day_attribute: by_day.map(|by_day| by_day.attribute.as_str().into()),
        ..Variants::default()
    }
}

/// Returns the variants of a limit for a quantity: one, or one for each day on which the months
/// of its keys may begin.
fn variants(own: &Limit, name: &str, quantity: &Quantity) -> Vec<Variant> {
    let first = variant(own, name.to_owned(), quantity);
    let later = later_days(own, name, quantity);
    std::iter::once(first).chain(later).collect()
}

/// Returns the variants from day 2 on, with `@2` to `@31` behind the name.
fn later_days(own: &Limit, name: &str, quantity: &Quantity) -> impl Iterator<Item = Variant> {
    let others = quantity.by_day.iter().flat_map(|by_day| &by_day.others);
    (2..).zip(others).map(move |(day, (algorithm, text))| {
        let mut variant = variant(own, format!("{name}@{day}"), quantity);
        variant.limit.algorithm = algorithm.clone();
        let text = text.clone();
        Variant { text, ..variant }
    })
}

/// Returns a variant of a limit.
pub(super) fn variant(own: &Limit, name: String, quantity: &Quantity) -> Variant {
    Variant {
        limit: Limit {
            name: name.into(),
            id: LimitId::default(),
            algorithm: quantity.algorithm.clone(),
            ..own.clone()
        },
        quota: quantity.quota,
        window: quantity.window,
        keeps_to: quantity.keeps_to,
        text: quantity.text.clone(),
    }
}

/// Returns the quantity of the extra to `base`; `None` if it is reported as wrong.
pub(super) fn extra_quantity(
    draft: &Draft<'_>,
    base: &str,
    share: At<'_, ExtraShare>,
    reader: &VariantReader<'_>,
) -> Option<Quantity> {
    let Some(text) = share.value.text(base) else {
        let message = format!("the extra of {draft} is nothing");
        let label = format!("of \"{}\", rounded down, this is less than 1", shown(base));
        error(codes::EXTRA, share.at, message, label)
            .help("write a larger extra, or a number: extra = 1");
        return None;
    };
    reader.quantity(draft, SetText::of_limit(&text, "extra", share.at))
}

/// Adds the extra to numbers of a plan or an override to the extra of a limit that is soft.
fn add_variant(draft: &mut Draft<'_>, name: &str, text: &str, reader: &VariantReader<'_>) {
    let Some(extra) = draft.extra.as_deref() else {
        return;
    };
    if matches!(extra.share.value, ExtraShare::UpTo(_)) {
        return; // a key with numbers of its own has no more than these
    }
    let Some(quantity) = extra_quantity(draft, text, extra.share, reader) else {
        return;
    };
    if matches!(extra.rule.role, Role::Seen) && !counts_values(&quantity.algorithm) {
        let message = format!("\"{}\" cannot count values", shown(text));
        let label =
            "with these numbers the limit has no window that begins at one moment for all keys";
        error(codes::DISTINCT, extra.share.at, message, label).help(WINDOWS);
        return;
    }
    if let Some(extra) = draft.extra.as_deref_mut() {
        let own = &extra.rule.limit;
        let name = format!("{}={}", own.name, name.replace(' ', "+"));
        let variant = variant(own, name, &quantity);
        extra.rule.variants.numbers.push(variant);
    }
}

/// Returns true if the windows of such a limit begin at moments that are the same for all keys.
pub(super) fn counts_values(algorithm: &AnyAlgorithm) -> bool {
    matches!(algorithm.name(), "fixed window" | "calendar window")
}

/// Help for an algorithm that cannot count values.
pub(super) const WINDOWS: &str =
    "write a period of the calendar, as in limit = \"5/day\", or algorithm = \"fixed-window\"";

/// Returns help for a text that is no number, if "unlimited" or "blocked" was probably meant.
fn help_of_word(set: &SetText<'_>, code: &str) -> Option<String> {
    const EITHER: [&str; 3] = ["off", "none", "disabled"]; // the limit, or the key
    const BLOCKED: [&str; 6] = ["block", "deny", "denied", "forbidden", "banned", "blocked"];
    if matches!(set.field, "candidate" | "extra") {
        return None;
    }
    let text = set.text.trim().to_ascii_lowercase();
    if EITHER.contains(&text.as_str()) {
        return Some("\"unlimited\" lets all requests pass, \"blocked\" none".into());
    }
    let is_zero = code == codes::NOT_COUNTABLE && text.starts_with('0') && !text.starts_with("0.");
    let word = if is_unlimited(&text) {
        "unlimited"
    } else if let Some(near) = nearest(&text, ["unlimited", "blocked"]) {
        near
    } else if is_zero || BLOCKED.contains(&text.as_str()) {
        "blocked"
    } else {
        return None;
    };
    Some(format!("write limit = \"{word}\""))
}

/// Returns a help about the limit's own field as one about `field`.
fn in_field(field: &str, help: &str) -> String {
    let field = if field.is_empty() {
        String::new()
    } else {
        format!("{field} = ")
    };
    ["limit = ", "refill = ", "spacing = "]
        .iter()
        .fold(help.to_owned(), |help, own| help.replace(own, &field))
}
