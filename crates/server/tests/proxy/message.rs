//! Messages of HTTP/1.1 as they are on the wire.

use std::io::{self, BufRead};

/// A request or a response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Message {
    /// The request line or the status line.
    pub(crate) start: String,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// True if the body ended as it was announced.
    pub(crate) is_whole: bool,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self.fields.iter().filter(move |(own, _)| own == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Returns the only value of a field; a panic if there are several.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter().filter(|(own, _)| own == name);
        let first = fields.next();
        assert_eq!(fields.next(), None, "{name}");
        first.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Reads a request; `None` at the end of the stream.
pub(crate) fn read_request(stream: &mut impl BufRead) -> Option<Message> {
    read(stream, |_| true)
}

/// Reads the response to a request with `method`, without interim ones.
pub(crate) fn read_response(stream: &mut impl BufRead, method: &str) -> Option<Message> {
    loop {
        let response = read_any_response(stream, method)?;
        if !matches!(response.status(), 100 | 102..=199) {
            return Some(response);
        }
    }
}

/// Reads the next response to a request with `method`, which may be an interim one.
pub(crate) fn read_any_response(stream: &mut impl BufRead, method: &str) -> Option<Message> {
    read(stream, |message| {
        let status = message.status();
        method != "HEAD" && !matches!(status, 100..=199 | 204 | 304)
    })
}

fn read(stream: &mut impl BufRead, has_body: impl Fn(&Message) -> bool) -> Option<Message> {
    let mut message = Message {
        start: line(stream).ok().filter(|line| !line.is_empty())?,
        is_whole: true,
        ..Message::default()
    };
    message.fields = fields(stream).ok()?;
    if !has_body(&message) {
        return Some(message);
    }
    let chunked = message.one("transfer-encoding") == Some("chunked");
    let length = message
        .one("content-length")
        .map(|length| length.parse().unwrap());
    let read = match (chunked, length) {
        (true, _) => chunks(stream, &mut message),
        (false, Some(length)) => {
            let mut body = vec![0; length];
            let mut read = 0;
            while read < length {
                match stream.read(&mut body[read..]) {
                    Ok(0) | Err(_) => break,
                    Ok(more) => read += more,
                }
            }
            body.truncate(read);
            message.body = body;
            if read == length {
                Ok(())
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
        (false, None) if message.start.starts_with("HTTP/") => {
            stream.read_to_end(&mut message.body).map(|_| ())
        }
        (false, None) => Ok(()),
    };
    message.is_whole = read.is_ok();
    Some(message)
}

fn chunks(stream: &mut impl BufRead, message: &mut Message) -> io::Result<()> {
    loop {
        let size = line(stream)?;
        let size = size.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if size == 0 {
            message.trailers = fields(stream)?;
            return Ok(());
        }
        let start = message.body.len();
        message.body.resize(start + size, 0);
        stream.read_exact(&mut message.body[start..])?;
        line(stream)?;
    }
}

fn fields(stream: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok(fields);
        };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.read_until(b'\n', &mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(bytes.len() - 2);
    Ok(bytes.into_iter().map(char::from).collect())
}
