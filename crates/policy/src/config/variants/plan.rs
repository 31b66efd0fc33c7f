//! Plan: `[plan]`, where the plan of a request comes from, and `plans` of the limits.

use std::collections::HashMap;

use super::key_text::exact_value;
use super::{SetText, VariantReader};
use crate::config::fields::{MAX_PLAN_KEYS, MAX_PLANS};
use crate::config::limit::requests::{key_part, name};
use crate::config::settings::jwt::has_tokens;
use crate::config::{At, Draft, Node, Table, Text, codes, error, is_word, shown, warning};
use crate::{Allowance, KeyPart, PathCase, PlanSource, Plans};

/// Reads `[plan]`, and `plans` of every limit. `None` if there is no plan, or it is reported as
/// wrong.
pub(crate) fn plans(
    root: Table<'_>,
    ipv6_prefix: u8,
    reader: &mut VariantReader<'_>,
    drafts: &mut [Draft<'_>],
) -> Option<Plans> {
    let Some(table) = root.table("plan") else {
        if let Some(draft) = drafts.iter().find(|draft| draft.table.has("plans")) {
            let message = format!("{draft} has `plans`, but the policy has no [plan]");
            let label = "the plan of a request is not known";
            error(codes::PLAN, draft.table.place("plans"), message, label)
                .help("add [plan] with from = \"attr:plan\" and default = \"free\"");
        }
        return None;
    };
    let default = table.text("default");
    let default = default.filter(plan_name);
    let names = default.and_then(|default| plan_names(default.value, drafts));
    let known = names.as_deref().unwrap_or_default();
    let from = from(root, table, known, ipv6_prefix);
    let (from, names) = (from?, names?);
    let mut used = false;
    for draft in drafts {
        used |= numbers(draft, &from, &names, reader);
    }
    if !used && !table.findings().has_errors() {
        let label = "no limit has `plans`";
        let message = "[plan] has no effect";
        warning(codes::PLAN_UNUSED, table.at(), message, label)
            .help("add numbers to a limit, as in plans = { pro = \"600/1m\" }, or remove [plan]");
    }
    Some(Plans { from, names })
}

/// Returns the names of all plans, that of the default first; `None` if there are too many.
fn plan_names(default: &str, drafts: &[Draft<'_>]) -> Option<Vec<Box<str>>> {
    let mut names: Vec<Box<str>> = vec![default.into()];
    let written = drafts.iter().filter_map(|draft| draft.table.names("plans"));
    for (text, _) in written.flatten() {
        if names.iter().any(|known| **known == *text.value) || !plan_name(&text) {
            continue;
        }
        if names.len() == MAX_PLANS {
            let message = format!("the policy has more than {MAX_PLANS} plans");
            error(codes::TOO_MANY, text.at, message, "one more than allowed")
                .help("give requests of equal numbers the same plan");
            return None;
        }
        names.push(text.value.into());
    }
    Some(names)
}

/// Returns true if the text is the name of a plan; reports an error if not. Digits alone would be
/// the numbers of an override.
fn plan_name(text: &Text<'_>) -> bool {
    if text.value.is_empty() || !text.value.bytes().all(|byte| byte.is_ascii_digit()) {
        return name(text, "plan");
    }
    let message = format!("plan `{text}` has no letter in its name");
    error(codes::NAME, text.at, message, "needs a letter")
        .help(format!("write for example \"plan-{text}\""));
    false
}

/// Reads `plans` of one limit; returns true if it has any.
fn numbers(
    draft: &mut Draft<'_>,
    from: &PlanSource,
    names: &[Box<str>],
    reader: &mut VariantReader<'_>,
) -> bool {
    let Some(written) = draft.table.names("plans") else {
        return false;
    };
    let for_descriptors = matches!(from, PlanSource::Keys { part, .. } if part.is_of_descriptors());
    if draft.rule.is_for_descriptors() != for_descriptors {
        let of = if for_descriptors {
            "descriptors, which this limit is not for"
        } else {
            "requests, and this limit is for descriptors"
        };
        let message = format!("{draft} cannot have `plans`");
        let label = format!("[plan] takes plans from {of}");
        error(codes::PLAN, draft.table.place("plans"), message, label)
            .help("remove `plans`, and write one limit for each plan, each with its own `match`");
        return true;
    }
    let mut plans = vec![Allowance::Own; names.len()];
    for (At { value: name, .. }, node) in written {
        let Some(index) = names.iter().position(|known| **known == *name) else {
            continue; // reported: not a name
        };
        let Some(set) = node.text_or_number() else {
            continue; // reported: neither text nor number
        };
        let text = SetText {
            name,
            text: &set.value,
            field: name,
            at: set.at,
        };
        let Some(allowance) = reader.allowance(draft, text) else {
            continue;
        };
        if index == 0 && allowance == Allowance::Unlimited {
            let message = format!("the default plan `{}` cannot be unlimited", shown(name));
            let label = "a request without a plan would have no limit";
            error(codes::PLAN, set.at, message, label)
                .help("write numbers, or choose another `default` in [plan]");
        }
        plans[index] = allowance;
    }
    draft.rule.variants.plans = plans;
    true
}

/// Reads `from`; `None` if it is reported as wrong.
fn from(
    root: Table<'_>,
    table: Table<'_>,
    names: &[Box<str>],
    ipv6_prefix: u8,
) -> Option<PlanSource> {
    if let Some(mut keys) = table.names("from") {
        let (part, plans) = keys.next()?;
        return from_keys(&part, plans, names, ipv6_prefix);
    }
    let text = table.text("from")?;
    match KeyPart::parse(text.value) {
        Ok(KeyPart::Attribute(name)) => Some(PlanSource::Attribute(name)),
        Ok(KeyPart::Claim(name)) => has_tokens(root, &text).then_some(PlanSource::Claim(name)),
        Ok(part @ KeyPart::Header(_)) if part.is_secret() => no_source(&text),
        Ok(KeyPart::Header(name)) => Some(PlanSource::Header(name)),
        _ => no_source(&text),
    }
}

fn no_source(text: &Text<'_>) -> Option<PlanSource> {
    let message = format!("a plan cannot come from \"{text}\"");
    let label = "expected \"attr:NAME\", \"jwt:NAME\", \"header:NAME\" or a table of keys";
    let help = if !is_word(text.value) || KeyPart::parse(text.value).is_ok() {
        "write from = \"attr:plan\", or from = { api_key = { acme = \"pro\" } }".to_owned()
    } else if text.value.starts_with("x-") {
        format!("write from = \"header:{text}\"")
    } else {
        format!("write from = \"attr:{text}\", or from = \"header:{text}\"")
    };
    error(codes::PLAN, text.at, message, label).help(help);
    None
}

/// Reads `from = { api_key = { acme = "pro" } }`; warns of plans that no limit names.
fn from_keys(
    text: &Text<'_>,
    node: Node<'_>,
    names: &[Box<str>],
    ipv6_prefix: u8,
) -> Option<PlanSource> {
    let part = key_part(text)?;
    let depends = matches!(
        part,
        KeyPart::All | KeyPart::Path | KeyPart::Route | KeyPart::Method
    );
    if depends {
        return no_source(text);
    }
    let mut plans = HashMap::default();
    node.value.as_table()?;
    for (key, node) in node.fields().take(MAX_PLAN_KEYS) {
        let value = exact_value(&part, &key, ipv6_prefix, PathCase::default());
        let (Some(value), Some(plan)) = (value, node.value.as_str()) else {
            continue;
        };
        let index = names.iter().position(|known| **known == *plan);
        if let (None, Some(default)) = (index, names.first()) {
            let message = format!("no limit has numbers for the plan `{}`", shown(plan));
            let label = format!("has the numbers of the default plan, `{default}`");
            let other = || "add the plan to `plans` of a limit".to_owned();
            let out = node.at.findings;
            let help = out.meant(plan, names.iter().map(|name| &**name), "", other);
            warning(codes::PLAN_UNUSED, node.at, message, label).help(help);
        }
        plans.insert(value, index.unwrap_or_default());
    }
    Some(PlanSource::Keys { part, plans })
}
