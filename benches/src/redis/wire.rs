//! Wire: one connection, requests as bytes, and the part of the protocol that answers need.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Reply {
    Text(String),
    Number(i64),
    List(Vec<Self>),
    Nothing,
    Error(String),
}

/// A connection.
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    pub(super) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 16, stream),
        })
    }

    /// Sends bytes unchanged.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let sent = self.stream.get_mut().write_all(bytes);
        sent.expect("the server is there while it is measured");
    }

    /// Returns the next answer.
    pub(super) fn receive(&mut self) -> Reply {
        self.read()
            .expect("the server answers while it is measured")
    }

    /// Sends a request and waits for the answer.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Reply {
        self.send(&frame(words));
        self.receive()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let strange = || io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let kind = line.chars().next().ok_or_else(strange)?;
        let rest = &line[1..];
        let number = || rest.parse::<i64>().map_err(|_| strange());
        Ok(match kind {
            '+' => Reply::Text(rest.into()),
            '-' => Reply::Error(rest.into()),
            ':' => Reply::Number(number()?),
            '$' | '*' if rest == "-1" => Reply::Nothing,
            '$' => {
                let length = usize::try_from(number()?).map_err(|_| strange())?;
                let mut bytes = vec![0; length + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            '*' => {
                let parts = (0..number()?).map(|_| self.read());
                Reply::List(parts.collect::<io::Result<_>>()?)
            }
            _ => return Err(strange()),
        })
    }
}

/// Encodes a request.
pub(super) fn frame(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Splits the sent bytes into requests, each a list of words.
pub(super) fn requests(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    fn line<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = &bytes[..end];
        *bytes = &bytes[end + 2..];
        Some(line)
    }
    fn length(bytes: &mut &[u8]) -> Option<usize> {
        let line = line(bytes)?;
        std::str::from_utf8(line.get(1..)?).ok()?.parse().ok()
    }
    fn request(bytes: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
        let count = length(bytes)?;
        let word = |_| {
            let length = length(bytes)?;
            let word = bytes.get(..length)?.to_vec();
            *bytes = bytes.get(length + 2..)?;
            Some(word)
        };
        (0..count).map(word).collect()
    }
    std::iter::from_fn(|| request(&mut bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framed_commands_are_read() {
        let first: [&[u8]; 3] = [b"EVALSHA", b"", b"a\r\nb"];
        let second: [&[u8]; 1] = [b"PING"];
        let bytes = [frame(&first), frame(&second)].concat();
        assert_eq!(requests(&bytes), [first.to_vec(), second.to_vec()]);
        assert_eq!(requests(&bytes[..bytes.len() - 3]), [first.to_vec()]);
    }
}
