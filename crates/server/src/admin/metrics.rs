//! Metrics: `GET /metrics`, read from the service at the moment of the scrape.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::Full;
use ratekeeper_core::{LimitId, Time};
use ratekeeper_policy::{Rule, WallTime};
use ratekeeper_store::Loans;

use crate::context::ServiceContext;
use crate::doors::{put_field, text};
use crate::observe::alerts::webhook::WebhookQueue;
use crate::observe::key_usage::{usage_of, with_variants};
use crate::observe::metrics::{
    Coding, DeniedKeys, Format, Levels, LimitLevels, LimitSources, MetricValues, SharedStore,
    double,
};
use crate::observe::standing_bans::counts_by_hand;
use crate::serve::listener::Reply;

/// `GET /metrics`, in the format and the coding that the request accepts.
pub(super) async fn metrics(shared: &Arc<ServiceContext>, headers: &HeaderMap) -> Response<Reply> {
    let format = Format::accepted(headers);
    let coding = Coding::accepted(headers);
    let written = shared.apart(move |shared| coding.written(format.written(&read(shared))));
    match written.await {
        Some(body) => response(format, coding, body),
        None => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "writing the metrics failed\n",
        ),
    }
}

fn response(format: Format, coding: Coding, body: Bytes) -> Response<Reply> {
    let mut response = Response::new(Full::new(body));
    put_field(&mut response, header::CONTENT_TYPE, format.content_type());
    if let Some(coding) = coding.header() {
        put_field(&mut response, header::CONTENT_ENCODING, coding);
    }
    response
}

/// Reads all metrics of the service.
pub(crate) fn read(shared: &ServiceContext) -> Vec<MetricValues> {
    let (any, now) = (shared.keeper.store(), shared.now());
    let (policy, origin) = (shared.keeper.policy(), shared.origin());
    let (wall, unix_millis) = (WallTime::new(origin, now), shared.unix_millis(now));
    let rules: HashMap<LimitId, &Rule> = policy
        .rules
        .iter()
        .map(|rule| (rule.limit.id, rule))
        .collect();
    let alerts = shared.observers.alerts.counts();
    let alerts: HashMap<_, _> = alerts
        .into_iter()
        .map(|counts| (Arc::clone(&counts.limit), counts))
        .collect();
    let usage = with_variants(&policy, any.local().usage());
    let (lengths, reservations) = (shared.hold.lengths(), shared.keeper.reservations());
    let levels = |id| {
        let Some(rule) = rules.get(&id) else {
            return LimitLevels::default(); // the policy has just lost it
        };
        // The loans of a shared store are not known here.
        let lends = any.shared().is_none() && rule.limit.algorithm.concurrency().is_some();
        let bans = rule.limit.algorithm.bans().is_some();
        LimitLevels {
            quota: rule.quota.get(),
            usage: usage_of(&usage, id),
            loans: lends.then(|| {
                let each = rule.limits().map(|limit| any.local().loans(limit, now));
                each.fold(Loans::default(), |all, one| Loans {
                    in_use: all.in_use + one.in_use,
                    lapsed: all.lapsed + one.lapsed,
                })
            }),
            alerts: alerts.get(&rule.limit.name).cloned(),
            bans: bans.then(|| shared.observers.bans.count(id)),
            by_hand: counts_by_hand(&policy, rule, unix_millis),
            is_active: rule.active.is_some().then(|| rule.is_active(wall)),
            queue_length: lengths.get(&id).copied(),
            reservations: reservations.counts(id, now),
        }
    };
    let sources = LimitSources {
        max_limits: policy.settings.metrics.max_limits as usize,
        is_shared: any.shared().is_some(),
        levels: &levels,
        denied: &|id| denied(shared, id, now),
    };
    let of_shared = any.shared().map(|store| SharedStore {
        health: store.health(),
        times: store.main().call_times_by_act().into(),
        servers: store.main().server_health(),
        clock_offset_nanos: *shared.observers.metrics.clock_offset.lock(),
    });
    let levels = Levels {
        usage: usage.clone(),
        held: shared.hold.standing(),
        shared: of_shared,
        state: shared.state.as_ref().map(|folder| *folder.levels.lock()),
        webhook: shared
            .observers
            .alerts
            .webhook
            .as_ref()
            .map(WebhookQueue::counts),
    };
    shared.observers.metrics.list(&levels, &sources)
}

/// Returns the number of keys that a limit denied a moment ago, and the share of the first.
fn denied(shared: &ServiceContext, limit: LimitId, now: Time) -> DeniedKeys {
    let top_keys = &shared.observers.watchers.top_keys;
    let found = top_keys.most_denied(limit, now);
    if found.denied == 0 {
        return DeniedKeys::default();
    }
    DeniedKeys {
        keys: found.distinct_denied,
        busiest: double(found.most_denied.min(found.denied)) / double(found.denied),
    }
}
