//! An upstream that records what it receives, and sends what a test says.

use std::io::{self, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::PATIENCE;
use super::message::{Message, read_request};

/// A server on a free port.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Receiver<Message>,
    pub(crate) connections: Arc<AtomicUsize>,
}

/// What a connection does after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Request,
    Close,
}

/// One request at an upstream.
pub(crate) struct Visit<'a> {
    pub(crate) request: &'a Message,
    pub(crate) stream: &'a mut TcpStream,
    /// Number of the connection, from 0.
    pub(crate) connection: usize,
}

impl Visit<'_> {
    /// Sends nothing until the proxy closes the connection.
    pub(crate) fn until_closed(&mut self) {
        let _ = io::copy(self.stream, &mut io::sink()); // a reset ends it too
    }
}

impl Upstream {
    /// Answers each request by `respond`.
    pub(crate) fn new(respond: impl Fn(Visit<'_>) -> Next + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (respond, count) = (Arc::new(respond), Arc::clone(&connections));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = count.fetch_add(1, Ordering::SeqCst);
                let (respond, sender) = (Arc::clone(&respond), sender.clone());
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(request) = read_request(&mut reader) {
                        let _ = sender.send(request.clone()); // the test may be over
                        let visit = Visit {
                            request: &request,
                            stream: &mut stream,
                            connection,
                        };
                        if respond(visit) == Next::Close {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            connections,
        }
    }

    /// Answers each request with these bytes.
    pub(crate) fn with(response: impl AsRef<[u8]>) -> Self {
        let response = response.as_ref().to_vec();
        Self::new(move |visit| {
            let _ = visit.stream.write_all(&response); // the proxy may have left
            Next::Request
        })
    }

    pub(crate) fn hello() -> Self {
        Self::with("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
    }

    /// Returns the next request that came.
    pub(crate) fn seen(&self) -> Message {
        self.seen.recv_timeout(PATIENCE).expect("no request came")
    }

    /// Like [`seen`](Self::seen), without waiting.
    pub(crate) fn seen_already(&self) -> Option<Message> {
        self.seen.try_recv().ok()
    }

    /// Returns true if no further request has come.
    pub(crate) fn saw_nothing(&self) -> bool {
        self.seen_already().is_none()
    }
}
