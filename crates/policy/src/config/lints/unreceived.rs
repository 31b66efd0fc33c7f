//! Unreceived: refuses limits by values that no listener receives.
//!
//! ```text
//!   [listen]   proxy = { .. }             http is off
//!   [[limit]]  key = ["attr:user"]        no caller sends it to the gateway
//! ```

use std::sync::Arc;

use crate::config::{At, Draft, Listeners, Spot, Table, codes, error};
use crate::{Cost, Exemption, Field, KeyPart, Matcher, PlanSource, Plans, Settings};

/// The listeners that receive requests.
#[derive(Clone, Copy)]
pub(crate) struct OpenListeners {
    /// The gateway.
    pub(super) proxy: bool,
    /// The check API, which takes attributes, descriptors and outcomes.
    http: bool,
    /// Envoy's rate limit service, which takes descriptors.
    grpc: bool,
}

impl OpenListeners {
    pub(crate) fn of(listeners: Listeners, settings: &Settings) -> Self {
        let listen = &settings.listen;
        let proxy = listen.proxy.as_ref();
        let forwards = listeners.forwards || proxy.is_some();
        let address = proxy.and_then(|proxy| proxy.address.as_deref());
        let is_on = |own: Option<bool>, written: Option<&str>, usual| {
            own.unwrap_or(written.map_or(usual, |address| address != "off"))
        };
        let proxy = is_on(listeners.proxy, address, forwards);
        let serves_envoy = settings.envoy_files.config.is_some();
        Self {
            proxy,
            http: is_on(listeners.http, listen.http.as_deref(), !proxy),
            grpc: is_on(listeners.grpc, listen.grpc.as_deref(), serves_envoy),
        }
    }

    /// Returns the first key part whose values no listener receives.
    fn lacked_part<'p>(self, parts: impl IntoIterator<Item = &'p KeyPart>) -> Option<String> {
        let is_lacked = |part: &&KeyPart| match part {
            KeyPart::Attribute(_) => true,
            _ => part.is_of_descriptors() && !self.grpc,
        };
        parts.into_iter().find(is_lacked).map(ToString::to_string)
    }

    /// Returns the first such field that a request must have.
    fn lacked_field(self, matcher: &Matcher) -> Option<String> {
        let mut fields = matcher.fields.iter();
        let field = fields.find(|(field, patterns)| {
            let is_lacked = match field {
                Field::Attribute(_) => true,
                _ => field.is_of_descriptors() && !self.grpc,
            };
            is_lacked && patterns.iter().any(|pattern| !pattern.negated)
        });
        field.map(|(field, _)| field.to_string())
    }
}

/// Reports limits, exemptions and plans by values that no listener receives.
pub(crate) fn unreceived(
    open: OpenListeners,
    drafts: &[Draft<'_>],
    exemptions: &[At<'_, Arc<Exemption>>],
    plans: Option<&Plans>,
    root: Table<'_>,
) {
    if open.http || !(open.proxy || open.grpc) {
        return;
    }
    let report = |what: &str, value: String, at: Spot<'_>| {
        let message = format!("{what} needs `{value}`, which no listener receives");
        let of_request = "a value of the request, such as \"header:x-user\"";
        let (label, instead, listener) = match &*value {
            "outcome" => (
                "only `POST /v1/report` sends it",
                "`status` in its place",
                "http",
            ),
            // `domain`, `descriptor.X`, `descriptor:X`
            _ if value.starts_with('d') => ("only Envoy sends it", of_request, "grpc"),
            _ => ("only callers of the check API send it", of_request, "http"),
        };
        error(codes::UNRECEIVED, at, message, label).help(format!(
            "write {instead}; or add the listener of your callers: {listener} = \
                 \"127.0.0.1:8081\" in [listen]"
        ));
    };
    let from = plans.and_then(|plans| match &plans.from {
        PlanSource::Attribute(name) => Some(format!("attr:{name}")),
        PlanSource::Keys { part, .. } => open.lacked_part([part]),
        PlanSource::Header(_) | PlanSource::Claim(_) => None,
    });
    if let (Some(value), Some(table)) = (from, root.table("plan")) {
        report("[plan]", value, table.place("from"));
    }
    for (number, exemption) in (1..).zip(exemptions) {
        if let Some(value) = open.lacked_field(&exemption.value.matcher) {
            report(&format!("exempt {number}"), value, exemption.at);
        }
    }
    for draft in drafts.iter().filter(|draft| !draft.is_off()) {
        let (rule, table) = (&draft.rule, draft.table);
        let cost = match &rule.cost {
            Cost::Attribute(name, _) => Some(format!("attr:{name}")),
            _ => None,
        };
        let stand_in = table
            .has("missing_key")
            .then(|| open.lacked_part(rule.counted_parts()));
        let extra = draft.extra.iter().flat_map(|extra| &extra.rule.key);
        let priority = rule
            .priority
            .as_ref()
            .and_then(|it| open.lacked_field(&it.matcher));
        let day = rule.variants.day_attribute();
        // The gateway itself reports statuses.
        let outcome = |field| {
            let results = table.table(field)?;
            (!results.has("status")).then(|| "outcome".to_owned())
        };
        let first = [
            (open.lacked_part(&rule.key), table.place("key")),
            (open.lacked_field(&rule.matcher), table.place("match")),
            (cost, draft.cost_at),
            (open.lacked_part(extra), table.place("distinct")),
            (stand_in.flatten(), table.place("missing_key")),
            (priority, table.place("priority")),
            (
                day.map(|name| format!("attr:{name}")),
                table.place("anchor"),
            ),
            (outcome("count"), table.place("count")),
            (outcome("reset_on"), table.place("reset_on")),
        ];
        if let Some((value, at)) = first.into_iter().find_map(|(it, at)| Some((it?, at))) {
            report(&draft.to_string(), value, at);
        }
    }
}
