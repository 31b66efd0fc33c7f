//! A visitor: a plain HTTP/1.1 client with an address of its own (all of 127.0.0.0/8 is this
//! machine) and headers that it sends each time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Maximum time of any one step of an exchange.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Visitor {
    address: Ipv4Addr,
    headers: Vec<(String, String)>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Visitor {
    /// Creates a visitor at 127.0.0.`last`; 1 is the address of the proxies.
    pub(crate) fn at(last: u8) -> Self {
        Self {
            address: Ipv4Addr::new(127, 0, 0, last),
            headers: Vec::new(),
        }
    }

    /// Returns the same visitor with one more header.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn get(&self, to: SocketAddr, target: &str) -> Answer {
        self.ask(to, "GET", target)
            .unwrap_or_else(|error| panic!("GET {target}: {error}"))
    }

    pub(crate) fn post(&self, to: SocketAddr, target: &str) -> Answer {
        self.ask(to, "POST", target)
            .unwrap_or_else(|error| panic!("POST {target}: {error}"))
    }

    pub(crate) fn post_json(&self, to: SocketAddr, target: &str, body: &str) -> Answer {
        self.exchange(to, &self.request("POST", target, body))
            .unwrap_or_else(|error| panic!("POST {target}: {error}"))
    }

    /// Sends a request with that method, target and body.
    pub(crate) fn ask_with(
        &self,
        to: SocketAddr,
        (method, target): (&str, &str),
        body: &str,
    ) -> Answer {
        self.exchange(to, &self.request(method, target, body))
            .unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Returns the status of the answer.
    pub(crate) fn put_json(&self, to: SocketAddr, target: &str, body: &str) -> u16 {
        self.exchange(to, &self.request("PUT", target, body))
            .unwrap_or_else(|error| panic!("PUT {target}: {error}"))
            .status
    }

    /// Sends one request on its own connection.
    ///
    /// # Errors
    /// Returns an error if no complete answer comes: refused, reset, cut short, too slow.
    pub(crate) fn ask(&self, to: SocketAddr, method: &str, target: &str) -> io::Result<Answer> {
        let body = if method == "POST" { "a=b" } else { "" };
        self.exchange(to, &self.request(method, target, body))
    }

    fn exchange(&self, to: SocketAddr, request: &str) -> io::Result<Answer> {
        let mut stream = self.connect(to)?;
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        parse(&bytes).ok_or_else(|| {
            let got = String::from_utf8_lossy(&bytes).into_owned();
            io::Error::new(io::ErrorKind::UnexpectedEof, format!("cut short: {got:?}"))
        })
    }

    /// Sends a request, and does not wait for the answer.
    pub(crate) fn begin(&self, to: SocketAddr, target: &str) -> TcpStream {
        let sent = self.connect(to).and_then(|mut stream| {
            stream.write_all(self.request("GET", target, "").as_bytes())?;
            Ok(stream)
        });
        sent.unwrap_or_else(|error| panic!("GET {target}: {error}"))
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((self.address, 0)).into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn request(&self, method: &str, target: &str, body: &str) -> String {
        // At the admin door, a caller on this machine.
        let local = self.address == Ipv4Addr::LOCALHOST;
        let host = if local { "localhost" } else { "app.example" };
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in &self.headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        let length = body.len();
        text + &format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    }
}

/// A visitor that keeps its connection: requests one after the other.
pub(crate) struct Caller {
    stream: BufReader<TcpStream>,
    to: SocketAddr,
}

impl Caller {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        let stream = Visitor::at(2).connect(to);
        let stream = stream.unwrap_or_else(|error| panic!("{to}: {error}"));
        stream.set_nodelay(true).expect("a connection");
        Self {
            stream: BufReader::new(stream),
            to,
        }
    }

    /// Returns the status of the answer.
    pub(crate) fn post_json(&mut self, target: &str, body: &str) -> u16 {
        let answers = self.post_all(&[(target, body.to_owned())]);
        answers[0].status
    }

    /// Sends all requests, target and body, before it reads the first answer: the service decides
    /// them within a moment, however busy the machine is.
    pub(crate) fn post_all(&mut self, requests: &[(&str, String)]) -> Vec<Answer> {
        let each = requests.iter().map(|(target, body)| {
            let length = body.len();
            let host = "Host: app.example";
            format!("POST {target} HTTP/1.1\r\n{host}\r\nContent-Length: {length}\r\n\r\n{body}")
        });
        let sent = each.collect::<Vec<_>>().concat();
        let written = self.stream.get_mut().write_all(sent.as_bytes());
        let read = |()| {
            requests
                .iter()
                .map(|_| read_answer(&mut self.stream))
                .collect()
        };
        let answers: io::Result<Vec<_>> = written.and_then(read);
        answers.unwrap_or_else(|error| panic!("{}: {error}", self.to))
    }
}

/// Reads one answer, of the length that it states.
fn read_answer(stream: &mut impl BufRead) -> io::Result<Answer> {
    let strange = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let answer = parse_head(head.trim_end()).ok_or_else(strange)?;
    let length = answer.header("content-length").map_or("0", str::trim);
    let mut body = vec![0; length.parse().map_err(|_| strange())?];
    stream.read_exact(&mut body)?;
    let body = String::from_utf8(body).map_err(|_| strange())?;
    Ok(Answer { body, ..answer })
}

impl Answer {
    /// Returns the value of a header, if it came exactly once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        match (values.next(), values.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }

    /// Returns the stated wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after")?
            .parse()
            .ok()
            .map(Duration::from_secs)
    }
}

/// Returns a complete answer, or `None`.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let mut answer = parse_head(head)?;
    answer.body = if answer.header("transfer-encoding").is_some() {
        unchunk(rest)?
    } else {
        let length = answer
            .header("content-length")
            .and_then(|length| length.parse().ok());
        if length.is_some_and(|length: usize| length != rest.len()) {
            return None;
        }
        rest.to_owned()
    };
    Some(answer)
}

fn parse_head(head: &str) -> Option<Answer> {
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    Some(Answer {
        status,
        headers,
        body: String::new(),
    })
}

fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}
