//! Gateway: sends a request to an address of the upstream, and to another if that is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use ratekeeper_core::{Nanos, Time};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Bounds, Budget, BudgetSettings, End, SplitMix,
};
use tokio::time::{Instant, timeout};

use crate::address::{Address, Lease, Origin};
use crate::attempt::{SendError, UpstreamRequest, is_idempotent, unprocessed};
use crate::connection::{Sender, UpstreamAddress, Wanted};
use crate::download::DownloadBody;
use crate::error::{ForwardError, UpstreamFailure};
use crate::forwarded::Client;
use crate::health::{AddressHealth, HealthCheck};
use crate::hop::Hop;
use crate::kept::KeptRequest;
use crate::noted::InterimReceiver;
use crate::outgoing::{Form, copy, fit, prepare, prepare_response};
use crate::recent::{Ended, RecentResponses};
use crate::tunnel::Tunnel;
use crate::upload::{OnBreak, Stage, Upload, UploadBody};

/// Maximum number of addresses of an upstream.
pub const MAX_ADDRESSES: usize = 32;
/// Retries for each hundred requests.
const RETRY_PERCENT: u32 = 20;

/// How requests are forwarded.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The addresses, at most [`MAX_ADDRESSES`].
    pub addresses: Vec<UpstreamAddress>,
    /// Maximum number of requests to each address at a time, including tunnels, and therefore of
    /// connections.
    pub max_connections: usize,
    /// Maximum wait for room among the connections, and then for a connection to open.
    pub connect: Duration,
    /// Maximum time from the end of a request, or the last part of its body that was sent, to the
    /// head of the response.
    pub response: Duration,
    /// Maximum time between two parts of the body of a response.
    pub body: Duration,
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
    start: Instant,
}

/// The response to a request.
#[derive(Debug)]
pub enum Forwarded {
    /// The response, whose body is streamed.
    Response(Response<DownloadBody>),
    /// The head of a response that switches to another protocol, and the upstream's side of it.
    Upgraded(Response<()>, Tunnel),
}

impl Gateway {
    /// Creates a gateway; there is no connection until a request needs one. `None` if there is no
    /// address, or more than [`MAX_ADDRESSES`], or the bounds are not in order.
    pub fn new(settings: GatewaySettings) -> Option<Self> {
        if !(1..=MAX_ADDRESSES).contains(&settings.addresses.len()) {
            return None;
        }
        let most = settings.max_connections.max(1);
        let addresses = settings.addresses.iter().cloned();
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
        let concurrency = settings.concurrency.map(adaptive).transpose();
        Some(Self {
            concurrency: concurrency.ok()?,
            addresses: addresses.map(|at| Address::new(at, most)).collect(),
            settings,
            turn: AtomicUsize::new(0),
            retries: retries.ok()?,
            recent: Arc::new(RecentResponses::new()),
            start: Instant::now(),
        })
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

    /// Returns the addresses that are to be checked, each by a task of its own.
    pub fn checked(&self) -> impl Iterator<Item = AddressHealth> {
        let check = self.settings.health.as_ref();
        let addresses = check.map(|_| self.addresses.iter());
        addresses.into_iter().flatten().filter_map(move |address| {
            Some(AddressHealth::new(Arc::clone(address), check?.clone()))
        })
    }

    /// Forwards a request that [`examine`](crate::examine) has accepted, and returns the head of
    /// the response. `id` names the request in `X-Request-Id`. Dropping the future gives the
    /// request up. `interim` receives the interim responses of an upstream of HTTP/1.1, before this
    /// returns, or while the future is dropped. `kept` is for a request whose future is not dropped
    /// when the client leaves.
    ///
    /// # Errors
    /// When no upstream responds or may be asked, or when the client does not send the body of the
    /// request.
    pub async fn forward(
        &self,
        client: Client,
        request: Request<impl Body<Data = Bytes, Error = hyper::Error> + Send + 'static>,
        id: HeaderValue,
        interim: Option<InterimReceiver>,
        kept: Option<KeptRequest>,
    ) -> Result<Forwarded, ForwardError> {
        let limit = self.concurrency.as_ref();
        let permit = limit.map(|limit| limit.try_acquire(self.now()).ok_or(UpstreamFailure::Busy));
        let permit = permit.transpose().inspect_err(|_| self.recent.refuse())?;
        let (mut parts, body) = request.into_parts();
        let hop = prepare(&mut parts, &client, id, &self.settings.upgrades);
        let on_break = kept
            .as_ref()
            .map_or(OnBreak::End, |_| OnBreak::Wait(self.settings.response));
        let (body, upload) = UploadBody::new(body, client.address_field, on_break);
        let request = Request::from_parts(parts, body);
        let waiting = self.recent.wait(upload.is_some());
        let exchange = self.exchange(request, hop, interim, kept, upload.clone());
        let result = exchange.await;
        let sent = upload.as_ref().map(|upload| upload.sent());
        // The time of a request whose body is not sent yet is that of its client.
        let is_sending = sent == Some(None);
        if let (Some(waiting), Some(ended)) = (waiting, Ended::of(&result, is_sending)) {
            waiting.end(sent.flatten(), ended);
        }
        if let Some(mut permit) = permit {
            if let Some(Some(sent)) = sent {
                permit.begin(self.time_of(sent));
            }
            permit.end(end(&result, is_sending), self.now());
        }
        result
    }

    /// Sends a request, again if that is safe, until a response comes.
    async fn exchange(
        &self,
        mut request: UpstreamRequest,
        hop: Hop,
        interim: Option<InterimReceiver>,
        kept: Option<KeptRequest>,
        upload: Option<Arc<Upload>>,
    ) -> Result<Forwarded, ForwardError> {
        let has_no_copy = upload.is_some() || hop.upgrade.is_some();
        let is_repeatable = !has_no_copy && is_idempotent(request.method());
        let mut now = self.now();
        self.retries.deposit(now);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut failed, mut origin) = (0, Origin::Idle);
        let wanted = if hop.upgrade.is_some() {
            Wanted::Http1
        } else {
            Wanted::Any
        };
        let mut was_unprocessed = false;
        // The first attempt that may have reached an address names the failure.
        let mut failure = ForwardError::from(UpstreamFailure::Refused);
        // At most one attempt on an idle connection, and one on a new one for each address, and one
        // more for an address that did not begin to process the request.
        while let Some(index) = self.choose(turn, failed, now) {
            let address = &self.addresses[index];
            let bounds = (now, self.settings.connect);
            let (mut lease, came) = match address.lease((origin, wanted), bounds).await {
                Ok(leased) => leased,
                Err(refused) => {
                    now = self.now();
                    if !failure.was_sent() {
                        failure = refused;
                    }
                    failed |= 1 << index;
                    continue;
                }
            };
            let form = lease.form();
            fit(&mut request, &form, &hop);
            if form == Form::Http1 && !request.headers().contains_key(HOST) {
                // Of HTTP/1.0, and of HTTP/2 without an authority (RFC 9112, section 3.2).
                let own = HeaderValue::from_str(address.name()).ok();
                request.headers_mut().extend(own.map(|own| (HOST, own)));
            }
            let others = self.addresses.len() > 1;
            let is_copied = match form {
                Form::Http1 => is_repeatable && (others || came == Origin::Idle),
                Form::Http2(..) => !has_no_copy,
            };
            let copy = is_copied.then(|| copy(&request));
            let exchange = (request, upload.as_deref(), interim.as_ref());
            let at_work = kept.as_ref().map(KeptRequest::begin);
            let sent = self.send(&mut lease.sender, exchange).await;
            drop(at_work);
            if matches!(sent, Err(SendError::Unsent(_) | SendError::GoAway)) {
                lease.retire();
            }
            if sent.as_ref().is_err_and(|why| why.is_fault(came)) {
                lease.fail(self.now());
            }
            let is_unprocessed = matches!(sent, Err(SendError::GoAway | SendError::Refused));
            if let Err(SendError::Broken(why)) = &sent {
                failure = (*why).into();
            } else if !failure.was_sent() {
                failure = UpstreamFailure::Refused.into();
            }
            let again = match sent {
                Ok(response) => {
                    lease.respond(response.headers());
                    lease.upload = upload;
                    return self.finish(response, &hop, lease);
                }
                Err(SendError::Unsent(back)) => Some(*back),
                Err(SendError::GoAway) => copy,
                Err(SendError::Refused) => copy.filter(|_| self.retries.withdraw(self.now())),
                Err(SendError::Broken(why)) => {
                    if why.is_timeout() {
                        failed |= 1 << index;
                    }
                    let is_again = is_repeatable && (!why.is_timeout() || self.has_other(failed));
                    copy.filter(|_| is_again && self.retries.withdraw(self.now()))
                }
                Err(SendError::End(error)) => return Err(error),
            };
            now = self.now();
            let Some(again) = again else {
                return Err(failure);
            };
            request = again;
            drop(lease); // its room may be the last
            // Other idle connections may be as old.
            origin = Origin::New;
            // Once, the address that did not begin to process the request is asked again.
            if came == Origin::New && (!is_unprocessed || was_unprocessed) {
                failed |= 1 << index;
            }
            was_unprocessed |= is_unprocessed;
        }
        Err(failure)
    }

    /// Returns true if there is an address in use that has not failed for this request.
    fn has_other(&self, failed: u64) -> bool {
        let now = self.now();
        let mut others = self.addresses.iter().enumerate();
        others.any(|(index, it)| failed & (1 << index) == 0 && !it.is_out(now))
    }

    /// Returns the next address in turn that has not failed for this request; those that are left
    /// out come last.
    fn choose(&self, turn: usize, failed: u64, now: Time) -> Option<usize> {
        let count = self.addresses.len();
        let order = (0..count).map(|step| (turn % count + step) % count);
        let mut order = order.filter(|index| failed & (1 << index) == 0);
        let mut usable = order.clone();
        usable
            .find(|index| self.addresses[*index].admits(now))
            .or_else(|| order.next())
    }

    async fn send(
        &self,
        sender: &mut Sender,
        (request, upload, interim): (UpstreamRequest, Option<&Upload>, Option<&InterimReceiver>),
    ) -> Result<Response<Incoming>, SendError> {
        let result = {
            let mut responding = std::pin::pin!(sender.send(request, interim));
            loop {
                if let Ok(result) = timeout(self.settings.response, &mut responding).await {
                    break result;
                }
                let waits_for_client = match upload {
                    Some(upload) if upload.moved() => continue,
                    Some(upload) => upload.stage() == Stage::Client,
                    None => false,
                };
                return Err(if waits_for_client {
                    SendError::End(ForwardError::UploadTimeout)
                } else {
                    SendError::Broken(UpstreamFailure::ResponseTimeout)
                });
            }
        };
        result.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None if upload.is_some_and(|upload| upload.stage() == Stage::Broken) => {
                SendError::End(ForwardError::UploadBroken)
            }
            None if error.error().is_parse() => SendError::End(UpstreamFailure::BadResponse.into()),
            None if sender.has_begun() => SendError::End(UpstreamFailure::Reset.into()),
            None => unprocessed(error.error()).unwrap_or(SendError::Broken(UpstreamFailure::Reset)),
        })
    }

    fn finish(
        &self,
        mut response: Response<Incoming>,
        asked: &Hop,
        lease: Lease,
    ) -> Result<Forwarded, ForwardError> {
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let hop = prepare_response(response.headers_mut(), &self.settings.upgrades);
        *response.version_mut() = Version::HTTP_11;
        if switches {
            if hop.upgrade.is_none() || hop.upgrade != asked.upgrade {
                return Err(UpstreamFailure::Switched.into());
            }
            let upstream = hyper::upgrade::on(&mut response);
            let tunnel = Tunnel::new((upstream, lease.into_room()), self.settings.upgrade);
            crate::hop::put(&hop, response.headers_mut());
            return Ok(Forwarded::Upgraded(response.map(drop), tunnel));
        }
        let idle = self.settings.body;
        Ok(Forwarded::Response(
            response.map(|body| DownloadBody::new(body, lease, idle)),
        ))
    }

    fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, moment: Instant) -> Time {
        Time::ZERO + Nanos::from(moment.saturating_duration_since(self.start))
    }
}

/// Returns the signal that the end of a request is for the adaptive limit of the upstream.
fn end(result: &Result<Forwarded, ForwardError>, is_sending: bool) -> End {
    let end = match result {
        Ok(Forwarded::Response(response)) => End::of_http(response.status().as_u16()),
        Ok(Forwarded::Upgraded(..)) => End::Done,
        Err(ForwardError::Upstream(failure)) if failure.is_timeout() => End::Dropped,
        Err(_) => End::Ignored,
    };
    if end == End::Done && is_sending {
        return End::Ignored;
    }
    end
}
