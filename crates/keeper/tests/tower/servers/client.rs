//! Client: HTTP/1.1 by hand over one connection, so that nothing repairs or hides anything.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long anything on loopback may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// The head of an answer, and as much of its body as was announced.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let unread = Vec::new();
        Self { stream, unread }
    }

    /// Sends a request and reads its answer whole.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(path, "").await;
        self.answer().await
    }

    /// `more`: further header lines.
    pub(crate) async fn send(&mut self, path: &str, more: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        let length = answer.header("content-length").parse().unwrap();
        let body = self.take(|unread| (unread.len() >= length).then_some(length));
        answer.body = String::from_utf8(body.await).unwrap();
        answer
    }

    pub(crate) async fn head(&mut self) -> Answer {
        let end = |unread: &[u8]| {
            let blank = unread.windows(4).position(|four| four == b"\r\n\r\n")?;
            Some(blank + 4)
        };
        let head = String::from_utf8(self.take(end).await).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let headers = lines.filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), value.to_owned()))
        });
        Answer {
            status: status.parse().unwrap(),
            headers: headers.collect(),
            body: String::new(),
        }
    }

    /// At least one byte of a body.
    pub(crate) async fn some(&mut self) {
        self.take(|unread| (!unread.is_empty()).then_some(unread.len()))
            .await;
    }

    /// Bytes up to where `end` says.
    async fn take(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
        loop {
            if let Some(end) = end(&self.unread) {
                return self.unread.drain(..end).collect();
            }
            let read = self.stream.read_buf(&mut self.unread);
            let read = timeout(PATIENCE, read)
                .await
                .expect("the server did not answer in time");
            assert_ne!(read.unwrap(), 0, "the server has closed the connection");
        }
    }

    /// Goes away, as most do: FIN.
    pub(crate) fn close(self) {
        drop(self);
    }

    /// Goes away as one that crashes does: RST.
    pub(crate) fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Waits until `done`; for events that a server notices in its own time.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect(what);
}
