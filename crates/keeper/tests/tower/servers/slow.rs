//! Slow: a body that begins at once, and never ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

#[derive(Default)]
pub(crate) struct Slow {
    sent: bool,
}

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent {
            return Poll::Pending;
        }
        self.sent = true;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"some")))))
    }
}

/// A body that never ends, as fast as it is read.
pub(crate) struct Torrent;

impl Body for Torrent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static BYTES: [u8; 1 << 16] = [b'x'; 1 << 16];
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&BYTES)))))
    }
}
