//! Envoy: turns a call of Envoy into facts, and the decisions of the limits into its answer.
//!
//! ```text
//!   descriptor --> facts, act --\                      /--> status: its tightest limit
//!   descriptor --> facts, act ----> Keeper::call --> answers --> status
//!   descriptor --> facts, act --/   (all or none)      \--> headers, body, metadata
//! ```
//!
//! A domain that the configuration files of the Go service describe is decided by `configured`
//! instead; so is every domain if the policy has no limits of its own.
//!
//! Every descriptor has a status: where one has none, Envoy sends no headers at all. Spans
//! are whole seconds, rounded up, because Envoy cuts fractions off, and a client that reads 0
//! would try again at once.

mod answer;
mod configured;
mod fields;
pub(crate) mod json;

use bytes::Bytes;
use ratekeeper::{Act, Asked};
use ratekeeper_core::{Nanos, Permits};
use ratekeeper_policy::envoy::Unit;
use ratekeeper_policy::{Descriptor, Facts, Numbers};
use ratekeeper_wire::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, read_request};
use smallvec::SmallVec;

use super::{store_down, unread, wrong};
use crate::context::ServiceContext;
use crate::doors::permits::new_nonce;
use crate::observe::denial_log::LoggedRequest;
use crate::observe::metrics::Protocol;
use crate::serve::grpc::GrpcStatus;

/// `ShouldRateLimit`; the caller counts failures.
pub(super) async fn should_rate_limit(
    shared: &ServiceContext,
    message: Bytes,
) -> Result<RateLimitResponse, GrpcStatus> {
    let request = read_request(&message).map_err(|refusal| unread(&refusal))?;
    decide(shared, &request).await
}

/// Decides a call, however it came.
async fn decide(
    shared: &ServiceContext,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, GrpcStatus> {
    if request.domain.is_empty() {
        return Err(wrong("rate limit domain must not be empty"));
    }
    if request.descriptors.is_empty() {
        return Err(wrong("rate limit descriptor list must not be empty"));
    }
    if let Some(config) = shared.keeper.envoy()
        && (config.has_domain(&request.domain) || shared.keeper.policy().rules.is_empty())
    {
        return configured::decide(shared, &config, request).await;
    }
    let entries = request.descriptors.iter().flat_map(|one| &one.entries);
    let entries = entries.map(|entry| (&*entry.key, &*entry.value));
    let entries: SmallVec<[(&str, &str); 8]> = entries.collect();
    let mut rest = &entries[..];
    let mut asked: SmallVec<[Asked<'_>; 4]> = SmallVec::new();
    for wire in &request.descriptors {
        let (own, others) = rest.split_at(wire.entries.len());
        rest = others;
        let descriptor = Descriptor {
            domain: &request.domain,
            entries: own,
            instead: wire.limit.as_ref().map(numbers).transpose()?,
        };
        asked.push(ask(request, wire, descriptor));
    }
    let answers = shared.keeper.call_for_report(&asked, new_nonce).await;
    let answers = answers.map_err(store_down(shared))?;
    // A call has descriptors, and no request line.
    shared.record(Protocol::Rls, LoggedRequest::default(), answers.whole());
    Ok(answer::response(&answers))
}

/// Returns the facts and the charge that one descriptor asks for.
fn ask<'a>(
    request: &RateLimitRequest,
    wire: &RateLimitDescriptor,
    descriptor: Descriptor<'a>,
) -> Asked<'a> {
    let cost = match wire.hits_addend {
        Some(own) => Permits::new(own),
        None => Permits::new(request.hits_addend.max(1).into()), // absent and 0 are one on the wire
    };
    Asked {
        facts: Facts {
            cost: Some(cost),
            descriptor: Some(descriptor),
            ..Facts::default()
        },
        act: if wire.is_negative_hits {
            Act::GiveBack
        } else {
            Act::Charge
        },
    }
}

/// Returns the numbers that a call brings along.
fn numbers(limit: &RateLimitOverride) -> Result<Numbers, GrpcStatus> {
    let multiplier = limit.unit_multiplier.map_or(1, |units| units.max(1));
    let per = Nanos::from_secs(u64::from(multiplier) * unit_of(limit)?.seconds());
    Numbers::new(Permits::new(limit.requests_per_unit.into()), per)
        .map_err(|error| wrong(format!("the `limit` of a descriptor: {error}")))
}

fn unit_of(limit: &RateLimitOverride) -> Result<Unit, GrpcStatus> {
    let missing = "the `limit` of a descriptor has no unit or an unknown one";
    let unit = limit.unit().as_str_name().parse();
    unit.map_err(|_| wrong(missing))
}
