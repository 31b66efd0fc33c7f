//! Clients of the soak: each asks one door until it is stopped, and counts the admissions.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use ratekeeper_wire::rate_limit_descriptor::Entry;
use ratekeeper_wire::rate_limit_response::Code;
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

use super::KEYS;
use crate::harness::clock;
use crate::harness::service::Service;
use crate::harness::visitor::{Caller, Visitor};

/// Pause between two requests of a client, because four clients of two services share a small
/// machine.
const PAUSE: Duration = Duration::from_millis(4);

/// Results of the clients of one service.
#[derive(Default)]
pub(super) struct Seen {
    /// Answers and admissions by door and key.
    pub(super) counts: Mutex<BTreeMap<(&'static str, u64), Count>>,
    pub(super) failures: Mutex<Vec<String>>,
}

/// Answers to the requests of one key.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) answers: u64,
    pub(super) admitted: u64,
}

impl Seen {
    fn answer(&self, door: &'static str, key: u64, admitted: bool) {
        let mut all = self.counts.lock().expect("no client panics");
        let count = all.entry((door, key)).or_default();
        count.answers += 1;
        count.admitted += u64::from(admitted);
    }

    fn fail(&self, what: impl Into<String>) {
        let mut failures = self.failures.lock().expect("no client panics");
        if failures.len() < 20 {
            failures.push(what.into());
        }
    }

    fn status(&self, door: &'static str, key: u64, status: u16) {
        match status {
            200 => self.answer(door, key, true),
            429 => self.answer(door, key, false),
            other => self.fail(format!("{door}: status {other}")),
        }
    }
}

/// Asks until `stop`; every client goes through the keys in turn.
fn turns(stop: &AtomicBool, mut ask: impl FnMut(u64)) {
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        ask(turn % KEYS);
        clock::wait(PAUSE);
    }
}

fn question(path: &str, key: u64) -> String {
    format!(r#"{{"request": {{"ip": "192.0.2.{key}", "path": "{path}"}}}}"#)
}

pub(super) fn checks(service: &Service, seen: &Seen, stop: &AtomicBool) {
    let mut caller = Caller::connect(service.http());
    turns(stop, |key| {
        let status = caller.post_json("/v1/check", &question("/check", key));
        seen.status("check", key, status);
    });
}

pub(super) fn auths(service: &Service, seen: &Seen, stop: &AtomicBool) {
    turns(stop, |key| {
        let last = u8::try_from(key).expect("a few keys") + 10;
        match Visitor::at(last).ask(service.http(), "GET", "/v1/auth/soak") {
            Ok(answer) => seen.status("auth", key, answer.status),
            Err(error) => seen.fail(format!("auth: {error}")),
        }
    });
}

pub(super) fn batches(service: &Service, seen: &Seen, stop: &AtomicBool) {
    turns(stop, |key| {
        let check = question("/batch", key);
        let body = format!(r#"{{"checks": [{check}, {check}, {check}]}}"#);
        let answer = Visitor::at(3).post_json(service.http(), "/v1/check/batch", &body);
        let parsed: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let Some(results) = parsed["results"].as_array() else {
            return seen.fail(format!("batch: {} {}", answer.status, answer.body));
        };
        for result in results {
            seen.answer("batch", key, result["allowed"] == true);
        }
    });
}

/// Makes connections that never ask, that leave in the middle, and that send invalid requests.
pub(super) fn rude(service: &Service, stop: &AtomicBool) {
    turns(stop, |key| {
        for door in [service.http(), service.grpc()] {
            let Ok(mut stream) = Visitor::at(4).connect(door) else {
                continue;
            };
            let sent: &[u8] = match key {
                0 => b"",
                1 => b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{",
                2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                3 => b"\x16\x03\x01\x00\xff",
                _ => b"GET /v1/auth HTTP/1.1\r\nhost: a\r\n\r\n",
            };
            let _ = stream.write_all(sent); // it may have been closed already
        }
    });
}

/// Makes calls over one HTTP/2 connection after the other, fifty each.
pub(super) fn calls(service: &Service, seen: &Seen, stop: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let failed = |error: h2::Error| seen.fail(format!("grpc: {error}"));
    runtime.block_on(async {
        while !stop.load(Ordering::Relaxed) {
            let stream = tokio::net::TcpStream::connect(service.grpc()).await;
            let handshake = h2::client::handshake(stream.expect("the listener is open")).await;
            let (mut sender, connection) = match handshake {
                Ok(connected) => connected,
                Err(error) => return failed(error),
            };
            let connection = tokio::spawn(connection);
            for turn in 0..50 {
                match call(&mut sender, turn % KEYS).await {
                    Ok(admitted) => seen.answer("grpc", turn % KEYS, admitted),
                    Err(error) => failed(error),
                }
                tokio::time::sleep(PAUSE).await;
            }
            drop(sender);
            let _ = connection.await; // it ends because no request is left
        }
    });
}

/// Returns true if the call of that user was admitted.
async fn call(sender: &mut h2::client::SendRequest<Bytes>, key: u64) -> Result<bool, h2::Error> {
    let request = RateLimitRequest {
        domain: "soak".into(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: "user".into(),
                value: key.to_string(),
            }],
            ..Default::default()
        }],
        hits_addend: 0,
    };
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(request.encoded_len()).expect("a short message"));
    message.put_slice(&request.encode_to_vec());
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let head = http::Request::post(format!("http://soak{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let mut ready = sender.clone().ready().await?;
    let (response, mut send) = ready.send_request(head.body(()).expect("a request"), false)?;
    send.send_data(message.freeze(), true)?;
    let mut body = response.await?.into_body();
    let mut answer = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        answer.extend_from_slice(&data);
    }
    let message = answer.get(5..).unwrap_or_default();
    let response = RateLimitResponse::decode(message).expect("an answer of gRPC");
    Ok(response.overall_code() == Code::Ok)
}
