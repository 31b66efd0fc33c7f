//! Random requests, and the responses to them. Text holds one character for each byte.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use serde_json::Value;

/// Values of fields by name in lower case, in their order.
pub(super) type Fields = BTreeMap<String, Vec<String>>;

/// Numbers of a seed (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most as u64).expect("below a length")
    }

    /// Returns true once in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(super) fn text(&mut self, alphabet: &[u8], most: usize) -> String {
        let length = self.below(most + 1);
        let letters = (0..length).map(|_| char::from(self.pick(alphabet)));
        letters.collect()
    }

    /// Returns a value of a field: any bytes that may stand in one.
    pub(super) fn value(&mut self) -> String {
        let inner = |random: &mut Self| match random.below(20) {
            0 => ' ',
            1 => '\t',
            2 => char::from(0xa1 + u8::try_from(random.below(0x5f)).expect("below 95")),
            _ => char::from(b'!' + u8::try_from(random.below(94)).expect("below 94")),
        };
        let length = self.below(40);
        let value: String = (0..length).map(|_| inner(self)).collect();
        value.trim_matches([' ', '\t']).to_owned()
    }

    /// Returns a body; `most` bytes at most.
    pub(super) fn body(&mut self, most: usize) -> Vec<u8> {
        let most = self.pick(&[0, 1, 10, 1_000, most]);
        let length = self.below(most + 1);
        let mut body = Vec::with_capacity(length + 8);
        while body.len() < length {
            body.extend_from_slice(&self.next().to_le_bytes());
        }
        body.truncate(length);
        body
    }
}

/// A request to an upstream that echoes.
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) target: String,
    /// The target in the form that upstreams receive, and its host.
    pub(super) origin: (String, String),
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
    pub(super) framing: Framing,
}

/// How a message states where its body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Framing {
    /// It has no body.
    Nothing,
    Length,
    Chunks,
}

impl Request {
    /// Writes it, with chunks of random sizes.
    pub(super) fn write(&self, random: &mut Random, bytes: &mut Vec<u8>) {
        let mut put = |text: &str| bytes.extend(text.chars().map(|it| it as u8));
        put(&format!("{} {} HTTP/1.1\r\n", self.method, self.target));
        for (name, value) in &self.fields {
            let space = random.pick(&["", " ", "\t ", "  "]);
            let end = random.pick(&["", "", "", " "]);
            put(&format!("{name}:{space}{value}{end}\r\n"));
        }
        match self.framing {
            Framing::Nothing => put("\r\n"),
            Framing::Length => put(&format!("content-length: {}\r\n\r\n", self.body.len())),
            Framing::Chunks => put("transfer-encoding: chunked\r\n\r\n"),
        }
        if self.framing != Framing::Chunks {
            return bytes.extend_from_slice(&self.body);
        }
        let mut rest = &self.body[..];
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(1 + random.below(rest.len()));
            let extension = random.pick(&["", "", ";a=b"]);
            bytes.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
            rest = more;
        }
        let mut put = |text: &str| bytes.extend(text.chars().map(|it| it as u8));
        put("0\r\n");
        for (name, value) in &self.trailers {
            put(&format!("{name}: {value}\r\n"));
        }
        put("\r\n");
    }
}

/// A response as a client reads it.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Fields,
}

impl Response {
    /// Reads the response to a request with this method.
    pub(super) fn read(stream: &mut impl BufRead, method: &str) -> io::Result<Self> {
        let start = line(stream)?;
        let status = start.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status: u16 = status.ok_or_else(|| io::Error::other(start))?;
        let mut response = Self {
            status,
            fields: fields(stream)?,
            body: Vec::new(),
            trailers: Fields::new(),
        };
        let one = |name: &str| response.fields.get(name).map(|all| &*all[0]);
        if method == "HEAD" || matches!(status, 204 | 304) {
            return Ok(response);
        }
        if let Some(length) = one("content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            response.body = vec![0; length];
            stream.read_exact(&mut response.body)?;
            return Ok(response);
        }
        assert_eq!(one("transfer-encoding"), Some("chunked"), "{response:?}");
        loop {
            let size = line(stream)?;
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            if size == 0 {
                break;
            }
            stream.take(size as u64).read_to_end(&mut response.body)?;
            assert_eq!(line(stream)?, "", "the end of a chunk");
        }
        response.trailers = fields(stream)?;
        Ok(response)
    }
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.read_until(b'\n', &mut bytes)?;
    let text = bytes.strip_suffix(b"\r\n").ok_or_else(|| {
        let cut = String::from_utf8_lossy(&bytes).into_owned();
        io::Error::new(io::ErrorKind::UnexpectedEof, cut)
    });
    Ok(text?.iter().copied().map(char::from).collect())
}

fn fields(stream: &mut impl BufRead) -> io::Result<Fields> {
    let mut fields = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else {
            assert_eq!(line, "", "a line of a head");
            return Ok(by_name(&fields));
        };
        fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
}

/// Returns the values by name.
pub(super) fn by_name(pairs: &[(String, String)]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in pairs {
        let values = fields.entry(name.to_ascii_lowercase()).or_default();
        values.push(value.clone());
    }
    fields
}

/// Returns the pairs that an upstream has written as JSON.
pub(super) fn pairs(json: &Value) -> Vec<(String, String)> {
    let text = |it: &Value| it.as_str().expect("text").to_owned();
    let list = json.as_array().expect("a list");
    let pairs = list.iter().map(|pair| (text(&pair[0]), text(&pair[1])));
    pairs.collect()
}
