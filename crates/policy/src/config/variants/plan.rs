//! Plan: `[plan]`, where the plan of a request comes from, and `plans` of the limits.

use std::collections::HashMap;

use super::key_text::exact_value;
use super::{SetText, VariantReader};
use crate::config::fields::{MAX_PLAN_KEYS, MAX_PLANS};
use crate::config::limit::requests::{key_part, name};
use crate::config::settings::jwt::has_tokens;
use crate::config::{
    At, Draft, Findings, SpannedValue, Table, codes, is_word, name_of, shown, text_or_number,
};
use crate::{Allowance, KeyPart, PathCase, PlanSource, Plans};

/// Reads `[plan]`, and `plans` of every limit. `None` if there is no plan, or it is reported as
/// wrong.
pub(crate) fn plans(
    root: Table<'_>,
    ipv6_prefix: u8,
    reader: &mut VariantReader<'_>,
    drafts: &mut [Draft<'_>],
    out: &mut Findings<'_>,
) -> Option<Plans> {
    let Some(table) = root.table("plan") else {
        if let Some(draft) = drafts.iter().find(|draft| draft.table.has("plans")) {
            let at = draft.table.place("plans");
            let message = format!("{draft} has `plans`, but the policy has no [plan]");
            let label = "the plan of a request is not known";
            out.error(codes::PLAN, at, message, label)
                .help("add [plan] with from = \"attr:plan\" and default = \"free\"");
        }
        return None;
    };
    let default = table.text("default");
    let default = default.filter(|text| plan_name(text, out));
    let names = default.and_then(|default| plan_names(default.value, drafts, out));
    let known = names.as_deref().unwrap_or_default();
    let from = from(root, table, known, ipv6_prefix, out);
    let (from, names) = (from?, names?);
    let mut used = false;
    for draft in drafts {
        used |= numbers(draft, &from, &names, reader, out);
    }
    if !used && !out.has_errors() {
        let label = "no limit has `plans`";
        let message = "[plan] has no effect";
        out.warning(codes::PLAN_UNUSED, table.at(), message, label)
            .help("add numbers to a limit, as in plans = { pro = \"600/1m\" }, or remove [plan]");
    }
    Some(Plans { from, names })
}

/// Returns the names of all plans, that of the default first; `None` if there are too many.
fn plan_names(
    default: &str,
    drafts: &[Draft<'_>],
    out: &mut Findings<'_>,
) -> Option<Vec<Box<str>>> {
    let mut names: Vec<Box<str>> = vec![default.into()];
    let written = drafts.iter().filter_map(|draft| draft.table.names("plans"));
    for (text, _) in written.flatten() {
        if names.iter().any(|known| **known == *text.value) || !plan_name(&text, out) {
            continue;
        }
        if names.len() == MAX_PLANS {
            let message = format!("the policy has more than {MAX_PLANS} plans");
            out.error(codes::TOO_MANY, text.at, message, "one more than allowed")
                .help("give requests of equal numbers the same plan");
            return None;
        }
        names.push(text.value.into());
    }
    Some(names)
}

/// Returns true if the text is the name of a plan; reports an error if not. Digits alone would be
/// the numbers of an override.
fn plan_name(text: &At<&str>, out: &mut Findings<'_>) -> bool {
    if text.value.is_empty() || !text.value.bytes().all(|byte| byte.is_ascii_digit()) {
        return name(text, "plan", out);
    }
    let message = format!("plan `{text}` has no letter in its name");
    out.error(codes::NAME, text.at.clone(), message, "needs a letter")
        .help(format!("write for example \"plan-{text}\""));
    false
}

/// Reads `plans` of one limit; returns true if it has any.
fn numbers(
    draft: &mut Draft<'_>,
    from: &PlanSource,
    names: &[Box<str>],
    reader: &mut VariantReader<'_>,
    out: &mut Findings<'_>,
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
        let at = draft.table.place("plans");
        out.error(codes::PLAN, at, message, label)
            .help("remove `plans`, and write one limit for each plan, each with its own `match`");
        return true;
    }
    let mut plans = vec![Allowance::Own; names.len()];
    for (At { value: name, .. }, node) in written {
        let Some(index) = names.iter().position(|known| **known == *name) else {
            continue; // reported: not a name
        };
        let Some(set) = text_or_number(node) else {
            continue; // reported: neither text nor number
        };
        let text = SetText {
            name,
            text: &set.value,
            field: name,
        };
        let Some(allowance) = reader.allowance(draft, text, &set.at, out) else {
            continue;
        };
        if index == 0 && allowance == Allowance::Unlimited {
            let message = format!("the default plan `{}` cannot be unlimited", shown(name));
            let label = "a request without a plan would have no limit";
            out.error(codes::PLAN, set.at, message, label)
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
    out: &mut Findings<'_>,
) -> Option<PlanSource> {
    if let Some(mut keys) = table.names("from") {
        let (part, plans) = keys.next()?;
        return from_keys(&part, plans, names, ipv6_prefix, out);
    }
    let text = table.text("from")?;
    match KeyPart::parse(text.value) {
        Ok(KeyPart::Attribute(name)) => Some(PlanSource::Attribute(name)),
        Ok(KeyPart::Claim(name)) => has_tokens(root, &text, out).then_some(PlanSource::Claim(name)),
        Ok(part @ KeyPart::Header(_)) if part.is_secret() => no_source(&text, out),
        Ok(KeyPart::Header(name)) => Some(PlanSource::Header(name)),
        _ => no_source(&text, out),
    }
}

fn no_source(text: &At<&str>, out: &mut Findings<'_>) -> Option<PlanSource> {
    let message = format!("a plan cannot come from \"{text}\"");
    let label = "expected \"attr:NAME\", \"jwt:NAME\", \"header:NAME\" or a table of keys";
    let help = if !is_word(text.value) || KeyPart::parse(text.value).is_ok() {
        "write from = \"attr:plan\", or from = { api_key = { acme = \"pro\" } }".to_owned()
    } else if text.value.starts_with("x-") {
        format!("write from = \"header:{text}\"")
    } else {
        format!("write from = \"attr:{text}\", or from = \"header:{text}\"")
    };
    out.error(codes::PLAN, text.at.clone(), message, label)
        .help(help);
    None
}

/// Reads `from = { api_key = { acme = "pro" } }`; warns of plans that no limit names.
fn from_keys(
    text: &At<&str>,
    node: &SpannedValue<'_>,
    names: &[Box<str>],
    ipv6_prefix: u8,
    out: &mut Findings<'_>,
) -> Option<PlanSource> {
    let part = key_part(text, out)?;
    let depends = matches!(
        part,
        KeyPart::All | KeyPart::Path | KeyPart::Route | KeyPart::Method
    );
    if depends {
        return no_source(text, out);
    }
    let mut plans = HashMap::default();
    for (key, node) in node.get_ref().as_table()?.iter().take(MAX_PLAN_KEYS) {
        let value = exact_value(&part, &name_of(key), ipv6_prefix, PathCase::default(), out);
        let (Some(value), Some(plan)) = (value, node.get_ref().as_str()) else {
            continue;
        };
        let index = names.iter().position(|known| **known == *plan);
        if let (None, Some(default)) = (index, names.first()) {
            let message = format!("no limit has numbers for the plan `{}`", shown(plan));
            let label = format!("has the numbers of the default plan, `{default}`");
            let other = || "add the plan to `plans` of a limit".to_owned();
            let help = out.meant(plan, names.iter().map(|name| &**name), "", other);
            out.warning(codes::PLAN_UNUSED, node.span(), message, label)
                .help(help);
        }
        plans.insert(value, index.unwrap_or_default());
    }
    Some(PlanSource::Keys { part, plans })
}
