//! A client of gRPC that shows its responses: frames, codes, trailers.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub(crate) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// One connection.
pub(crate) struct Client {
    send: SendRequest<Bytes>,
    /// Ends with the connection: well, or not.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) http_status: u16,
    /// `grpc-status`; -1 if none came.
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) messages: Vec<Bytes>,
}

/// A call under way.
pub(crate) struct Call {
    pub(crate) send: SendStream<Bytes>,
    response: ResponseFuture,
}

/// Its answers, as they come.
pub(crate) struct Answers {
    head: HeaderMap,
    body: RecvStream,
    begun: BytesMut,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap()).await
    }

    pub(crate) async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::with(io, &h2::client::Builder::new()).await
    }

    pub(crate) async fn with(
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        builder: &h2::client::Builder,
    ) -> Self {
        let (send, connection) = builder.handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        Self { send, connection }
    }

    /// Begins a call with these header fields beside the usual ones.
    pub(crate) async fn begin(&mut self, path: &str, fields: &[(&'static str, &str)]) -> Call {
        let mut request = Request::post(format!("http://ratekeeper{path}"));
        if !fields.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        request = request.header("te", "trailers");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut ready = self.send.clone().ready().await.unwrap();
        let (response, send) = ready
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        Call { send, response }
    }

    /// A whole call: these bytes, and the end.
    pub(crate) async fn raw(
        &mut self,
        path: &str,
        fields: &[(&'static str, &str)],
        bytes: Bytes,
    ) -> Answer {
        let mut call = self.begin(path, fields).await;
        call.send.send_data(bytes, true).unwrap();
        call.answer().await
    }

    pub(crate) async fn call(&mut self, path: &str, message: &impl Message) -> Answer {
        self.raw(path, &[], framed(&message.encode_to_vec())).await
    }
}

impl Call {
    pub(crate) fn message(&mut self, message: &impl Message) {
        let framed = framed(&message.encode_to_vec());
        self.send.send_data(framed, false).unwrap();
    }

    pub(crate) async fn answer(self) -> Answer {
        let response = match self.response.await {
            Ok(response) => response,
            Err(error) => panic!("no answer: {error}"),
        };
        let http_status = response.status().as_u16();
        let mut answers = Answers {
            head: response.headers().clone(),
            body: response.into_body(),
            begun: BytesMut::new(),
        };
        let mut messages = Vec::new();
        while let Some(message) = answers.next().await {
            messages.push(message);
        }
        let (code, message) = answers.end().await;
        Answer {
            http_status,
            code,
            message,
            messages,
        }
    }

    pub(crate) async fn answers(self) -> Answers {
        let response = self.response.await.unwrap();
        Answers {
            head: response.headers().clone(),
            body: response.into_body(),
            begun: BytesMut::new(),
        }
    }
}

impl Answers {
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some((prefix, rest)) = self.begun.split_first_chunk::<5>() {
                let [compressed, length @ ..] = *prefix;
                assert_eq!(compressed, 0);
                let length = u32::from_be_bytes(length) as usize;
                if rest.len() >= length {
                    let message = self.begun.split_to(5 + length);
                    return Some(message.freeze().slice(5..));
                }
            }
            let data = self.body.data().await?.unwrap();
            self.body
                .flow_control()
                .release_capacity(data.len())
                .unwrap();
            self.begun.extend_from_slice(&data);
        }
    }

    pub(crate) async fn message<M: Message + Default>(&mut self) -> M {
        M::decode(self.next().await.expect("one more message")).unwrap()
    }

    /// Returns code and message of the status.
    pub(crate) async fn end(mut self) -> (i32, String) {
        assert!(self.next().await.is_none(), "a message too many");
        let trailers = self.body.trailers().await.unwrap().unwrap_or(self.head);
        let text = |name: &str| {
            let value = trailers.get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let code = text("grpc-status").map_or(-1, |code| code.parse().unwrap());
        (code, text("grpc-message").unwrap_or_default())
    }
}

impl Answer {
    /// Returns the only message.
    pub(crate) fn read<M: Message + Default>(&self) -> M {
        assert_eq!((self.code, self.messages.len()), (0, 1), "{self:?}");
        M::decode(self.messages[0].clone()).unwrap()
    }

    pub(crate) fn status(&self) -> (i32, &str) {
        (self.code, &self.message)
    }
}

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.len().try_into().unwrap());
    bytes.extend_from_slice(message);
    bytes.freeze()
}
