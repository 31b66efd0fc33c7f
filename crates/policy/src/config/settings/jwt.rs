//! Jwt: reads `[jwt]`, and requires it where a policy asks for claims.

use std::iter::once;
use std::sync::Arc;

use crate::config::{
    Draft, PolicyFiles, Spot, Table, Text, codes, error, header_name, shown, warning,
};
use crate::model::client::TokenSettings;
use crate::{Field, KeyPart, Matcher, PlanSource, Plans, ProxySettings, Settings, Tokens};

/// Header with the token if `[jwt]` names no other.
const HEADER: &str = "authorization";

/// Reads `[jwt]`; `None` if there is none, or it is reported as wrong.
pub(crate) fn tokens(root: Table<'_>, files: &PolicyFiles) -> Option<Arc<Tokens>> {
    let table = root.table("jwt")?;
    let header = match table.text("header") {
        Some(text) => header_name(&text)?,
        None => HEADER.to_owned(),
    };
    let settings = TokenSettings {
        algorithms: algorithms(table)?,
        issuer: table.owned("issuer"),
        audience: table.owned("audience"),
        header: header.to_ascii_lowercase(),
    };
    let keys = table.text("keys")?;
    let Some(name) = keys.value.strip_prefix("file:") else {
        let help = if keys.value.contains("://") {
            "fetch the set into a file beside the policy: keys = \"file:jwks.json\""
        } else {
            "write keys = \"file:jwks.json\""
        };
        refuse("`keys` of [jwt] names no file".into(), keys.at, help);
        return None;
    };
    let tokens = files
        .text(name)
        .map_err(|reason| format!("cannot read `{}`: {reason}", shown(name)))
        .and_then(|text| Tokens::new(settings, text));
    let help = "write the path of a JWK set, a public key in PEM or a shared secret, and the \
                algorithms of its keys";
    let tokens = tokens.map_err(|reason| refuse(reason, keys.at, help));
    tokens.ok().map(Arc::new)
}

fn refuse(reason: String, at: Spot<'_>, help: &str) {
    let label = "no token could be verified";
    error(codes::TOKENS, at, reason, label).help(help);
}

/// Reads `algorithms`; `None` if there is none, or `none`.
fn algorithms(table: Table<'_>) -> Option<Vec<String>> {
    let written = table.texts("algorithms");
    let mut texts = written.iter();
    if let Some(none) = texts.find(|text| text.value.eq_ignore_ascii_case("none")) {
        let message = "tokens without a signature cannot be verified";
        let label = "anybody could write such a token";
        error(codes::TOKENS, none.at, message, label)
            .help("remove it, and name the algorithm of the keys: algorithms = [\"RS256\"]");
        return None;
    }
    let names = written.iter().map(|text| text.value.to_owned());
    Some(names.collect()).filter(|names: &Vec<_>| !names.is_empty())
}

/// Reports limits that depend on claims in a policy without `[jwt]`; returns true if any does.
pub(crate) fn required(root: Table<'_>, settings: &Settings, drafts: &[Draft<'_>]) -> bool {
    let matches = |matcher: &Matcher| {
        let mut fields = matcher.fields.iter();
        fields.any(|(field, _)| matches!(field, Field::Claim(_)))
    };
    let mut asking = Vec::new();
    for draft in drafts {
        let rule = &draft.rule;
        let values = draft.extra.iter().flat_map(|extra| &extra.rule.key);
        let counts = rule.counted_parts().chain(values).any(is_claim);
        let exempted = rule.exemptions.iter().map(|exempt| &exempt.matcher);
        let preferred = rule.priority.iter().map(|priority| &priority.matcher);
        let mut all = once(&rule.matcher).chain(exempted).chain(preferred);
        if counts || all.any(matches) {
            asking.push((draft.to_string(), draft.table.place("key")));
        }
    }
    let proxy = settings.listen.proxy.iter();
    let mut priorities = proxy.flat_map(ProxySettings::priorities);
    if priorities.any(|priority| matches(&priority.matcher)) {
        let at = root
            .table("listen")
            .map_or(root.at(), |it| it.place("proxy"));
        asking.push(("`adaptive_concurrency`".to_owned(), at));
    }
    for (part, at) in asking.iter().filter(|_| !root.has("jwt")) {
        let message = format!("{part} asks for claims of tokens");
        no_tokens(message, *at);
    }
    !asking.is_empty()
}

/// Lint: `[jwt]` of which no limit asks for a claim, and no plan either.
pub(crate) fn unused(root: Table<'_>, plans: Option<&Plans>) {
    let by_plan = plans.is_some_and(|plans| match &plans.from {
        PlanSource::Keys { part, .. } => is_claim(part),
        from => matches!(from, PlanSource::Claim(_)),
    });
    if let Some(table) = root.table("jwt").filter(|_| !by_plan) {
        let message = "[jwt] has no effect";
        let label = "no key, `match` or plan asks for claims of tokens";
        warning(codes::TOKENS, table.at(), message, label)
            .help("ask for a claim, as in key = [\"jwt:sub\"], or remove [jwt]");
    }
}

/// Returns true if `[jwt]` is there; reports an error at `text` if not.
pub(crate) fn has_tokens(root: Table<'_>, text: &Text<'_>) -> bool {
    if root.has("jwt") {
        return true;
    }
    let message = format!("\"{text}\" is a claim of a token");
    no_tokens(message, text.at);
    false
}

fn no_tokens(message: String, at: Spot<'_>) {
    let label = "the policy has no [jwt], so no token is verified";
    error(codes::TOKENS, at, message, label)
        .help("add [jwt] with keys = \"file:jwks.json\" and algorithms = [\"RS256\"]");
}

fn is_claim(part: &KeyPart) -> bool {
    matches!(part, KeyPart::Claim(_))
}
