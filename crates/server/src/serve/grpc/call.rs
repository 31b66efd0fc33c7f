//! Call: one request and the way back to its caller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use prost::Message;

use super::frame::{Frames, framed};
use super::status::ok_trailers;
use super::{Code, GrpcStatus, timeout};
use crate::byte_budget::HeldBytes;
use crate::serve::pulse::{InFlight, Pulse};
use crate::serve::within::within;

/// Content type of every call of gRPC.
const CONTENT_TYPE: &str = "application/grpc";
/// Maximum duration of a call of one answer, whatever its caller says.
const MAX_CALL: Duration = Duration::from_secs(10);

/// One call. Dropping it unanswered resets its stream.
#[derive(Debug)]
pub(crate) struct GrpcCall {
    head: Parts,
    messages: Frames,
    respond: SendResponse<Bytes>,
    _flight: InFlight,
}

impl GrpcCall {
    pub(super) fn new(
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        pulse: &Arc<Pulse>,
        held: HeldBytes,
        max_message_bytes: usize,
    ) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            head: parts,
            messages: Frames::new(body, held, max_message_bytes),
            respond,
            _flight: InFlight::begin(pulse),
        }
    }

    /// `/package.Service/Method`
    pub(crate) fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// Serves a call of one message and one answer, within the time that its caller gives;
    /// returns the code that it ended with.
    pub(crate) async fn unary<M, F>(mut self, serve: impl FnOnce(Bytes) -> F + Send) -> Code
    where
        M: Message,
        F: Future<Output = Result<M, GrpcStatus>> + Send,
    {
        let allowed = timeout::stated(&self.head.headers);
        let allowed = allowed.map_or(MAX_CALL, |allowed| allowed.min(MAX_CALL));
        let work = async {
            let message = self.messages.only().await?;
            serve(message).await
        };
        let late = || {
            GrpcStatus::new(
                Code::DeadlineExceeded,
                "the deadline of the call has passed",
            )
        };
        match within(allowed, work).await.unwrap_or_else(|| Err(late())) {
            Ok(message) => {
                self.reply(&message);
                Code::Ok
            }
            Err(status) => {
                self.fail(&status);
                status.code
            }
        }
    }

    /// Returns the next message of a stream; `None` at its end.
    pub(crate) async fn next_message(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        self.messages.next().await
    }

    /// Returns true if this can be a call of gRPC; any other is answered with an HTTP status.
    pub(super) fn plausible(&mut self) -> bool {
        let refuse = if self.head.method != Method::POST {
            Some(StatusCode::METHOD_NOT_ALLOWED)
        } else if !is_grpc(self.head.headers.get(header::CONTENT_TYPE)) {
            Some(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        } else {
            None
        };
        if let Some(status) = refuse {
            let mut response = Response::new(());
            *response.status_mut() = status;
            if status == StatusCode::METHOD_NOT_ALLOWED {
                let post = HeaderValue::from_static("POST");
                response.headers_mut().insert(header::ALLOW, post);
            }
            // An error: the caller has gone.
            let _ = self.respond.send_response(response, true);
        }
        refuse.is_none()
    }

    /// Answers with one message.
    fn reply(mut self, message: &impl Message) {
        let Ok(mut stream) = self.respond.send_response(head(), false) else {
            return; // the caller has gone
        };
        let sent = stream.send_data(framed(message), false);
        let _ = sent.and_then(|()| stream.send_trailers(ok_trailers()));
    }

    /// Ends without an answer.
    pub(crate) fn fail(mut self, status: &GrpcStatus) {
        let mut response = head();
        let headers = response.headers_mut();
        status.write(headers);
        if status.code == Code::Unimplemented {
            let name = HeaderName::from_static("grpc-accept-encoding");
            headers.insert(name, HeaderValue::from_static("identity"));
        }
        let _ = self.respond.send_response(response, true); // an error: the caller has gone
    }

    /// Begins a stream of answers.
    pub(crate) fn answers(&mut self) -> Option<AnswerStream> {
        let stream = self.respond.send_response(head(), false).ok()?;
        Some(AnswerStream(stream))
    }
}

/// A stream of answers.
#[derive(Debug)]
pub(crate) struct AnswerStream(SendStream<Bytes>);

impl AnswerStream {
    /// Sends a message as soon as the caller has room for it; returns false if the caller has gone.
    pub(crate) async fn send(&mut self, message: &impl Message) -> bool {
        let message = framed(message);
        self.0.reserve_capacity(message.len());
        while self.0.capacity() < message.len() {
            let room = std::future::poll_fn(|context| self.0.poll_capacity(context)).await;
            if !matches!(room, Some(Ok(_))) {
                return false;
            }
        }
        self.0.send_data(message, false).is_ok()
    }

    /// Ends the stream.
    pub(crate) fn end(mut self, status: &GrpcStatus) {
        let mut trailers = HeaderMap::with_capacity(2);
        status.write(&mut trailers);
        let _ = self.0.send_trailers(trailers); // an error: the caller has gone
    }

    /// Returns when the caller has gone.
    pub(crate) fn gone(&mut self) -> impl Future<Output = ()> + Send {
        std::future::poll_fn(|context| self.0.poll_reset(context).map(|_: Result<Reason, _>| ()))
    }
}

fn head() -> Response<()> {
    let mut response = Response::new(());
    let value = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

/// Returns true for `application/grpc`, also with a format or parameters: `application/grpc+proto`.
fn is_grpc(value: Option<&HeaderValue>) -> bool {
    let value = value.map_or(&b""[..], HeaderValue::as_bytes);
    let rest = value.strip_prefix(CONTENT_TYPE.as_bytes());
    rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types() {
        for (text, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x=y", true),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(is_grpc(Some(&value)), expected, "{text}");
        }
        assert!(!is_grpc(None));
    }
}
