//! Frame: a message on the wire, five bytes of prefix before it.
//!
//! ```text
//!   | 0: as it is, 1: compressed | length, 4 bytes, big end first | message |
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use prost::Message;

use super::{Code, GrpcStatus};
use crate::byte_budget::HeldBytes;

/// Number of bytes before a message.
const PREFIX: usize = 5;

/// Messages of a call, as they come in.
#[derive(Debug)]
pub(super) struct Frames {
    body: RecvStream,
    /// Bytes received of the next message and beyond.
    begun: BytesMut,
    /// Budget of `begun`, while more bytes are awaited.
    held: HeldBytes,
    /// Maximum number of bytes of a message.
    max: usize,
}

impl Frames {
    pub(super) fn new(body: RecvStream, held: HeldBytes, max: usize) -> Self {
        Self {
            body,
            begun: BytesMut::new(),
            held,
            max,
        }
    }

    /// Returns the next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            if !self.more().await? {
                if self.begun.is_empty() {
                    return Ok(None);
                }
                return Err(broken("the last message is cut short"));
            }
        }
    }

    /// Returns the only message of a call.
    pub(super) async fn only(&mut self) -> Result<Bytes, GrpcStatus> {
        let message = self.next().await?;
        let message = message.ok_or_else(|| broken("the call has no message"))?;
        // The end may come in a frame of its own, with nothing in it.
        while self.begun.is_empty() {
            if self.body.is_end_stream() || !self.more().await? {
                return Ok(message);
            }
        }
        Err(broken("the call has more than one message"))
    }

    /// Returns the message at the front, if all of it is there.
    fn whole(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        let Some((prefix, _)) = self.begun.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            let message = "compressed messages are not read; send grpc-encoding: identity";
            return Err(GrpcStatus::new(Code::Unimplemented, message));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.max {
            let message = format!(
                "the message has {length} bytes, at most {} are read",
                self.max
            );
            return Err(GrpcStatus::new(Code::ResourceExhausted, message));
        }
        if self.begun.len() - PREFIX < length {
            return Ok(None);
        }
        self.begun.advance(PREFIX);
        Ok(Some(self.begun.split_to(length).freeze()))
    }

    /// Waits for more bytes; returns true if there are any.
    async fn more(&mut self) -> Result<bool, GrpcStatus> {
        if !self.held.resize(self.begun.len()) {
            let message = "too many bytes of unfinished calls are held, try again later";
            return Err(GrpcStatus::new(Code::Unavailable, message));
        }
        let data = std::future::poll_fn(|context| self.body.poll_data(context)).await;
        let Some(data) = data else { return Ok(false) };
        let data = data.map_err(|_| broken("the stream was reset"))?;
        if !self.body.is_end_stream() {
            // An error here is one of the stream, which the next read reports.
            let _ = self.body.flow_control().release_capacity(data.len());
        }
        // Copied, so that a small message does not hold on to the buffer of its connection.
        self.begun.extend_from_slice(&data);
        Ok(true)
    }
}

fn broken(message: &str) -> GrpcStatus {
    GrpcStatus::new(Code::InvalidArgument, message)
}

/// Returns a message with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // Answers are far below 4 GiB: they are bounded by the descriptors of a request.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.freeze()
}
