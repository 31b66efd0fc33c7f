//! Ratelimit: rules of the Go service as native limits.
//!
//! ```text
//!   exact      key: a, value: b     descriptor.a = "b"
//!   wildcard   key: a, value: b*    descriptor.a = ["b*", "!bc"]    without what goes before
//!   any        key: a               descriptor.a = ["*", "!b", "!b*"]
//! ```
//!
//! There the first rule that matches is taken; here all limits that match apply. So the rules
//! before a rule on its level are excluded from its match.

use crate::envoy::tree::{TreeStep, Wanted};
use crate::envoy::{EnvoyConfig, EnvoyRateLimit, EnvoyRule, Unit};
use crate::import::Imported;
use crate::import::limits::{ImportedLimit, Writer, entry_name, quoted};

const HEADING: &str = "\
Made by `ratekeeper import --from envoy-ratelimit`. Lines that begin with UNSUPPORTED name
features that a native policy does not support.

Native limits of one call are charged all together or none at all; the Go service counts
each descriptor on its own. Entries may come in any order. Counters begin afresh.

Each limit may now use another algorithm: limit = \"100/1m\" without `algorithm` is a token
bucket, and bucket = { size = 20, refill = \"10/1s\" } sets its burst.";

/// Converts the rules of a configuration to native limits.
pub fn ratelimit(config: &EnvoyConfig) -> Imported {
    let mut writer = Writer::new(HEADING);
    let mut rules = Vec::new();
    config.each_way(|domain, way, rule| rules.push((rule.id, draft(domain, way, rule))));
    rules.sort_by_key(|(id, _)| *id);
    for (_, draft) in &rules {
        match draft {
            Ok(draft) => {
                writer.limit(draft);
            }
            Err(Some(why)) => writer.unsupported(why),
            Err(None) => {}
        }
    }
    let settings = config.settings();
    for (on, name) in [
        (settings.stop_increment, "stop_increment"),
        (
            settings.shadow_mode,
            "shadow_mode: start with `ratekeeper run --shadow`",
        ),
        (settings.quota_mode, "quota_mode"),
    ] {
        if on {
            writer.unsupported(&format!("unsupported setting {name}"));
        }
    }
    writer.finish()
}

/// Returns a limit; else the reason why there is none, if that is a loss.
fn draft(
    domain: &str,
    way: &[TreeStep<'_>],
    rule: &EnvoyRule,
) -> Result<ImportedLimit, Option<String>> {
    let EnvoyRateLimit::PerUnit {
        requests_per_unit,
        unit,
    } = rule.limit
    else {
        return Err(None); // its values are excluded from the others
    };
    if requests_per_unit == 0 {
        let path = &rule.path;
        return Err(Some(format!(
            "{path}: not imported: a limit of 0, which refuses every request"
        )));
    }
    let mut draft = ImportedLimit {
        called: rule.name.as_deref().unwrap_or(&rule.path).to_owned(),
        matches: vec![("domain".to_owned(), vec![domain.to_owned()])],
        lines: vec![
            format!("limit = \"{requests_per_unit}/{}\"", span(unit)),
            "algorithm = \"fixed-window\"".to_owned(),
            "count_denied = true".to_owned(),
        ],
        ..ImportedLimit::default()
    };
    let mut names: Vec<String> = Vec::new();
    for (level, step) in way.iter().enumerate() {
        let name = entry_name(step.key, &names);
        let shared = matches!(rule.shared.get(level), Some(Some(_)));
        let mut values = match step.wanted {
            Wanted::Exact(value) | Wanted::Like(value) => vec![value.to_owned()],
            Wanted::Any if step.before.is_empty() => Vec::new(),
            Wanted::Any => vec!["*".to_owned()],
        };
        let own = values.iter().map(String::as_str);
        let mut used = own.chain(step.before.iter().copied());
        if used.any(|value| value.starts_with('!')) {
            let path = &rule.path;
            let why = format!("{path}: not imported: a value that begins with `!`");
            return Err(Some(why));
        }
        values.extend(step.before.iter().map(|value| format!("!{value}")));
        if !values.is_empty() {
            let field = format!("descriptor.{}", quoted(&name));
            draft.matches.push((field, values));
        }
        if !matches!(step.wanted, Wanted::Exact(_)) && !shared {
            draft.key.push(format!("descriptor:{name}"));
        }
        names.push(name);
    }
    lose(rule, &mut draft);
    Ok(draft)
}

/// Notes the other features of the rule.
fn lose(rule: &EnvoyRule, draft: &mut ImportedLimit) {
    if rule.shadow {
        draft.lines.push("mode = \"shadow\"".to_owned());
    }
    if rule.quota {
        draft
            .lost
            .push("quota_mode: the limit now refuses on its own".to_owned());
    }
    if !rule.replaces.is_empty() {
        let names: Vec<_> = rule.replaces.iter().map(|name| &**name).collect();
        let names = names.join(", ");
        draft
            .lost
            .push(format!("replaces {names}: all limits that match apply now"));
    }
    if rule.metadata.is_some() {
        draft.lost.push("metadata".to_owned());
    }
    if rule.has_named_series() {
        draft
            .lost
            .push("metrics with values of the calls".to_owned());
    }
}

fn span(unit: Unit) -> &'static str {
    match unit {
        Unit::Second => "1s",
        Unit::Minute => "1m",
        Unit::Hour => "1h",
        Unit::Day => "1d",
        Unit::Week => "7d",
        Unit::Month => "30d",
        Unit::Year => "365d",
    }
}
