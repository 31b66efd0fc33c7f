//! Exchange: sends a request to an address, and to another if that is safe.

use std::pin::pin;
use std::sync::atomic::Ordering;

use http::header::{CONTENT_LENGTH, HOST};
use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use ratekeeper_core::{Nanos, Time};
use tokio::time::Instant;

use super::{ForwardRequest, Forwarded, Gateway};
use crate::absence::AddressFailure;
use crate::address::{ConnectionLease, ConnectionOrigin};
use crate::attempt::{SendError, unprocessed};
use crate::connection::Wanted;
use crate::counts::Passage;
use crate::download::DownloadBody;
use crate::error::{ForwardError, UpstreamFailure};
use crate::hop::Hop;
use crate::idle::FRESH;
use crate::outgoing::{Form, copy, fit, prepare_response};
use crate::tunnel::Tunnel;
use crate::upload::{Stage, Upload, in_time};

/// Maximum number of times that addresses are asked again which did not begin to process a request.
/// On a connection that serves only some requests, those that wait for a stream may find it used up
/// several times in a row.
const MAX_UNPROCESSED: u8 = 4;

impl Gateway {
    /// Sends a request of now, again if that is safe, until a response comes; its connection is then
    /// in `leased`.
    pub(super) async fn exchange(
        &self,
        asked: &mut ForwardRequest,
        mut now: Instant,
        passage: &mut Passage,
        leased: &mut Option<ConnectionLease>,
    ) -> Result<Response<Incoming>, ForwardError> {
        let has_no_copy = asked.upload.is_some() || asked.hop.upgrade.is_some();
        let is_repeatable = !has_no_copy && asked.request.method().is_idempotent();
        self.retries.deposit(self.time_of(now));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (mut failed, mut origin) = (0, ConnectionOrigin::Idle);
        let switches = asked.hop.upgrade.as_ref();
        let wanted = switches.map_or(Wanted::Any, |_| Wanted::Http1);
        let mut unprocessed_times = 0;
        // The first attempt that may have reached an address names the failure.
        let mut failure = ForwardError::from(UpstreamFailure::Refused);
        // At most one attempt on an idle connection, and one on a new one for each address, and some
        // more for addresses that did not begin to process the request.
        while let Some(index) = self.choose(turn, failed, self.time_of(now)) {
            let address = &self.addresses[index];
            passage.address = Some(index);
            let patience = self.settings.connect;
            if !is_repeatable && address.is_quiet(now, FRESH) {
                origin = ConnectionOrigin::New;
            }
            let leasing = address.lease(origin, wanted, now, self.time_of(now), patience);
            let (lease, came) = match leasing.await {
                Ok((lease, came)) => (leased.insert(lease), came),
                Err(refused) => {
                    passage.attempt_failed(&refused);
                    now = Instant::now();
                    if !failure.was_sent() {
                        failure = refused;
                    }
                    failed |= 1 << index;
                    continue;
                }
            };
            let form = lease.form();
            let request = &mut asked.request;
            fit(request, &form, &asked.hop);
            if form == Form::Http1 && !request.headers().contains_key(HOST) {
                // Of HTTP/1.0, and of HTTP/2 without an authority (RFC 9112, section 3.2).
                let own = address.upstream.host();
                request.headers_mut().extend(own.map(|own| (HOST, own)));
            }
            let others = self.addresses.len() > 1;
            let is_copied = match form {
                Form::Http1 => is_repeatable && (others || came == ConnectionOrigin::Idle),
                Form::Http2(..) => !has_no_copy,
            };
            let copy = is_copied.then(|| copy(request));
            let at_work = asked.progress.begin(index, lease.sender.notes());
            let sent = self.send(lease, asked).await;
            drop(at_work);
            if matches!(sent, Err(SendError::Unsent(_) | SendError::GoAway)) {
                lease.retire();
            }
            if sent.as_ref().is_err_and(|why| why.is_fault(came)) {
                lease.absence().fail(AddressFailure::Response, self.now());
            }
            let is_unprocessed = sent.as_ref().is_err_and(|why| why.is_unprocessed(&form));
            if let Err(SendError::Broken(why)) = &sent {
                failure = (*why).into();
            } else if !failure.was_sent() {
                failure = UpstreamFailure::Refused.into();
            }
            let again = match sent {
                Ok(response) => {
                    self.note_response(index, lease, &response);
                    lease.upload.clone_from(&asked.upload);
                    return Ok(response);
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
                Err(SendError::End(error)) => {
                    passage.attempt_failed(&error);
                    return Err(error);
                }
            };
            // A connection that was idle may have been closed meanwhile.
            if came == ConnectionOrigin::New || again.is_none() {
                passage.attempt_failed(&failure);
            }
            now = Instant::now();
            let Some(again) = again else {
                return Err(failure);
            };
            asked.request = again;
            *leased = None; // its room may be the last
            // Other idle connections may be as old.
            origin = ConnectionOrigin::New;
            let is_asked_again = is_unprocessed && unprocessed_times < MAX_UNPROCESSED;
            if came == ConnectionOrigin::New && !is_asked_again {
                failed |= 1 << index;
            }
            unprocessed_times += u8::from(is_unprocessed);
        }
        Err(failure)
    }

    /// Notes a response. That of a server behind which nothing serves is a failure of its address,
    /// while another is in use.
    fn note_response(
        &self,
        index: usize,
        lease: &mut ConnectionLease,
        response: &Response<Incoming>,
    ) {
        lease.keep(response.headers());
        let is_failure = matches!(response.status().as_u16(), 502..=504);
        if is_failure && self.has_other(1 << index) {
            lease.absence().fail(AddressFailure::Status, self.now());
        } else {
            lease.absence().respond();
        }
    }

    /// Returns true if there is an address in use that has not failed for this request.
    fn has_other(&self, failed: u64) -> bool {
        let mut others = self.addresses.iter().enumerate();
        others.any(|(index, it)| failed & (1 << index) == 0 && !it.is_left_out())
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
        lease: &mut ConnectionLease,
        asked: &mut ForwardRequest,
    ) -> Result<Response<Incoming>, SendError> {
        let patience = self.settings.response;
        let (sender, end) = (&mut lease.sender, lease.since + patience);
        let upload = asked.upload.as_deref();
        let mut timer = sender.take_timer();
        let result = {
            let response = pin!(sender.send(&mut asked.request, asked.interim.as_ref()));
            in_time(response, timer.as_mut(), upload, end, patience).await
        };
        sender.keep_timer(timer);
        let stage = upload.map(Upload::stage);
        let result = result.ok_or_else(|| match stage {
            Some(Stage::Client) => SendError::End(ForwardError::UploadTimeout),
            Some(Stage::Broken) => SendError::End(ForwardError::UploadBroken),
            _ => SendError::Broken(UpstreamFailure::ResponseTimeout),
        })?;
        result.map_err(|mut error| match error.take_message() {
            Some(request) => SendError::Unsent(Box::new(request)),
            None if stage == Some(Stage::Broken) => SendError::End(ForwardError::UploadBroken),
            None if stage == Some(Stage::TooLarge) => SendError::End(ForwardError::UploadTooLarge),
            None if error.error().is_parse() => SendError::End(UpstreamFailure::BadResponse.into()),
            None if sender.has_begun() => SendError::End(UpstreamFailure::Reset.into()),
            None => unprocessed(error.error()).unwrap_or(SendError::Broken(UpstreamFailure::Reset)),
        })
    }

    /// Returns the response; `took` is the time to its head, if that was the upstream's.
    pub(super) fn finish(
        &self,
        mut response: Response<Incoming>,
        asked: &Hop,
        leased: Option<ConnectionLease>,
        mut passage: Passage,
        took: Option<Nanos>,
    ) -> Result<Forwarded, ForwardError> {
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let hop = prepare_response(response.headers_mut(), &self.settings.upgrades);
        let hop = hop.inspect_err(|failure| passage.break_off(*failure))?;
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH); // an error to clients of HTTP/2
        }
        if switches {
            if hop.upgrade.is_none() || hop.upgrade != asked.upgrade {
                passage.break_off(UpstreamFailure::Switched);
                return Err(UpstreamFailure::Switched.into());
            }
            passage.respond(response.status(), took);
            let tunnel = Tunnel {
                upstream: hyper::upgrade::on(&mut response),
                room: leased.map(|lease| lease.room),
                passage,
                idle: self.settings.upgrade,
            };
            crate::hop::put(&hop, response.headers_mut());
            return Ok(Forwarded::Upgraded(response.map(drop), Box::new(tunnel)));
        }
        passage.respond(response.status(), took);
        let idle = self.settings.body;
        Ok(Forwarded::Response(response.map(|body| {
            DownloadBody::new(body, leased, passage, idle)
        })))
    }
}
