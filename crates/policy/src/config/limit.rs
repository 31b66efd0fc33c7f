//! Limit: compiles one `[[limit]]` of the file to one rule, with the data that the lints need.

pub(super) mod active;
pub(super) mod alert;
pub(super) mod ban;
pub(super) mod correction;
pub(super) mod cost;
pub(super) mod descriptors;
pub(super) mod distinct;
pub(super) mod draft;
pub(super) mod exempt;
pub(super) mod extras;
pub(super) mod otherwise;
pub(super) mod priority;
pub(super) mod refusal;
pub(super) mod replaces;
pub(super) mod requests;
pub(super) mod rollout;
pub(super) mod scope;

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{Limit, LimitId, LimitKeys, Origin, Outage};

use self::active::{Zones, active};
use self::alert::alert;
use self::correction::{correction, is_counted, owing};
use self::cost::{CostSurroundings, cost, settle};
use self::descriptors::separate;
use self::refusal::{NamedResponse, Responses};
use self::requests::{key, missing_key, name, requests};
use self::rollout::percent;
use self::scope::{outage, scope};
use super::document::exclusions::exclusions;
use super::fields::{MAX_NAME, MAX_VARIANTS};
use super::quantity::balance;
use super::quantity::forms::quantity;
use super::quantity::unit::{in_unit, unit};
use super::quantity::{Surroundings, denials, quantity_at};
use super::variants::{too_many, variants_by_day};
use super::{Draft, PolicyFiles, Spot, Table, ZoneSpec, codes, error};
use crate::{Correction, KeyPart, MissingKey, PathCase, Refusal, Role, Rule, RuleMode};

/// `[defaults]`: values of limits without their own.
#[derive(Debug)]
pub(super) struct Defaults<'a> {
    table: Option<Table<'a>>,
    /// Read once, because they may be reported.
    missing_key: Option<MissingKey>,
    response: Option<NamedResponse<'a>>,
}

impl Defaults<'_> {
    /// Reads a value of a limit, or else the default.
    fn or<T>(&self, limit: Table<'_>, read: fn(Table<'_>) -> Option<T>) -> Option<T> {
        read(limit).or_else(|| self.read(read))
    }

    /// Reads a default as from the table of a limit.
    fn read<T>(&self, read: fn(Table<'_>) -> Option<T>) -> Option<T> {
        self.table.and_then(read)
    }
}

/// Values that all limits of a file share.
#[derive(Debug)]
pub(super) struct FileContext<'a> {
    pub(super) zone: ZoneSpec,
    pub(super) origin: Origin,
    pub(super) defaults: Defaults<'a>,
    pub(super) responses: Responses<'a>,
    pub(super) files: &'a PolicyFiles,
    pub(super) zones: Zones,
    /// Number of variants of the limits so far: those for the days of their keys.
    pub(super) variants: usize,
    /// Name and first place of every limit with a name, including refused ones.
    pub(super) names: HashMap<&'a str, Spot<'a>>,
}

/// `[defaults]`
pub(super) fn defaults<'a>(root: Table<'a>, responses: &mut Responses<'a>) -> Defaults<'a> {
    let table = root.table("defaults");
    Defaults {
        table,
        missing_key: table.and_then(missing_key),
        response: table.and_then(|table| responses.named_in(table)),
    }
}

/// Reads a limit; `None` if it has an error, which is reported.
pub(super) fn limit<'a>(written: Table<'a>, shared: &mut FileContext<'a>) -> Option<Draft<'a>> {
    let named = limit_name(written, &mut shared.names);
    let mut requests = requests(written, shared.files);
    let key = key(written);
    let case = shared.defaults.or(written, path_case);
    requests.compare(case.unwrap_or_default(), key.as_deref().unwrap_or_default());
    exclusions(written);
    let active = active(written, &shared.zone, &mut shared.zones);
    let missing = missing_key(written);
    let response = shared.responses.named_in(written);
    let usual = shared.defaults.missing_key.clone();
    let mut missing_key = missing.or(usual).unwrap_or_default();
    if separate(written) {
        missing_key = without_address(missing_key);
    }
    let denials = shared.defaults.or(written, denials).unwrap_or_default();
    let around = Surroundings {
        zone: &shared.zone,
        origin: shared.origin,
        denials,
    };
    let quantity = quantity(written, around);
    let around = CostSurroundings {
        limit: written,
        unit: unit(written),
        path_case: requests.matcher.path_case,
        files: shared.files,
    };
    let cost = cost(&around);
    let unit = around.unit;
    let settle = cost.as_ref().and_then(|_| settle(written));
    let correction = quantity
        .as_ref()
        .and_then(|quantity| correction(written, settle, quantity));

    let outage = outage_of(written, &shared.defaults, correction.as_ref());
    let (quantity, key, cost, named) = (quantity?, key?, cost?, named?);
    let limit = Limit {
        name: named.into(),
        id: LimitId::default(),
        version: 0,
        outage,
        scope: scope(written),
        keys: LimitKeys::All,
        algorithm: owing(quantity.algorithm.clone(), correction.as_ref()),
    };
    let variants = variants_by_day(&limit, &quantity);
    shared.variants += variants.numbers.len();
    if shared.variants > MAX_VARIANTS {
        too_many(quantity_at(written));
        return None;
    }
    Some(Draft {
        rule: Rule {
            limit,
            mode: shared.defaults.or(written, mode).unwrap_or_default(),
            percent: percent(written),
            matcher: requests.matcher,
            active: active.map(Box::new),
            alert: alert(written),
            key: counted(key),
            missing_key,
            cost: cost.value,
            correction: correction.map(Box::new),
            exemptions: Vec::new(),
            refusal: refusal_of(response, written.number("status"), &shared.defaults),
            quota: quantity.quota,
            window: quantity.window,
            keeps_to: quantity.keeps_to,
            text: in_unit(quantity.text, unit.as_ref()),
            unit,
            line: written.at().line(),
            variants,
            role: Role::Limit,
            otherwise: Vec::new(),
            replaces: Vec::new(),
            candidate: None,
            distinct: None,
            priority: None,
            on_limit: None,
        },
        extra: None,
        candidate: None,
        is_replaced: false,
        table: written,
        same: requests.same,
        kind: quantity.kind,
        denials,
        quantity_at: quantity_at(written),
        cost_at: cost.at,
    })
}

/// Returns what happens without a key part where there is no address: descriptors have none.
fn without_address(chosen: MissingKey) -> MissingKey {
    match chosen {
        MissingKey::Use(part) if !part.is_of_descriptors() => MissingKey::Shared,
        chosen => chosen,
    }
}

fn outage_of(
    written: Table<'_>,
    defaults: &Defaults<'_>,
    correction: Option<&Correction>,
) -> Outage {
    let chosen = defaults.or(written, outage);
    let chosen = if written.has("balance") {
        balance::outage(written, chosen)
    } else {
        chosen.unwrap_or_default()
    };
    if correction.is_some() {
        is_counted(written, chosen);
    }
    chosen
}

/// Checks the name and enters it in the list of names; `None` if it is missing or refused.
fn limit_name<'a>(table: Table<'a>, names: &mut HashMap<&'a str, Spot<'a>>) -> Option<&'a str> {
    let text = table.text("name")?;
    if let Some(first) = names.get(text.value) {
        let other = if text.at.findings.is_full() {
            String::new()
        } else {
            another_name(text.value, names)
        };
        let message = format!("two limits are called `{text}`");
        let label = "the name must be unique, because counters are kept by name";
        error(codes::DUPLICATE_NAME, text.at, message, label)
            .related(*first)
            .help(format!("write for example name = \"{other}\""));
        return None;
    }
    names.insert(text.value, text.at);
    name(&text, "limit").then_some(text.value)
}

/// Returns `signup-2`, or the first number that is free.
fn another_name(name: &str, names: &HashMap<&str, Spot<'_>>) -> String {
    let short: String = name.chars().take(MAX_NAME - 6).collect();
    let free = |number: &usize| !names.contains_key(&*format!("{short}-{number}"));
    let number = (2..=names.len() + 2).find(free).unwrap_or(2);
    format!("{short}-{number}")
}

fn mode(table: Table<'_>) -> Option<RuleMode> {
    table.word("mode")
}

/// `path_case`
fn path_case(table: Table<'_>) -> Option<PathCase> {
    table.word("path_case")
}

/// Removes `all`, which adds nothing to a key: one shared counter has the empty key.
fn counted(mut key: Vec<KeyPart>) -> Vec<KeyPart> {
    key.retain(|part| *part != KeyPart::All);
    key
}

/// Returns the refusal of a limit: its own response precedes the defaults, and a `status`
/// precedes that of a response beside it.
fn refusal_of(
    own: Option<NamedResponse<'_>>,
    status: Option<u16>,
    defaults: &Defaults<'_>,
) -> Arc<Refusal> {
    let kept = own.as_ref().is_some_and(|own| own.has_status);
    let usual = || defaults.read(|table| table.number("status"));
    let status = status.or_else(|| usual().filter(|_| !kept));
    let named = own.or_else(|| defaults.response.clone());
    let refusal = named.map(|named| named.refusal).unwrap_or_default();
    match status {
        Some(status) if status != refusal.status => Arc::new(Refusal {
            status,
            ..(*refusal).clone()
        }),
        _ => refusal,
    }
}
