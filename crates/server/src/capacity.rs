//! Capacity: how many connections a service takes, and how long it waits for them.
//!
//! ```text
//!   descriptors of the process    | callers: http, proxy and grpc | upstreams | reserve |
//!                                                                    admin, files, store
//! ```
//!
//! Descriptors are reserved, so that callers can never take those that an operator needs to
//! inspect the service.

use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_policy::Settings;

use crate::Door;
use crate::serve::listener::Spans;
use crate::serve::pulse::{MaxTicks, TICK};

/// Default maximum number of connections of the doors http, proxy and grpc together.
const DEFAULT_CONNECTIONS: u32 = 10_000;
/// Maximum number of connections at the admin door.
const ADMIN_CONNECTIONS: u32 = 100;
/// Descriptors reserved for the admin door, files and the shared store; half of a small limit.
const RESERVE: u64 = 384;
/// How long a connection may be without a request: at the doors http and admin, and at grpc.
const HTTP_IDLE: Nanos = Nanos::from_secs(75);
const GRPC_IDLE: Nanos = Nanos::from_secs(300);
/// How long the head of a request may take: within 2 whole ticks.
const HEAD: Nanos = Nanos::from_secs(10);
/// How long the doors stay open after the stop.
const DRAIN: Nanos = Nanos::from_millis(500);
/// How long requests in flight may take after that.
const GRACE: Nanos = Nanos::from_secs(10);
/// With the proxy door, whose requests take as long as the application.
const PROXY_GRACE: Nanos = Nanos::from_secs(30);

/// The limits of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Connections of the doors http, proxy and grpc together.
    pub(crate) callers: u32,
    /// Connections to each address of the upstream.
    pub(crate) to_each: usize,
    pub(crate) admin: u32,
    asked: u32,
    descriptors: u64,
    head: Nanos,
    idle: Option<Nanos>,
    pub(crate) drain: Duration,
    pub(crate) grace: Duration,
}

impl Capacity {
    /// Returns the capacity that `settings` ask for, within the descriptors of this process.
    /// A request that is forwarded takes two descriptors, so that the `upstreams`, if there are
    /// any, have half of them.
    pub(crate) fn of(settings: &Settings, upstreams: usize) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self::within(settings, limit.current.unwrap_or(u64::MAX), upstreams)
    }

    fn within(settings: &Settings, descriptors: u64, upstreams: usize) -> Self {
        let listen = &settings.listen;
        let asked = listen.max_connections.unwrap_or(DEFAULT_CONNECTIONS);
        let reserve = RESERVE.min(descriptors / 2);
        let left = u32::try_from(descriptors - reserve).unwrap_or(u32::MAX);
        let left = if upstreams > 0 { left / 2 } else { left };
        let grace = match listen.proxy {
            Some(_) => PROXY_GRACE,
            None => GRACE,
        };
        let most = asked.max(DEFAULT_CONNECTIONS).min(left) as usize;
        let admin = u32::try_from(reserve / 4).unwrap_or(u32::MAX);
        Self {
            callers: asked.min(left).max(1),
            to_each: (most / upstreams.max(1)).max(1),
            admin: admin.clamp(1, ADMIN_CONNECTIONS),
            asked,
            descriptors,
            head: listen.head_timeout.unwrap_or(HEAD),
            idle: listen.idle_timeout,
            drain: listen.drain.unwrap_or(DRAIN).into(),
            grace: listen.grace.unwrap_or(grace).into(),
        }
    }

    /// Returns a notice if descriptors allow less than was asked for.
    pub(crate) fn notice(&self) -> Option<String> {
        let Self {
            callers,
            asked,
            descriptors,
            ..
        } = self;
        (callers < asked).then(|| {
            format!(
                "{callers} connections are served at once, not {asked}: the process may open \
                 {descriptors} files (ulimit -n)"
            )
        })
    }

    /// Returns how long a door waits.
    pub(crate) fn spans(&self, door: Door) -> Spans {
        let idle = self.idle.unwrap_or(match door {
            Door::Http | Door::Admin | Door::Proxy => HTTP_IDLE,
            Door::Grpc => GRPC_IDLE,
        });
        // Rounded up, so that no connection is closed early.
        let ticks = |span: Nanos| {
            let ticks = span.as_nanos().div_ceil(Nanos::from(TICK).as_nanos());
            u32::try_from(ticks).unwrap_or(u32::MAX)
        };
        Spans {
            ticks: MaxTicks {
                head: ticks(self.head),
                idle: ticks(idle),
            },
            linger: self.drain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_policy::ProxySettings;

    #[test]
    fn descriptors_bound_connections_and_some_are_reserved() {
        let of = |asked: Option<u32>, descriptors| {
            let mut settings = Settings::default();
            settings.listen.max_connections = asked;
            let capacity = Capacity::within(&settings, descriptors, 0);
            (
                capacity.callers,
                capacity.admin,
                capacity.notice().is_some(),
            )
        };
        assert_eq!(of(None, u64::MAX), (10_000, 96, false));
        assert_eq!(of(None, 20_000), (10_000, 96, false));
        assert_eq!(of(None, 1_024), (640, 96, true));
        assert_eq!(of(Some(500), 1_024), (500, 96, false));
        assert_eq!(of(None, 64), (32, 8, true));
        assert_eq!(of(Some(100_000), 1 << 20), (100_000, 96, false));
    }

    #[test]
    fn upstreams_have_half_of_the_descriptors() {
        let capacity = Capacity::within(&Settings::default(), 1_024, 2);
        assert_eq!((capacity.callers, capacity.to_each), (320, 160));
    }

    #[test]
    fn idle_timeouts_follow_the_settings() {
        let mut settings = Settings::default();
        let spans = |settings: &Settings, door| Capacity::within(settings, 1_024, 0).spans(door);
        let ticks = |settings: &Settings, door| spans(settings, door).ticks.idle;
        assert_eq!(ticks(&settings, Door::Http), 15);
        assert_eq!(ticks(&settings, Door::Grpc), 60);
        settings.listen.idle_timeout = Some(Nanos::from_secs(11));
        assert_eq!(
            ticks(&settings, Door::Http),
            3,
            "rounded up, so no connection is closed early"
        );
        assert_eq!(ticks(&settings, Door::Grpc), 3);
        assert_eq!(spans(&settings, Door::Proxy).ticks.head, 2);
        settings.listen.head_timeout = Some(Nanos::from_secs(16));
        assert_eq!(spans(&settings, Door::Proxy).ticks.head, 4);
    }

    #[test]
    fn requests_that_are_forwarded_have_longer_to_end() {
        let mut settings = Settings::default();
        let grace = |settings: &Settings| Capacity::within(settings, 1_024, 0).grace.as_secs();
        assert_eq!(grace(&settings), 10);
        settings.listen.proxy = Some(ProxySettings::default());
        assert_eq!(grace(&settings), 30);
        settings.listen.grace = Some(Nanos::from_secs(5));
        assert_eq!(grace(&settings), 5);
    }
}
