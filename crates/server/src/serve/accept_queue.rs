//! Accept queue: takes the connections that the kernel still holds when a listener closes.
//!
//! ```text
//!   SYN --> handshake --> accept queue --accept--> served
//!    x (1)                     | (2)
//!   dropped             closing resets them
//! ```
//!
//! Closing a listener resets the connections in its queue, and their clients have seen them open
//! and may have sent a request. So the queue is emptied first (2). On Linux no handshake begins
//! from then on (1): the client sends its SYN again a second later and finds the port closed, or
//! gives up before, with nothing sent. Elsewhere a connection that arrives between the last accept
//! and the closing is reset.
//!
//! The queue is read by system calls, not through the runtime: the runtime accepts only after it
//! has heard of a connection, and might not have heard of the last ones yet.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use socket2::{SockAddr, SockRef, Socket};
use tokio::net::{TcpListener, UnixListener};

use super::door_address::NO_ADDRESS;

/// A listening socket on the runtime.
#[derive(Debug)]
pub(crate) enum AcceptSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AcceptSocket {
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        let is_unix = socket.local_addr()?.is_unix();
        Ok(if is_unix {
            Self::Unix(UnixListener::from_std(socket.into())?)
        } else {
            Self::Tcp(TcpListener::from_std(socket.into())?)
        })
    }

    /// Waits for the next connection. The stream of a Unix socket is returned as one of TCP: both
    /// are read and written by the same system calls.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream.into_std()?, peer))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let stream = OwnedFd::from(stream.into_std()?);
                Ok((stream.into(), NO_ADDRESS))
            }
        }
    }

    fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(listener) => listener.into(),
            Self::Unix(listener) => listener.into(),
        }
    }
}

/// Returns the next connection of the queue, or `None` once it is empty.
pub(crate) fn take_queued(listener: &AcceptSocket) -> Option<(TcpStream, SocketAddr)> {
    loop {
        match listener.socket().accept() {
            Ok((stream, peer)) => {
                if let Ok(accepted) = accepted(stream, &peer) {
                    return Some(accepted);
                }
            }
            // The client may have gone away while it waited.
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return None,
        }
    }
}

fn accepted(stream: Socket, peer: &SockAddr) -> io::Result<(TcpStream, SocketAddr)> {
    stream.set_nonblocking(true)?;
    Ok((stream.into(), peer.as_socket().unwrap_or(NO_ADDRESS)))
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// Begins no further handshake at the listener, where the system can do that.
#[cfg(target_os = "linux")]
pub(crate) fn refuse_handshakes(listener: &AcceptSocket) {
    use socket2::SockFilter;

    // Classic BPF (`linux/bpf_common.h`): byte 13 of the TCP header holds the flags.
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const JUMP_IF_SET: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    let drop_syn = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ];
    // Refused where a sandbox forbids it; then it is as on other systems.
    let _ = listener.socket().attach_filter(&drop_syn);
}

/// Begins no further handshake at the listener, where the system can do that.
#[cfg(not(target_os = "linux"))]
pub(crate) fn refuse_handshakes(_: &AcceptSocket) {}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    async fn listening() -> (AcceptSocket, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        (AcceptSocket::Tcp(listener), address)
    }

    fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(&address, Duration::from_millis(300))
    }

    #[tokio::test]
    async fn connections_are_taken_that_the_runtime_has_not_heard_of() {
        let (listener, address) = listening().await;
        let mut clients: Vec<_> = (0..3)
            .map(|_| connect(address).expect("the listener is open"))
            .collect();
        let taken: Vec<_> = std::iter::from_fn(|| take_queued(&listener)).collect();
        assert_eq!(taken.len(), clients.len());
        drop(listener);
        for (client, (mut server, peer)) in clients.iter_mut().zip(taken) {
            assert_eq!(client.local_addr().ok(), Some(peer));
            client.write_all(b"?").expect("the connection is open");
            server.set_nonblocking(false).expect("a socket can wait");
            let mut byte = [0];
            server
                .read_exact(&mut byte)
                .expect("the connection is open");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn no_connection_opens_once_handshakes_are_refused() {
        let (listener, address) = listening().await;
        let before = connect(address).expect("the listener is open");
        refuse_handshakes(&listener);
        let late = connect(address).expect_err("its handshake never begins");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert!(take_queued(&listener).is_some(), "the earlier one is kept");
        assert!(take_queued(&listener).is_none());
        drop(before);
    }
}
