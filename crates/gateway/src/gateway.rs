//! Gateway: forwards requests to one upstream, within its limits, and counts them.

mod exchange;

use std::mem::swap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Request, Response};
use ratekeeper_core::{Nanos, Time};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Bounds, Budget, BudgetSettings, End, SplitMix,
};
use tokio::time::Instant;

use crate::address::Address;
use crate::attempt::UpstreamRequest;
use crate::connection::UpstreamAddress;
use crate::counts::{AddressTotals, CountedAddress, FailureWatch, UpstreamCounts, UpstreamTotals};
use crate::download::DownloadBody;
use crate::error::{ForwardError, UpstreamFailure};
use crate::forwarded::GatewayClient;
use crate::health::{AddressHealth, HealthCheck};
use crate::hop::Hop;
use crate::noted::InterimReceiver;
use crate::outgoing::prepare;
use crate::progress::RequestProgress;
use crate::recent::{Ended, RecentResponses};
use crate::tunnel::Tunnel;
use crate::upload::{ClientBody, OnBreak, Upload, UploadBody};

/// Maximum number of addresses of an upstream.
pub const MAX_ADDRESSES: usize = 32;
/// Retries for each hundred requests.
const RETRY_PERCENT: u32 = 20;

/// How requests are forwarded.
#[derive(Clone, derive_more::Debug)]
pub struct GatewaySettings {
    /// The addresses, at most [`MAX_ADDRESSES`].
    pub addresses: Vec<UpstreamAddress>,
    /// Maximum number of requests to each address at a time, including tunnels, and therefore of
    /// connections, until [`Gateway::take_place`] sets another.
    pub max_connections: usize,
    /// Maximum wait for room among the connections, and then for a connection to open.
    pub connect: Duration,
    /// Maximum time from the end of a request, or the last part of its body that was sent, to the
    /// head of the response.
    pub response: Duration,
    /// Maximum time between two parts of the body of a response.
    pub body: Duration,
    /// Maximum number of bytes of the body of a request.
    pub max_body: u64,
    /// Maximum time without a byte after an upgrade.
    pub upgrade: Duration,
    /// The protocols that a connection may switch to, as `Upgrade` names them. HTTP/2 (`h2c`)
    /// must not be among them: its requests would pass without being seen.
    pub upgrades: Vec<HeaderValue>,
    /// Bounds of the number of requests that wait for a response at a time, which follows the
    /// times of responses; `None` for no such number.
    pub concurrency: Option<Bounds>,
    /// How addresses are checked; `None` for no checks.
    pub health: Option<HealthCheck>,
    /// Receives the attempts that fail.
    #[debug(skip)]
    pub watch: FailureWatch,
}

/// Forwards requests to one upstream. Shared by all connections of clients.
#[derive(Debug)]
pub struct Gateway {
    settings: GatewaySettings,
    addresses: Vec<Arc<Address>>,
    turn: AtomicUsize,
    retries: Budget,
    concurrency: Option<Arc<AdaptiveConcurrency>>,
    recent: Arc<RecentResponses>,
    counts: Arc<UpstreamCounts>,
    start: Instant,
}

/// The response to a request.
#[derive(Debug)]
pub enum Forwarded {
    /// The response, whose body is streamed.
    Response(Response<DownloadBody>),
    /// The head of a response that switches to another protocol, and the upstream's side of it.
    Upgraded(Response<()>, Box<Tunnel>),
}

/// A request that [`examine`](crate::examine) has accepted.
#[derive(derive_more::Debug)]
#[debug("ForwardRequest({id:?})")]
pub struct ForwardRequest {
    client: GatewayClient,
    /// Without its body until it is forwarded.
    request: UpstreamRequest,
    /// What its connection said, once it is forwarded.
    hop: Hop,
    /// The body on its way, likewise.
    upload: Option<Arc<Upload>>,
    id: HeaderValue,
    /// The body; `None` if it has none.
    pub body: Option<ClientBody>,
    /// Receives the interim responses of an upstream of HTTP/1.1, before [`Gateway::forward`]
    /// returns, or while its future is dropped.
    pub interim: Option<InterimReceiver>,
    /// How far it has come.
    pub progress: RequestProgress,
    /// True if its future is not dropped when the client leaves while the upstream is at work.
    pub is_kept: bool,
    /// Part of [`Gateway::concurrency`] that the request leaves to those with priority; 0 if it has
    /// priority.
    pub left_percent: u32,
}

impl ForwardRequest {
    /// Returns a request with this head, which it takes, and without a body. `id` is its name in
    /// `X-Request-Id`. Boxed, because it is large, and passed on.
    pub fn new(head: &mut Parts, client: GatewayClient, id: HeaderValue) -> Box<Self> {
        let mut asked = Box::new(Self {
            client,
            request: Request::default(),
            hop: Hop::default(),
            upload: None,
            id,
            body: None,
            interim: None,
            progress: RequestProgress::default(),
            is_kept: false,
            left_percent: 0,
        });
        swap(asked.request.method_mut(), &mut head.method);
        swap(asked.request.uri_mut(), &mut head.uri);
        swap(asked.request.headers_mut(), &mut head.headers);
        *asked.request.version_mut() = head.version;
        asked
    }
}

impl Gateway {
    /// Creates a gateway; there is no connection until a request needs one. It goes on with the
    /// counts, the limit of concurrency and the health of addresses of the one `before`, whose
    /// requests may still be in flight; [`take_place`](Self::take_place) sets the bounds of the
    /// limit. `None` if there is no address, or more than [`MAX_ADDRESSES`], or the bounds are not
    /// in order.
    pub fn new(settings: GatewaySettings, before: Option<&Self>) -> Option<Self> {
        if !(1..=MAX_ADDRESSES).contains(&settings.addresses.len()) {
            return None;
        }
        let most = settings.max_connections.max(1);
        let mut known = before.map_or_else(Vec::new, |before| before.addresses.clone());
        let address = |at: &UpstreamAddress| {
            let same = known.iter().position(|it| it.upstream.name == at.name);
            let same = same.map(|index| known.swap_remove(index));
            let counted = same.as_ref().map(|same| Arc::clone(&same.counted));
            let counted = counted.unwrap_or_else(|| CountedAddress::new(&at.name));
            let address = Address::new(at.clone(), most, counted);
            if settings.health.is_some() && same.is_some_and(|same| !same.is_up()) {
                address.fail_check();
            }
            address
        };
        let addresses: Vec<_> = settings.addresses.iter().map(address).collect();
        let counted = addresses.iter().map(|it| Arc::clone(&it.counted));
        let retries = Budget::new(BudgetSettings {
            ratio_percent: RETRY_PERCENT,
            ..BudgetSettings::default()
        });
        let adaptive = |bounds| {
            let settings = AdaptiveSettings {
                bounds,
                ..AdaptiveSettings::default()
            };
            AdaptiveConcurrency::new(settings, SplitMix::seeded()).map(Arc::new)
        };
        let concurrency = settings.concurrency.map(adaptive).transpose().ok()?;
        let kept = before.and_then(|before| before.concurrency.as_ref());
        let counts = before.map(|before| &*before.counts);
        Some(Self {
            counts: UpstreamCounts::new(counted.collect(), Arc::clone(&settings.watch), counts),
            concurrency: concurrency.map(|new| kept.map_or(new, Arc::clone)),
            addresses,
            settings,
            turn: AtomicUsize::new(0),
            retries: retries.ok()?,
            recent: before.map_or_else(
                || Arc::new(RecentResponses::new()),
                |before| Arc::clone(&before.recent),
            ),
            start: before.map_or_else(Instant::now, |before| before.start),
        })
    }

    /// Sets its bounds of concurrency, and the maximum number of connections to each address; called
    /// when its requests begin.
    pub fn take_place(&self, max_connections: usize) {
        for address in &self.addresses {
            address.room.resize(max_connections.max(1));
        }
        if let (Some(limit), Some(bounds)) = (&self.concurrency, self.settings.concurrency) {
            let _ = limit.set_bounds(bounds); // in order, or it would not be
        }
    }

    /// Returns the limit of requests that wait for a response, if there is one.
    pub const fn concurrency(&self) -> Option<&Arc<AdaptiveConcurrency>> {
        self.concurrency.as_ref()
    }

    /// Returns the maximum time that a request which was sent waits for the head of its response.
    pub const fn response_timeout(&self) -> Duration {
        self.settings.response
    }

    /// Returns how the upstream responded in the last 10 s.
    pub const fn recent(&self) -> &Arc<RecentResponses> {
        &self.recent
    }

    /// Returns the counts of the upstream since the start.
    pub fn totals(&self) -> UpstreamTotals {
        self.counts.totals()
    }

    /// Returns the number of requests, and tunnels, that have not ended.
    pub fn in_flight(&self) -> u64 {
        self.counts.in_flight()
    }

    /// Returns the state of each address.
    pub fn addresses(&self) -> Vec<AddressTotals> {
        let each = self.counts.failures().zip(&self.addresses);
        let totals = each.map(|((name, failures), address)| AddressTotals {
            name: name.to_owned(),
            failures,
            connections: address.connections(),
            is_out: address.is_left_out(),
        });
        totals.collect()
    }

    /// Returns the address that a request was sent to last, `HOST:PORT`.
    pub fn sent_to(&self, progress: &RequestProgress) -> Option<&str> {
        let address = self.addresses.get(progress.address()?)?;
        Some(&address.upstream.name)
    }

    /// Returns the addresses that are left out: a bit for each, the first the lowest.
    pub fn left_out(&self) -> u64 {
        let each = self.addresses.iter().enumerate();
        each.fold(0, |all, (index, it)| {
            all | u64::from(it.is_left_out()) << index
        })
    }

    /// Returns the addresses that are to be checked, each by a task of its own.
    pub fn checked(&self) -> impl Iterator<Item = AddressHealth> {
        let check = self.settings.health.as_ref();
        let addresses = check.map(|_| self.addresses.iter());
        addresses.into_iter().flatten().filter_map(move |address| {
            Some(AddressHealth::new(Arc::clone(address), check?.clone()))
        })
    }

    /// Forwards a request, and returns the head of the response. Dropping the future gives the
    /// request up.
    ///
    /// # Errors
    /// When no upstream responds or may be asked, or when the client does not send the body of the
    /// request.
    pub async fn forward(&self, mut asked: Box<ForwardRequest>) -> Result<Forwarded, ForwardError> {
        let start = Instant::now();
        let mut passage = self.counts.begin(asked.id.clone());
        let permit = self.concurrency.as_ref().map(|limit| {
            let permit = limit.try_acquire_leaving(asked.left_percent, self.time_of(start));
            permit.ok_or(match asked.left_percent {
                0 => UpstreamFailure::Busy,
                _ => UpstreamFailure::LowPriority,
            })
        });
        let permit = permit.transpose().inspect_err(|shed| {
            self.recent.refuse();
            passage.break_off(*shed);
        })?;
        let (id, upgrades) = (asked.id.clone(), &self.settings.upgrades);
        let ForwardRequest {
            client, request, ..
        } = &mut *asked;
        asked.hop = prepare(request, client, id, upgrades);
        let on_break = if asked.is_kept {
            OnBreak::Wait(self.settings.response)
        } else {
            OnBreak::End
        };
        let (max, counts) = (self.settings.max_body, &self.counts);
        let (body, field) = (asked.body.take(), asked.client.address_field.take());
        (*asked.request.body_mut(), asked.upload) =
            UploadBody::new(body, field, on_break, max, counts);
        let waiting = self.recent.wait(asked.upload.as_deref(), start);
        let mut leased = None;
        let exchange = self.exchange(&mut asked, start, &mut passage, &mut leased);
        let result = exchange.await;
        let end = Instant::now();
        let sent = asked.upload.as_ref().map(|upload| upload.sent());
        // The time of a request whose body is not sent yet is that of its client.
        let since = sent.unwrap_or(Some(start));
        let took = since.map(|since| Nanos::from(end.saturating_duration_since(since)));
        let result = match result {
            Ok(response) => self.finish(response, &asked.hop, leased, passage, took),
            Err(error) => {
                passage.fail(&error);
                Err(error)
            }
        };
        if let (Some(waiting), Some(ended)) = (waiting, Ended::of(&result, took)) {
            waiting.end(sent.flatten(), ended, end);
        }
        if let Some(mut permit) = permit {
            if let Some(Some(sent)) = sent {
                permit.begin(self.time_of(sent));
            }
            permit.end(signal(&result, took), self.time_of(end));
        }
        result
    }

    fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, moment: Instant) -> Time {
        Time::ZERO + Nanos::from(moment.saturating_duration_since(self.start))
    }
}

/// Returns the signal that the end of a request is for the adaptive limit of the upstream; `took`
/// is `None` while the body is being sent.
fn signal(result: &Result<Forwarded, ForwardError>, took: Option<Nanos>) -> End {
    let end = match result {
        Ok(Forwarded::Response(response)) => End::of_http(response.status().as_u16()),
        Ok(Forwarded::Upgraded(..)) => End::Done,
        Err(ForwardError::Upstream(failure)) if failure.is_timeout() => End::Dropped,
        Err(_) => End::Ignored,
    };
    if end == End::Done && took.is_none() {
        return End::Ignored;
    }
    end
}
