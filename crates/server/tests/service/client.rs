//! A client that shows the bytes of its responses.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// One connection, kept alive.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

/// An answer as it came, without the headers that change from run to run.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let stream = BufReader::new(stream);
        Self { stream }
    }

    /// Asks, and reads the whole answer. `head`: `METHOD TARGET`, then header lines.
    pub(crate) fn ask(&mut self, head: &str, body: &[u8]) -> Answer {
        self.send(head, body);
        self.answer(head.starts_with("HEAD "))
    }

    pub(crate) fn post(&mut self, target: &str, body: &str) -> Answer {
        self.ask(&format!("POST {target}"), body.as_bytes())
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask(&format!("GET {target}"), b"")
    }

    pub(crate) fn send(&mut self, head: &str, body: &[u8]) {
        let (request, headers) = head.split_once('\n').unwrap_or((head, ""));
        let mut bytes = format!("{request} HTTP/1.1\r\n");
        let lower = headers.to_ascii_lowercase();
        if !lower.contains("host:") {
            bytes.push_str("host: localhost\r\n");
        }
        if !lower.contains("content-length:") && !body.is_empty() {
            write!(bytes, "content-length: {}\r\n", body.len()).unwrap();
        }
        for line in headers.lines() {
            write!(bytes, "{}\r\n", line.trim()).unwrap();
        }
        bytes.push_str("\r\n");
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes).unwrap();
    }

    pub(crate) fn answer(&mut self, head_only: bool) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| {
            panic!("the connection was closed instead of an answer: {line:?}");
        });
        let mut answer = Answer {
            status: status.parse().unwrap(),
            headers: Vec::new(),
            body: String::new(),
        };
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            match name {
                "content-length" => length = value.parse().unwrap(),
                "date" => {}
                _ => answer.headers.push((name.to_owned(), value.to_owned())),
            }
        }
        if !head_only {
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).unwrap();
            answer.body = String::from_utf8(body).unwrap();
        }
        answer
    }

    /// Returns true if the other side has closed the connection and sent nothing else.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.stream.get_ref().set_nonblocking(true).unwrap();
        let read = self.stream.read(&mut [0]);
        self.stream.get_ref().set_nonblocking(false).unwrap();
        !read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Returns true if the other side closes now, and sends nothing before.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let end = self.stream.read_to_end(&mut rest);
        rest.is_empty() && end.is_ok()
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Questions and answers, one after the other, as a reviewed text shows them.
#[derive(Default)]
pub(crate) struct Talk(String);

impl Talk {
    pub(crate) fn ask(&mut self, client: &mut Client, head: &str, body: &str) -> &mut Self {
        let answer = client.ask(head, body.as_bytes());
        for line in head.lines() {
            writeln!(self.0, "> {}", line.trim()).unwrap();
        }
        if !body.is_empty() {
            writeln!(self.0, "> {body}").unwrap();
        }
        writeln!(self.0, "{}", answer.status).unwrap();
        for (name, value) in &answer.headers {
            writeln!(self.0, "{name}: {value}").unwrap();
        }
        if !answer.body.is_empty() {
            writeln!(self.0, "{}", answer.body.trim_end()).unwrap();
        }
        self.0.push('\n');
        self
    }

    /// Adds a line of the narrator.
    pub(crate) fn say(&mut self, line: &str) -> &mut Self {
        writeln!(self.0, "-- {line}\n").unwrap();
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
