//! Describe: a rule as programs read it, the same in `explain --json`, `/v1/limits` and the dashboard.
//!
//! ```text
//!                                    +--> explain, explain --json
//!   rules --once a version--> descriptions --> GET /v1/limits, GET /v1/policy
//!                                    +--> dashboard
//! ```
//!
//! A part that the rule does not have is left out. Counts, times and keys change while the policy
//! does not: callers show them beside the description.

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Call, LimitScope, Nanos, Outage, Permits, Quota,
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{Cost, KeyShare, Matcher, ResultSet, Role, Rule, RuleMode, Rules};

/// One rule of a policy.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Name of the limit for which it was made; `None` for a limit of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    part_of: Option<String>,
    /// Names of the limits that are asked, in order, when it denies.
    pub otherwise: Vec<String>,
    /// Names of the limits that are not asked where it applies.
    pub replaces: Vec<String>,
    /// The key part of which it counts different values; `None` if it counts requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct: Option<String>,
    /// The policy's word for its behaviour while its store fails.
    pub on_store_error: &'static str,
    /// Maximum that one key is ever admitted.
    pub worst_case: WorstCase,
    /// Maximum that it and the limits in `otherwise` admit together; `None` if it asks none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
    /// The parts that only programs read.
    #[serde(flatten)]
    parts: Value,
}

impl Description {
    /// Describes a rule of `rules`, or one of them with other numbers.
    pub fn of(rules: &[Rule], rule: &Rule) -> Self {
        let name = |index: &u32| Some(rules.get(*index as usize)?.limit.name.to_string());
        let seen = rule.distinct.and_then(|index| rules.get(index as usize));
        let counted = seen.and_then(|seen| seen.key.last()); // behind the key of this rule
        let mut parts = parts(rule);
        parts["candidate"] = json!(rule.candidate.as_ref().and_then(name));
        if let Some(parts) = parts.as_object_mut() {
            parts.retain(|_, part| !part.is_null());
        }
        Self {
            part_of: None,
            otherwise: rule.otherwise.iter().filter_map(name).collect(),
            replaces: rule.replaces.iter().filter_map(name).collect(),
            distinct: counted.map(ToString::to_string),
            on_store_error: match rule.limit.outage {
                Outage::Local => "local",
                Outage::Allow => "allow",
                Outage::Deny => "deny",
                Outage::Error => "error",
            },
            worst_case: WorstCase::of(rule),
            together: Together::of(rules, rule),
            parts,
        }
    }
}

/// Returns the parts that depend on no other rule.
fn parts(rule: &Rule) -> Value {
    let algorithm = &rule.limit.algorithm;
    let gate = match &rule.role {
        Role::Elastic(gate) => Some(gate),
        _ => None,
    };
    let (share, client) = (rule.least_served(), rule.ordinary_rate());
    let ordinary = rule.priority.is_some().then(|| rule.ordinary());
    let kept = client.map(Quota::permits).or(ordinary);
    let results = |set: &ResultSet| json!({ "status": set.statuses, "outcome": set.outcomes });
    json!({
        "name": &*rule.limit.name,
        "line": rule.line,
        "mode": rule.mode.as_ref(),
        "role": rule.role.as_ref(),
        "while": gate.map(|it| json!({ "signal": it.signal().name(), "below": it.below() })),
        "limit": rule.text,
        "algorithm": algorithm.name(),
        "quota": rule.quota.get(),
        "window_ms": rule.window.map(Millis),
        "unit": rule.unit.as_ref().map(|it| json!({ "name": it.name(), "decimals": it.decimals() })),
        "key": rule.key_parts().map(ToString::to_string).collect::<Vec<_>>(),
        "match": fields(&rule.matcher),
        "cost": cost(&rule.cost),
        "status": rule.refusal.status,
        "scope": (rule.limit.scope == LimitScope::Node).then_some("node"),
        "day_attribute": rule.variants.day_attribute(),
        "percent": rule.percent.map(KeyShare::percent),
        "on_limit": rule.on_limit.as_ref().map(|route| format!("route:{route}")),
        "at_least": {
            "served": share.served(),
            "of": share.of(),
            "permits": kept.map(Permits::get),
            "span_ms": client.map(|quota| Millis(quota.per())),
        },
        "active": rule.active.as_deref().map(|it| json!({
            "times": it.to_string(),
            "timezone": it.timezone(),
        })),
        "alert": rule.alert.map(|alert| json!({
            "above_percent": alert.above_percent,
            "above": alert.level(rule.quota).get(),
            "for_ms": Millis(alert.hold),
        })),
        "ban": algorithm.bans().map(|terms| json!({
            "after": terms.strikes.permits().get(),
            "within_ms": Millis(terms.strikes.per()),
            "for_ms": Millis(terms.first),
            "grow": f64::from(terms.growth_thousandths) / 1_000.0,
            "max_ms": Millis(terms.longest),
        })),
        "results": rule.correction.as_deref().map(|it| json!({
            "count": it.count.as_ref().map(results),
            "reset_on": it.reset_on.as_ref().map(results),
            "cost_is_estimate": it.is_estimate,
            "settle": it.settle.as_ref().map(ToString::to_string),
            "report_within_ms": Millis(it.within),
        })),
        "priority": rule.priority.as_deref().map(|it| json!({
            "last_percent": it.last_percent,
            "last": it.headroom(algorithm.capacity()).get(),
            "match": fields(&it.matcher),
        })),
    })
}

/// Returns a number, the name of a value, or the prices, the highest first.
fn cost(cost: &Cost) -> Value {
    match cost {
        Cost::Request => Value::Null,
        Cost::Fixed(permits) => json!(permits.get()),
        Cost::Attribute(name, _) => json!(format!("attr:{name}")),
        Cost::Body(field, _) => json!(field.to_string()),
        Cost::Priced(prices) => {
            let each = prices.higher.iter();
            let each = each.map(|it| json!({ "is": it.is.get(), "match": fields(&it.matcher) }));
            let usual = json!({ "is": prices.usual.get(), "match": [] });
            each.chain([usual]).collect()
        }
    }
}

impl Rules {
    /// Returns the [`Description`] of each rule as JSON, made by the first call.
    pub fn descriptions(&self) -> &[Value] {
        self.descriptions.get_or_init(|| {
            let each = (0..).zip(self).map(|(index, rule)| Description {
                part_of: self.owner(index).map(|owner| owner.limit.name.to_string()),
                ..Description::of(self, rule)
            });
            each.map(|description| json!(description)).collect()
        })
    }
}

fn fields(matcher: &Matcher) -> Value {
    let fields = matcher.fields.iter().map(|(field, patterns)| {
        let values: Vec<_> = patterns.iter().map(ToString::to_string).collect();
        json!({ "field": field.to_string(), "values": values })
    });
    fields.collect()
}

/// A span that is written in milliseconds, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Nanos);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.as_millis_ceil())
    }
}

/// Serializes the span of a bound, rounded down: a shorter span admits no more.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn rounded_down<S: Serializer>(span: &Millis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.0.as_nanos() / 1_000_000)
}

/// Maximum that one key is ever admitted.
#[derive(Clone, Debug, Serialize)]
pub struct WorstCase {
    /// Permits in any span, including those that wait; `None` for a limit of concurrency.
    pub permits: Option<u64>,
    /// The span: that of the limit, or 31 days for months and years.
    #[serde(serialize_with = "rounded_down")]
    pub span_ms: Millis,
    /// Permits in one instant, except those that wait.
    pub at_once: u64,
    /// Maximum number that may wait at once.
    pub waiting: u64,
    /// Maximum time for which one waits.
    pub longest_wait_ms: Millis,
    /// Time after which the permits of a crashed holder return; `None` without holders.
    pub lease_ms: Option<Millis>,
    /// Kinds of permits that come back, and add to the others.
    pub returned: Vec<Returned>,
}

/// A kind of permits that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Returned {
    /// Permits that a report gives back, each once in a span.
    OfEarlierCharges,
    /// All permits charged before a reset, or a change of numbers.
    OnceAfterAReset,
    /// As many as Envoy gives back.
    ByNegativeHits,
}

impl WorstCase {
    /// Returns the worst case of a rule.
    pub fn of(rule: &Rule) -> Self {
        Self::in_any(span(rule), rule)
    }

    /// Returns the maximum in any `span`, which may be longer than that of the rule.
    fn in_any(span: Nanos, rule: &Rule) -> Self {
        let algorithm = &rule.limit.algorithm;
        // A report may owe more than the limit holds, but no request is admitted meanwhile.
        let estimated = rule.correction.as_deref().is_some_and(|it| it.is_estimate);
        let plain = estimated.then(|| algorithm.clone().with_patience(Nanos::ZERO));
        let bounded = plain.as_ref().unwrap_or(algorithm);
        let (places, longest_wait) = bounded.queue().unwrap_or_default();
        let lease = algorithm.concurrency().map(|limit| Millis(limit.lease()));
        let corrected = rule.correction.is_some().then_some(match algorithm {
            AnyAlgorithm::Gcra(_) | AnyAlgorithm::Interval(_) | AnyAlgorithm::Hybrid(_) => {
                Returned::OfEarlierCharges
            }
            _ => Returned::OnceAfterAReset,
        });
        // Envoy gives permits back without naming their charge.
        let takes_back = algorithm.supports(Call::Refund).is_ok() && lease.is_none();
        let by_envoy =
            (rule.is_for_descriptors() && takes_back).then_some(Returned::ByNegativeHits);
        Self {
            permits: lease.is_none().then(|| bounded.bound(span)),
            span_ms: Millis(span),
            at_once: bounded.bound(Nanos::from_nanos(1)) - places.get(), // they are part of it
            waiting: places.get(),
            longest_wait_ms: Millis(longest_wait),
            lease_ms: lease,
            returned: corrected.into_iter().chain(by_envoy).collect(),
        }
    }
}

fn span(rule: &Rule) -> Nanos {
    let span = rule.keeps_to.map(Quota::per).or(rule.window);
    span.unwrap_or(Nanos::from_secs(31 * 86_400))
}

/// Maximum that a limit and its alternatives admit together: each is spent, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Together {
    /// Sum of the parts.
    pub within: u64,
    /// The longest of the spans of its limits, except balances.
    #[serde(serialize_with = "rounded_down")]
    pub span_ms: Millis,
    /// Permits that each limit admits in the span.
    pub parts: Vec<(String, u64)>,
}

impl Together {
    fn of(rules: &[Rule], rule: &Rule) -> Option<Self> {
        let asked = rule.otherwise.iter();
        let asked = asked.filter_map(|index| rules.get(*index as usize));
        let asked = asked.filter(|other| other.mode != RuleMode::Off);
        let asked: Vec<_> = std::iter::once(rule).chain(asked).collect();
        let refilled = asked.iter().filter(|rule| !rule.is_balance());
        let span = refilled.map(|rule| span(rule)).max()?;
        let most = |rule: &&Rule| {
            let most = WorstCase::in_any(span, rule).permits.unwrap_or(u64::MAX);
            (rule.limit.name.to_string(), most)
        };
        let parts: Vec<_> = asked.iter().map(most).collect();
        let add = |sum: u64, (_, most): &(_, u64)| sum.saturating_add(*most);
        (parts.len() > 1).then(|| Self {
            within: parts.iter().fold(0, add),
            span_ms: Millis(span),
            parts,
        })
    }
}
