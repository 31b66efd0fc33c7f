//! Visitors: warns of decisions by values that any visitor can send.
//!
//! ```text
//!   [[exempt]]    match = { header.x-internal = "true" }     each visitor may send it
//!   [client_ip]   trusted_headers = ["x-internal"]           a trusted proxy sets or removes it
//! ```

use std::fmt::Display;
use std::sync::Arc;

use super::unreceived::OpenListeners;
use crate::config::{At, Draft, Spot, Table, codes, header_name, warning};
use crate::{
    ClientIp, Exemption, Field, KeyPart, Matcher, MissingKey, Pattern, PlanSource, Plans,
    ProxySettings,
};

/// Headers with another value in each request, or with any: no key by them is ever refused.
const OF_REQUESTS: [&str; 13] = [
    "cf-ray",
    "x-trace-id",
    "sec-websocket-key",
    "x-request-id",
    "x-correlation-id",
    "request-id",
    "traceparent",
    "x-b3-traceid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "idempotency-key",
    "user-agent",
    "referer",
];

/// Headers to which each proxy appends the address of its peer: they begin with the client's own
/// text. Others, such as `x-real-ip`, are set anew by the proxies that know them.
const OF_ADDRESSES: [&str; 3] = ["x-forwarded-for", "forwarded", "x-original-forwarded-for"];

/// Headers by which a proxy states the one address of a client, as a text.
const OF_ONE_ADDRESS: [&str; 18] = [
    "cf-connecting-ip",
    "true-client-ip",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-azure-clientip",
    "cf-connecting-ipv6",
    "x-envoy-external-address",
    "do-connecting-ip",
    "x-nf-client-connection-ip",
    "x-vercel-forwarded-for",
    "x-appengine-user-ip",
    "ali-cdn-real-ip",
    "wl-proxy-client-ip",
    "x-real-client-ip",
    "client-ip",
];

/// Minimum length of a text that no visitor guesses.
const SECRET: usize = 16;

/// The headers that trusted proxies set, where requests of visitors arrive.
pub(crate) struct Visitors {
    trusted: Vec<String>,
}

impl Visitors {
    /// Reads `trusted_headers`; `None` if no request of a visitor arrives, because applications ask.
    pub(crate) fn read(root: Table<'_>, client_ip: &ClientIp, open: OpenListeners) -> Option<Self> {
        let table = root.table("client_ip");
        let headers = table.map(|table| table.texts("trusted_headers"));
        let headers = headers.into_iter().flatten();
        let headers = headers.filter_map(|text| header_name(&text));
        let trusted: Vec<String> = headers.collect();
        let is_behind = !client_ip.trusted_proxies.is_empty();
        (is_behind || open.proxy).then_some(Self { trusted })
    }

    /// Warns of exemptions, a plan, priorities and keys that visitors choose.
    pub(crate) fn lints(
        &self,
        root: Table<'_>,
        drafts: &[Draft<'_>],
        exemptions: &[At<'_, Arc<Exemption>>],
        plans: Option<&Plans>,
        proxy: Option<&ProxySettings>,
    ) {
        for (number, exemption) in (1..).zip(exemptions) {
            if let Some(field) = self.chosen(&exemption.value.matcher) {
                warn(format!("exempt {number}"), field, exemption.at);
            }
        }
        let part = plans.and_then(|plans| match &plans.from {
            PlanSource::Header(name) => Some(KeyPart::Header(name.clone())),
            PlanSource::Keys { part, .. } => Some(part.clone()),
            PlanSource::Attribute(_) | PlanSource::Claim(_) => None,
        });
        if let (Some(part), Some(table)) = (part, root.table("plan"))
            && self.sends_part(&part)
        {
            warn("[plan]", part, table.place("from"));
        }
        let mut first = proxy.into_iter().flat_map(ProxySettings::priorities);
        if let Some(field) = first.find_map(|first| self.chosen(&first.matcher))
            && let Some(table) = root.table("listen")
        {
            let what = "the priority of `adaptive_concurrency`";
            warn(what, field, table.place("proxy"));
        }
        for draft in drafts {
            let priority = draft.rule.priority.as_ref();
            if let Some(field) = priority.and_then(|it| self.chosen(&it.matcher)) {
                let at = draft.table.place("priority");
                warn(format!("the priority of {draft}"), field, at);
            }
            if let Some(field) = self.left(draft, drafts) {
                let at = draft.table.place("match");
                warn(format!("the `match` of {draft}"), field, at);
            }
            let replaced = draft.rule.replaces.iter();
            let mut replaced = replaced.filter_map(|index| drafts.get(*index as usize));
            if let Some(field) = self.chosen(&draft.rule.matcher)
                && replaced.any(|other| !super::counts_less(draft, other))
            {
                let at = draft.table.place("replaces");
                warn(format!("`replaces` of {draft}"), field, at);
            }
            let mut parts = draft.rule.key.iter();
            let new_each_time = parts.find(|part| {
                let is_new = |name: &String| OF_REQUESTS.contains(&name.as_str());
                matches!(part, KeyPart::Header(name) if is_new(name)) && self.sends_part(part)
            });
            if let Some(part) = new_each_time {
                let message = format!("{draft} counts by `{part}`, which may be new each time");
                let label = "with another value in each request, no request is refused";
                warning(codes::VISITORS, draft.table.place("key"), message, label)
                    .help(format!("leave \"{part}\" out of `key`"));
            }
        }
    }

    /// Returns a field by which a visitor decides whether requests match: nothing else limits them
    /// to one path or to some clients.
    fn chosen<'m>(&self, matcher: &'m Matcher) -> Option<&'m Field> {
        let is_fixed = matcher.fields.iter().any(|(field, patterns)| {
            let mut wanted = patterns.iter().filter(|it| !it.negated).peekable();
            wanted.peek().is_some()
                && match field {
                    Field::Path => wanted.all(is_exact),
                    Field::Method | Field::Host => false,
                    Field::Query(_) | Field::Header(_) | Field::Cookie(_) => {
                        !self.sends(field) || wanted.all(is_secret)
                    }
                    _ => true,
                }
        });
        let mut fields = matcher.fields.iter().map(|(field, _)| field);
        fields.find(|field| !is_fixed && self.sends(field))
    }

    /// Returns a field of which a value, and no secret, takes a request out of a limit, if no other
    /// limit is for requests with a value of it.
    fn left<'d>(&self, draft: &'d Draft<'_>, drafts: &[Draft<'_>]) -> Option<&'d Field> {
        let mut fields = draft.rule.matcher.fields.iter();
        let left = fields.find(|(field, patterns)| {
            let leaves = |it: &Pattern| it.negated && it.text() != "*" && !is_secret(it);
            let is_met = |other: &Draft<'_>| {
                let mut fields = other.rule.matcher.fields.iter();
                fields.any(|(own, values)| own == field && values.iter().any(|it| !it.negated))
            };
            self.sends(field) && patterns.iter().all(leaves) && !drafts.iter().any(is_met)
        });
        left.map(|(field, _)| field)
    }

    /// Returns true for a field of which visitors send the value.
    fn sends(&self, field: &Field) -> bool {
        match field {
            Field::Header(name) => !self.trusted.contains(name),
            Field::Query(_) | Field::Cookie(_) => true,
            _ => false,
        }
    }

    /// Returns true for a value that visitors send, and that is no secret.
    fn sends_part(&self, part: &KeyPart) -> bool {
        match part {
            KeyPart::Header(name) => !part.is_secret() && !self.trusted.contains(name),
            KeyPart::Query(_) => true,
            _ => false,
        }
    }
}

fn is_exact(pattern: &Pattern) -> bool {
    !pattern.text().contains(['*', '{'])
}

/// Returns true for a text that no visitor guesses.
fn is_secret(pattern: &Pattern) -> bool {
    is_exact(pattern) && pattern.text().len() >= SECRET
}

fn warn(what: impl Display, value: impl Display, at: Spot<'_>) {
    let value = value.to_string();
    let message = format!("{what} is decided by `{value}`, which any visitor can send");
    let header = value.strip_prefix("header").map(|name| &name[1..]);
    let help = match header {
        Some(header) => format!(
            "let a trusted proxy set or remove the header in each request, and write \
             trusted_headers = [\"{header}\"] in [client_ip]; else decide by an address"
        ),
        None => "decide by an address, or by a header that a trusted proxy sets".to_owned(),
    };
    let label = "as the visitor likes";
    warning(codes::VISITORS, at, message, label).help(help);
}

/// Warns of a limit that counts by the text of addresses.
pub(crate) fn unreliable(draft: &Draft<'_>) {
    let key = draft.rule.key.iter();
    let key = key.map(|part| (part, "key", "key = [\"ip\"]"));
    let stand_in = match &draft.rule.missing_key {
        MissingKey::Use(part) => Some((part, "missing_key", "missing_key = \"use:ip\"")),
        _ => None,
    };
    for (part, field, edit) in key.chain(stand_in) {
        let KeyPart::Header(header) = part else {
            continue;
        };
        let header = header.as_str();
        let (what, label) = if OF_ADDRESSES.contains(&header) {
            (
                format!("`{header}`, which begins as clients write it"),
                "with another value in each request, no request of a client is refused",
            )
        } else if OF_ONE_ADDRESS.contains(&header) {
            (
                format!("the text of `{header}`, an address"),
                "each address of an IPv6 network is counted by itself, and visitors can send it",
            )
        } else {
            continue;
        };
        let message = format!("{draft} counts by {what}");
        warning(codes::HEADER, draft.table.place(field), message, label).help(format!(
            "write {edit}, and where addresses come from: [client_ip] with header = \
                 \"{header}\" and trusted_proxies = [\"10.0.0.0/8\"]"
        ));
    }
}

/// Warns of a limit by a field of a form for requests that have none. (A GET with a JSON body is
/// rare, but some search APIs read it.)
pub(crate) fn formless(draft: &Draft<'_>) {
    let is_read = |pattern: &Pattern| {
        let method = pattern.text().to_ascii_uppercase();
        pattern.negated || ["GET", "HEAD"].contains(&&*method)
    };
    let mut fields = draft.rule.matcher.fields.iter();
    let is_formless = fields.any(|(field, patterns)| {
        let is_some = patterns.iter().any(|pattern| !pattern.negated);
        *field == Field::Method && is_some && patterns.iter().all(is_read)
    });
    let mut parts = draft.rule.key.iter().map(ToString::to_string);
    let part = parts.find_map(|part| Some(part.strip_prefix("form:")?.to_owned()));
    if let Some(part) = part.filter(|_| is_formless) {
        let message = format!("{draft} needs `form:{part}`, which no GET has");
        let label = "a GET carries its values in the query";
        warning(codes::UNRECEIVED, draft.table.place("key"), message, label)
            .related(draft.table.place("match"))
            .help(format!(
                "write method = \"POST\", or \"query:{part}\" in `key`"
            ));
    }
}
