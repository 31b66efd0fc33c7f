//! Unix connector: connections of the HTTP client to a Unix socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects to the socket at this path, whatever the URL.
#[derive(Debug)]
pub(crate) struct UnixConnector(pub(crate) PathBuf);

/// A connection, used for one call.
#[derive(Debug)]
pub(crate) struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Connector for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<UnixTransport>, Error> {
        let sizes = details.config;
        Ok(Some(UnixTransport {
            stream: UnixStream::connect(&self.0)?,
            buffers: LazyBuffers::new(sizes.input_buffer_size(), sizes.output_buffer_size()),
        }))
    }
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream
            .set_write_timeout(timeout.not_zero().as_deref().copied())?;
        let output = &self.buffers.output()[..amount];
        self.stream
            .write_all(output)
            .map_err(|why| in_time(why, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream
            .set_read_timeout(timeout.not_zero().as_deref().copied())?;
        let read = self.stream.read(self.buffers.input_append_buf());
        let read = read.map_err(|why| in_time(why, &timeout))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        false // each call has a connection of its own
    }
}

/// Returns the error of a call, in which a time-out is not one of the socket.
fn in_time(why: std::io::Error, timeout: &NextTimeout) -> Error {
    if why.kind() == ErrorKind::WouldBlock {
        Error::Timeout(timeout.reason)
    } else {
        why.into()
    }
}
