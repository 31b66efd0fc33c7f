//! Shared store: metrics of a store that other processes use too.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use ratekeeper_store::{BreakerState, CallTimes, FallbackCounts, Health, ServerHealth};

use super::family::{counter, gauge, put, put_durations, put_gauge};

/// The label of the metrics of the shared store.
const STORE: (&str, &str) = ("store", "redis");
/// Maximum number of servers with a series of their own: those in trouble go first.
const MAX_SERVERS: usize = 128;

/// The state of a shared store.
#[derive(Debug)]
pub(crate) struct SharedStore {
    pub(crate) health: Health,
    pub(crate) times: CallTimes,
    pub(crate) servers: Vec<ServerHealth>,
    /// How far its clock is ahead, if that is known.
    pub(crate) clock_offset_nanos: Option<i64>,
}

impl SharedStore {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let health = &self.health;
        self.times(encoder)?;
        self.servers(encoder)?;
        let mut family = counter(encoder, "store_requests", "Calls to the shared store")?;
        for (result, count) in [("ok", health.answered), ("error", health.failed)] {
            put(&mut family, &[STORE, ("result", result)], count)?;
        }
        let help = "Breaker of the shared store: 0 closed, 1 probing, 2 open";
        let mut family = gauge(encoder, "store_breaker_state", help)?;
        let state = match health.state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open { .. } => 2,
        };
        put_gauge(&mut family, &[STORE], state)?;
        let help = "1 while limits follow their on_store_error, otherwise 0";
        let mut family = gauge(encoder, "fallback_active", help)?;
        put_gauge(&mut family, &[STORE], u64::from(state > 0))?;
        let help =
            "Requests decided without the shared store, by the gravest choice of their limits";
        let mut family = counter(encoder, "fallback_decisions", help)?;
        let FallbackCounts { local, allow, deny } = health.fallback;
        for (choice, count) in [("local", local), ("allow", allow), ("deny", deny)] {
            put(&mut family, &[STORE, ("choice", choice)], count)?;
        }
        let help = "Units admitted without the shared store and charged to it afterwards";
        let mut family = counter(encoder, "fallback_debited_units", help)?;
        put(&mut family, &[STORE], health.debited)
    }

    fn servers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 if calls are sent to a server of the shared store, 0 if they are paused";
        let mut family = gauge(encoder, "store_server_up", help)?;
        let (well, troubled): (Vec<_>, Vec<_>) = self
            .servers
            .iter()
            .partition(|server| server.trouble.is_none());
        for server in troubled.into_iter().chain(well).take(MAX_SERVERS) {
            let labels = [STORE, ("server", server.address.as_str())];
            put_gauge(&mut family, &labels, u64::from(server.trouble.is_none()))?;
        }
        Ok(())
    }

    fn times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Duration of calls to the shared store";
        let kind = MetricType::Histogram;
        let mut family = encoder.encode_descriptor("store_duration_seconds", help, None, kind)?;
        let CallTimes { ok, error, timeout } = self.times.clone();
        for (outcome, time) in [("ok", ok), ("error", error), ("timeout", timeout)] {
            put_durations(&mut family, &[STORE, ("outcome", outcome)], &time.into())?;
        }
        if let Some(nanos) = self.clock_offset_nanos {
            let help = "Seconds by which the shared store's clock is ahead of this process's";
            let mut family = gauge(encoder, "store_clock_offset_seconds", help)?;
            let offset = ConstGauge::new(signed_seconds(nanos));
            offset.encode(family.encode_family(&[STORE])?)?;
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are doubles; 2^53 ns are 104 days"
)]
fn signed_seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}
