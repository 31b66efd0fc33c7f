//! Random requests and responses, compared byte for byte with what the other side received.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::message::{Message, read_response};
use super::upstream::{Next, Upstream};
use super::{Client, Proxy};

const REQUESTS: u32 = 3_000;
const SEED: u64 = 0x5eed_0016;

/// Numbers of a seed (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most as u64).unwrap()
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    pub(crate) fn text(&mut self, alphabet: &[u8], most: usize) -> String {
        let length = self.below(most);
        let letters = (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())]));
        letters.collect()
    }

    /// Returns fields that reach the other side.
    pub(crate) fn fields(&mut self) -> Vec<(String, String)> {
        const NAMES: [&str; 8] = [
            "x-a",
            "X-B",
            "accept",
            "Cookie",
            "x_under",
            "content-type",
            "authorization",
            "x.dot",
        ];
        let visible: Vec<u8> = (b'!'..=b'~').collect();
        let count = self.below(6);
        let pairs = (0..count).map(|_| {
            let name = self.pick(&NAMES).to_owned();
            let value = self.text(&visible, 40);
            (name, value)
        });
        pairs.collect()
    }

    pub(crate) fn body(&mut self) -> Vec<u8> {
        let most = [1, 10, 1_000, 100_000][self.below(4)];
        let length = self.below(most);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// Appends fields and body as a message has them, in chunks or with a length.
    pub(crate) fn write(
        &mut self,
        head: &mut String,
        fields: &[(String, String)],
        body: &[u8],
    ) -> Vec<u8> {
        for (name, value) in fields {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        let chunked = self.below(2) == 0;
        if !chunked {
            write!(head, "content-length: {}\r\n\r\n", body.len()).unwrap();
            let mut bytes = head.clone().into_bytes();
            bytes.extend_from_slice(body);
            return bytes;
        }
        head.push_str("transfer-encoding: chunked\r\n\r\n");
        let mut bytes = head.clone().into_bytes();
        let mut rest = body;
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(1 + self.below(rest.len()));
            write!(bytes, "{:X}\r\n", chunk.len()).unwrap();
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
            rest = more;
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }
}

/// Returns the values by name, in their order, without those of the connection and the proxy.
pub(crate) fn end_to_end(message: &Message) -> BTreeMap<&str, Vec<String>> {
    const OTHERS: [&str; 14] = [
        "host",
        "date",
        "connection",
        "content-length",
        "transfer-encoding",
        "via",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-request-id",
        "ratelimit",
        "ratelimit-policy",
        "keep-alive",
    ];
    let mut fields: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in &message.fields {
        if !OTHERS.contains(&&**name) {
            fields.entry(name).or_default().push(value.clone());
        }
    }
    // The gateway sends all cookies in one field; nginx does not.
    if let Some(cookies) = fields.get_mut("cookie") {
        *cookies = vec![cookies.join("; ").trim_end().to_owned()];
    }
    fields
}

fn lower(fields: &[(String, String)]) -> Message {
    let pairs = fields.iter();
    let fields = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    Message {
        fields: fields.collect(),
        ..Message::default()
    }
}

#[test]
fn what_one_side_sends_the_other_receives() {
    let (responses, next) = channel::<Vec<u8>>();
    let next = Mutex::new(next);
    let upstream = Upstream::new(move |visit| {
        let response = next.lock().unwrap().recv().unwrap();
        visit.stream.write_all(&response).unwrap();
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    let mut random = Random::new(SEED);
    let mut client = Client::new(proxy.address());
    for number in 0..REQUESTS {
        if random.below(50) == 0 {
            client = Client::new(proxy.address());
        }
        let method = random.pick(&[
            "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "REPORT", "HEAD",
        ]);
        let path = random.text(b"abcXYZ019-._~!$&'()*+,;=:@%/", 30);
        let path = path.replace('%', "%2F");
        let query = random.text(b"abc=&%+/?19[]", 20).replace('%', "%3d");
        let target = format!("/{number}/{path}?{query}");
        let (sent, sent_body) = (random.fields(), random.body());
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: a.example\r\n");
        let request = random.write(&mut head, &sent, &sent_body);

        let status = random.pick(&[
            "200", "201", "206", "302", "404", "418", "500", "503", "599",
        ]);
        let (given, given_body) = (random.fields(), random.body());
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        let mut response = random.write(&mut head, &given, &given_body);
        if method == "HEAD" {
            response = head.into_bytes();
        }
        responses.send(response).unwrap();

        client.send(&request);
        let received = read_response(&mut client.stream, method).expect("no response");
        let seen = upstream.seen();
        assert_eq!(
            seen.start,
            format!("{method} {target} HTTP/1.1"),
            "request {number}"
        );
        assert_eq!(
            end_to_end(&seen),
            end_to_end(&lower(&sent)),
            "request {number}"
        );
        assert!(
            seen.body == sent_body && seen.is_whole,
            "body of request {number}"
        );
        assert_eq!(received.status().to_string(), status, "request {number}");
        assert_eq!(
            end_to_end(&received),
            end_to_end(&lower(&given)),
            "response {number}"
        );
        if method != "HEAD" {
            assert!(
                received.body == given_body && received.is_whole,
                "response {number}"
            );
        }
    }
    let connections = upstream
        .connections
        .load(std::sync::atomic::Ordering::SeqCst);
    assert!(connections <= 8, "connections are kept: {connections}");
}
