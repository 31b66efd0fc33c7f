//! Configured: a call under the configuration files of the Go service, with its meanings.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use ratekeeper::{Clock, RateLimitError, problem};
use ratekeeper_core::Outage;
use ratekeeper_policy::envoy::{
    CurrentLimit, DescriptorAnswer, Direction, EnvoyAnswer, EnvoyCall, EnvoyCode, EnvoyConfig,
    EnvoyDescriptor, Override,
};
use ratekeeper_policy::{EnvoyBody, Refusal};
use ratekeeper_wire::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit};
use serde_json::{Map, Value as Json, json};

use super::answer::code;
use super::{fields, unit_of};
use crate::context::ServiceContext;
use crate::doors::grpc::{store_down, wrong};
use crate::serve::grpc;

/// Maximum depth of values in a rule's metadata; deeper values are left out.
const MAX_DEPTH: usize = 32;

/// Decides a call under `config`.
pub(super) async fn decide(
    shared: &ServiceContext,
    config: &Arc<EnvoyConfig>,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, grpc::GrpcStatus> {
    let descriptors: Result<_, _> = request.descriptors.iter().map(descriptor).collect();
    let call = EnvoyCall {
        domain: &request.domain,
        descriptors: descriptors?,
        hits_addend: request.hits_addend,
    };
    let clock = shared.keeper.clock();
    let before = clock.now();
    let answer = shared.keeper.rate_limit(config, &call).await;
    let answer = answer.map_err(|error| match error {
        RateLimitError::Store(error) => store_down(shared)(error),
        error => wrong(error.to_string()),
    })?;
    let took = clock.now().since(before);
    let path = shared.decision_path();
    let metrics = &shared.observers.metrics;
    metrics.record_call(&call, &answer, config, path, took);
    Ok(response(shared, config, &answer, request))
}

fn response(
    shared: &ServiceContext,
    config: &EnvoyConfig,
    answer: &EnvoyAnswer<'_>,
    request: &RateLimitRequest,
) -> RateLimitResponse {
    let policy = shared.keeper.policy();
    let settings = &policy.settings.envoy;
    let over = answer.overall == EnvoyCode::OverLimit;
    let outage = answer.without_store.then_some(config.settings().outage);
    // Without the store, a share of each limit is counted here, as if all processes did the same.
    let store = shared.keeper.store().shared().filter(|_| outage.is_some());
    let nodes = store.map_or(1, |store| store.nodes().get());
    let statuses = answer.statuses.iter().map(|one| status(one, nodes));
    let mut statuses: Vec<_> = statuses.collect();
    let (texts, refusal) = (fields::texts_of(&statuses), Refusal::default());
    let reports = fields::reports_of(&statuses, &texts, &refusal, outage);
    let over_limits = reports
        .iter()
        .filter(|report| !report.decision.verdict.allows());
    let refused_by = over_limits.clone().next().filter(|_| over);
    let mut response = RateLimitResponse {
        overall_code: code(over).into(),
        ..RateLimitResponse::default()
    };
    fields::put_headers(&mut response, &reports, settings);
    if settings.body == EnvoyBody::Limit
        && let Some(refused_by) = refused_by
        && let Some(body) = problem::body(refused_by, over_limits.map(|it| it.name), refusal.status)
    {
        fields::put_body(&mut response, body);
    }
    let mut metadata = BTreeMap::new();
    if config.settings().dynamic_metadata {
        metadata = metadata_of(answer, request);
    }
    if settings.metadata {
        let shadow = shadow_denied(answer, &statuses);
        metadata.extend(fields::metadata(code(over), refused_by, shadow));
    }
    response.dynamic_metadata =
        Some(Struct { fields: metadata }).filter(|metadata| !metadata.fields.is_empty());
    for status in &mut statuses {
        let is_known = match outage {
            None => true,
            Some(Outage::Local) => status.code() == Code::Ok,
            Some(_) => false,
        };
        // Envoy makes fields of it, so it is left out if the remaining quota is not known.
        status.current_limit.take_if(|_| !is_known);
    }
    response.statuses = statuses;
    response
}

/// Returns the names of rules in shadow mode that would be over.
fn shadow_denied(
    answer: &EnvoyAnswer<'_>,
    statuses: &[DescriptorStatus],
) -> impl Iterator<Item = String> {
    let shadowed = |status: &DescriptorAnswer<'_>| {
        let alone = status.hits.as_ref();
        let alone = alone.is_some_and(|hits| hits.shadow_mode > 0);
        alone || (answer.shadowed && status.code == EnvoyCode::OverLimit)
    };
    let both = answer.statuses.iter().zip(statuses);
    let both = both.filter(move |(status, _)| shadowed(status));
    let limits = both.filter_map(|(_, metadata)| metadata.current_limit.as_ref());
    limits.map(|limit| fields::LimitTexts::of(limit).name)
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Result<EnvoyDescriptor<'_>, grpc::GrpcStatus> {
    let entries = descriptor.entries.iter();
    Ok(EnvoyDescriptor {
        entries: entries.map(|entry| (&*entry.key, &*entry.value)).collect(),
        limit: descriptor.limit.as_ref().map(overriding).transpose()?,
        hits_addend: descriptor.hits_addend,
        direction: if descriptor.is_negative_hits {
            Direction::GiveBack
        } else {
            Direction::Take
        },
    })
}

fn overriding(limit: &RateLimitOverride) -> Result<Override, grpc::GrpcStatus> {
    Ok(Override {
        requests_per_unit: limit.requests_per_unit,
        unit: unit_of(limit)?,
        multiplier: limit.unit_multiplier.unwrap_or(1),
    })
}

/// Returns the status of a descriptor whose limit is shared by `nodes` processes.
fn status(status: &DescriptorAnswer<'_>, nodes: u32) -> DescriptorStatus {
    let limit = status.current_limit.as_ref().map(limit);
    DescriptorStatus {
        code: code(status.code == EnvoyCode::OverLimit).into(),
        limit_remaining: status.limit_remaining / limit.as_ref().map_or(1, |_| nodes),
        current_limit: limit,
        duration_until_reset: status.reset_after_s.map(|seconds| Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }),
        quota: None,
    }
}

fn limit(limit: &CurrentLimit<'_>) -> RateLimit {
    RateLimit {
        name: limit.name.unwrap_or_default().to_owned(),
        requests_per_unit: limit.requests_per_unit,
        unit: fields::wire_unit(limit.unit).into(),
        unit_multiplier: Some(limit.multiplier).filter(|units| *units > 1),
    }
}

/// `{"domain": .., "descriptors": [{"entries": ["k=v"]}], "hitsAddend": .., "metadata": ..}`
fn metadata_of(answer: &EnvoyAnswer<'_>, request: &RateLimitRequest) -> BTreeMap<String, Value> {
    let descriptors = request.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| format!("{}={}", entry.key, entry.value));
        let mut fields = json!({ "entries": entries.collect::<Vec<_>>() });
        if let Some(limit) = &descriptor.limit {
            fields["limit"] = override_text(limit).into();
        }
        if let Some(hits) = descriptor.hits_addend {
            fields["hitsAddend"] = hits.into();
        }
        fields
    });
    let mut fields = Map::new();
    fields.insert("domain".into(), (*request.domain).into());
    fields.insert("descriptors".into(), descriptors.collect());
    if request.hits_addend > 0 {
        fields.insert("hitsAddend".into(), request.hits_addend.into());
    }
    if !answer.metadata.is_empty() {
        fields.insert("metadata".into(), answer.metadata.clone().into());
    }
    fields_of(&fields, MAX_DEPTH + 1)
}

fn fields_of(map: &Map<String, Json>, depth: usize) -> BTreeMap<String, Value> {
    let fields = map.iter().filter_map(|(key, value)| {
        let value = value_of(value, depth.checked_sub(1)?)?;
        Some((key.clone(), value))
    });
    fields.collect()
}

fn value_of(value: &Json, depth: usize) -> Option<Value> {
    Some(match value {
        Json::Null => Kind::NullValue(0).into(),
        Json::Bool(flag) => (*flag).into(),
        Json::Number(value) => value.as_f64()?.into(),
        Json::String(value) => value.as_str().into(),
        Json::Array(values) => {
            let depth = depth.checked_sub(1)?;
            let values = values.iter().filter_map(|value| value_of(value, depth));
            values.collect::<Vec<_>>().into()
        }
        Json::Object(map) => fields_of(map, depth).into(),
    })
}

/// Returns the text form of a protocol buffer, which is how the Go service shows an override:
/// `requests_per_unit:42 unit:HOUR`. Fields that hold their default are left out.
fn override_text(limit: &RateLimitOverride) -> String {
    let (count, unit) = (limit.requests_per_unit, limit.unit());
    let multiplier = limit.unit_multiplier;
    let fields = [
        (count > 0).then(|| format!("requests_per_unit:{count}")),
        (unit != RateLimitUnit::Unknown).then(|| format!("unit:{}", unit.as_str_name())),
        multiplier.map(|multiplier| format!("unit_multiplier:{{value:{multiplier}}}")),
    ];
    fields.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
