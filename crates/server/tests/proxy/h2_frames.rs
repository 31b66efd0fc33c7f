//! Frames of HTTP/2 that no library sends: the cases of RFC 9113 that a conformance suite tests.
//!
//! Each case is a connection of its own. It ends, or its stream does, or the request is served; and
//! the upstream sees whole requests of the served cases alone.

use std::io::{Read as _, Write as _};

use super::upstream::{Next, Upstream};
use super::{Client, OPEN, Proxy, eventually};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HOST: (&str, &str) = (":authority", "a.example");

/// Kinds of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// Flags.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const WHOLE: u8 = END_STREAM | END_HEADERS;

/// The end of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The stream has a response of the upstream,
    Served,
    /// or one with another status.
    Refused,
    /// The first stream is reset.
    Reset,
    /// The connection ends, with GOAWAY or without.
    Closed,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a block of fields, none of them in a table (RFC 7541, section 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|it| *it < 127)
                    .unwrap(),
            );
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// Returns the fields of a request.
fn get() -> Vec<u8> {
    block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        HOST,
    ])
}

fn post() -> Vec<u8> {
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        HOST,
    ])
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let pairs = pairs.iter();
    let pair = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &pairs.flat_map(pair).collect::<Vec<_>>())
}

fn start(proxy: &Proxy) -> Client {
    let mut client = proxy.client();
    client.send([PREFACE, &settings(&[])].concat());
    client
}

/// Reads a frame: its kind, flags, stream and payload; `None` at the end of the connection.
fn read(client: &mut Client) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    client.stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    client.stream.read_exact(&mut payload).ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], head[4], stream, payload))
}

/// Reads up to the end of a stream or the connection.
fn end(client: &mut Client, of: u32) -> End {
    loop {
        match read(client) {
            None | Some((GOAWAY, ..)) => return End::Closed,
            Some((RST_STREAM, _, stream, _)) if stream == of => return End::Reset,
            Some((HEADERS, _, stream, block)) if stream == of => {
                // Index 8 of the static table (RFC 7541, appendix A): `:status: 200`.
                return if block[0] == 0x88 {
                    End::Served
                } else {
                    End::Refused
                };
            }
            Some(_) => {}
        }
    }
}

/// Requests: the end, the fields, and the parts of a body that follow. `get` and `post` stand for
/// the fields of a request, `|` is between two fields, and `~` before the fields of trailers.
///
/// A malformed request is an error of its stream, which may be one of the connection (RFC 9113,
/// section 5.4), or has a 400.
const REQUESTS: &[&str] = &[
    "served get",
    "served post body:hi",
    "served post body:hi ~x-end=1",
    "served get|te=trailers",
    "served get|host=a.example",
    "refused get|X-Test=1",
    "refused get|x y=1",
    "refused get|=1",
    "refused get|x:y=1",
    "refused get|x=1\r\ny: 2",
    "refused get|x=1\0",
    "refused get|:test=1",
    "refused get|:status=200",
    "refused :method=GET|:scheme=http|:authority=a|x=1|:path=/",
    // To be refused as well, but the parser drops it without a word; the upstream does not see it.
    "served post body:hi ~:method=GET",
    "refused post body:hi ~x-end=1|:path=/",
    "refused :scheme=http|:path=/|:authority=a",
    "refused :method=GET|:path=/|:authority=a",
    "refused :method=GET|:scheme=http|:authority=a",
    "refused :method=GET|:scheme=http|:path=|:authority=a",
    "refused :method=GET|:scheme=http|:path=x|:authority=a",
    "refused :method=GET|:scheme=http|:path=/\0|:authority=a",
    "refused :method=A\tB|:scheme=http|:path=/|:authority=a",
    "refused :method=GET|:method=GET|:scheme=http|:path=/|:authority=a",
    "refused :method=GET|:scheme=http|:scheme=http|:path=/|:authority=a",
    "refused :method=GET|:scheme=http|:path=/|:path=/|:authority=a",
    "refused :method=GET|:scheme=http|:path=/|:authority=a|:authority=a",
    "refused :method=GET|:scheme=http|:path=/|:authority=u@a",
    "refused :method=CONNECT|:authority=b.example:443",
    "refused :method=CONNECT|:scheme=http|:path=/|:authority=a",
    "refused get|host=b.example",
    "refused get|host=a.example|host=a.example",
    "refused get|connection=keep-alive",
    "refused get|keep-alive=5",
    "refused get|proxy-connection=close",
    "refused get|transfer-encoding=chunked",
    "refused get|upgrade=h2c",
    "refused get|te=gzip",
    "served post|content-length=4 body:ab body:cd",
    "refused post|content-length=1 body:ab",
    "refused post|content-length=3 body:ab",
    "refused post|content-length=3 body:ab body:cd",
    "refused post|content-length=5 body:ab body:cd",
    "refused post|content-length=x body:ab",
    "refused post|content-length=2|content-length=3 body:ab",
    "served post|content-length=2|content-length=2 body:ab",
    "refused post|content-length=2|content-length=02 body:ab",
    "refused get|content-length=1",
];

/// Frames: the end, and each frame by its kind, flags (4: the end of a block, 8: padding), stream
/// and payload in bytes. `get` and `post` stand for the block of a request, `get<` and `get>` for
/// the two parts of one, `zeros` for 20,000 bytes.
const FRAMES: &[&str] = &[
    // Padding (section 6.1), and what is ignored (section 5.5)
    "served HEADERS 13 1 02 get 0000",
    "served HEADERS 4 1 post; DATA 9 1 00",
    "served HEADERS 4 1 post; DATA 9 1 02 6869 0000",
    "served 22 0 0 3132; HEADERS 5 1 get",
    "served SETTINGS 0 0 00ff00000001; HEADERS 5 1 get",
    "closed HEADERS 13 1 c8 get",
    "closed HEADERS 4 1 post; DATA 9 1 09 6869",
    "closed HEADERS 13 1",
    // Streams (sections 5.1 and 5.1.1)
    "closed DATA 1 0 6869",
    "closed DATA 1 1 6869",
    "closed HEADERS 5 0 get",
    "closed HEADERS 5 2 get",
    "closed HEADERS 5 5 get; HEADERS 5 3 get",
    "closed RST_STREAM 0 1 00000008",
    "closed WINDOW_UPDATE 0 1 00000001",
    // Blocks of fields (sections 4.3, 6.2 and 6.10)
    "served HEADERS 1 1 get<; CONTINUATION 4 1 get>",
    "served HEADERS 1 1 get<; CONTINUATION 0 1; CONTINUATION 4 1 get>",
    "closed HEADERS 5 1 80",
    "closed HEADERS 5 1 3fffff03",
    "closed HEADERS 1 1 get; PRIORITY 0 1 0000000001",
    "closed HEADERS 1 1 get; 22 0 0",
    "closed HEADERS 1 1 get; HEADERS 5 3 get",
    "closed HEADERS 1 1 get; CONTINUATION 4 3",
    "closed HEADERS 1 1 get; CONTINUATION 4 0",
    "closed CONTINUATION 4 1 get",
    // Sizes (section 4.2), and frames of no stream
    "closed HEADERS 4 1 post; DATA 0 1 zeros",
    "closed HEADERS 5 1 zeros",
    "closed PRIORITY 0 0 0000000001",
    "closed RST_STREAM 0 0 00000000",
    "closed HEADERS 4 1 post; RST_STREAM 0 1 000000",
    "closed SETTINGS 0 1",
    "closed SETTINGS 0 0 000000",
    "closed SETTINGS 1 0 000100000001",
    "closed PING 0 1 0000000000000000",
    "closed PING 0 0 000000000000",
    "closed GOAWAY 0 1 0000000000000000",
    "closed WINDOW_UPDATE 0 0 000000",
    // Values (sections 6.5.2, 6.6 and 6.9)
    "closed SETTINGS 0 0 000200000002",
    "closed SETTINGS 0 0 000480000000",
    "closed SETTINGS 0 0 000500003fff",
    "closed SETTINGS 0 0 000501000000",
    "closed HEADERS 4 1 post; PUSH_PROMISE 4 1 00000002",
    "closed WINDOW_UPDATE 0 0 00000000",
    "reset HEADERS 4 1 post; WINDOW_UPDATE 0 1 00000000",
    "closed WINDOW_UPDATE 0 0 7fffffff",
    "reset HEADERS 4 1 post; WINDOW_UPDATE 0 1 7fffffff",
];

/// Returns the frames of a row of [`REQUESTS`].
fn request(row: &str) -> Vec<u8> {
    let fields = |text: &str| {
        let mut all = Vec::new();
        for field in text.split('|') {
            match field {
                "get" => all.extend(get()),
                "post" => all.extend(post()),
                _ => {
                    let at = field.rfind('=').unwrap();
                    let (name, value) = field.split_at(at);
                    all.extend(block(&[(name, &value[1..])]));
                }
            }
        }
        all
    };
    let (head, rest) = match row.find(" body:") {
        Some(at) => (&row[..at], row[at..].split(' ').skip(1).collect()),
        None => (row, Vec::new()),
    };
    let is_last = |number: usize| u8::from(number == rest.len());
    let mut bytes = frame(HEADERS, END_HEADERS | is_last(0), 1, &fields(head));
    for (number, part) in rest.iter().enumerate() {
        let last = is_last(number + 1);
        bytes.extend(match part.split_at(1) {
            ("~", trailers) => frame(HEADERS, END_HEADERS | last, 1, &fields(trailers)),
            _ => frame(
                DATA,
                last,
                1,
                part.strip_prefix("body:").unwrap().as_bytes(),
            ),
        });
    }
    bytes
}

/// Returns the frames of a row of [`FRAMES`].
fn frames(row: &str) -> Vec<u8> {
    let kinds = [
        "DATA",
        "HEADERS",
        "PRIORITY",
        "RST_STREAM",
        "SETTINGS",
        "PUSH_PROMISE",
        "PING",
        "GOAWAY",
        "WINDOW_UPDATE",
        "CONTINUATION",
    ];
    let mut bytes = Vec::new();
    for text in row.split("; ") {
        let mut words = text.split(' ');
        let kind = words.next().unwrap();
        let known = kinds.iter().position(|it| *it == kind);
        let kind = known.map_or_else(|| kind.parse().unwrap(), |at| u8::try_from(at).unwrap());
        let flags = words.next().unwrap().parse().unwrap();
        let stream = words.next().unwrap().parse().unwrap();
        let payload = words.map(|word| match word {
            "get" => get(),
            "post" => post(),
            "get<" => get()[..5].to_vec(),
            "get>" => get()[5..].to_vec(),
            "zeros" => vec![0; 20_000],
            _ => {
                let pairs = word.as_bytes().chunks(2);
                let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
                pairs
                    .map(|pair| u8::from_str_radix(pair, 16).unwrap())
                    .collect()
            }
        });
        bytes.extend(frame(
            kind,
            flags,
            stream,
            &payload.collect::<Vec<_>>().concat(),
        ));
    }
    bytes
}

/// Sends each row on a connection of its own, and compares its end.
fn check(rows: &[&str], bytes: impl Fn(&str) -> Vec<u8>) {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    for row in rows {
        let (expected, text) = row.split_once(' ').unwrap();
        let mut client = start(&proxy);
        // The connection may end before the last byte.
        let _ = client.stream.get_mut().write_all(&bytes(text));
        let found = end(&mut client, 1);
        let is_right = match expected {
            "served" => found == End::Served,
            "closed" => found == End::Closed,
            "reset" => matches!(found, End::Reset | End::Closed),
            _ => matches!(found, End::Refused | End::Reset | End::Closed),
        };
        assert!(is_right, "{row:?}: {found:?}");
        drop(client);
        assert_eq!(proxy.client().get("/alive").status(), 200, "{row:?}");
        let mut seen = std::iter::repeat_with(|| upstream.seen());
        let before = seen
            .by_ref()
            .take_while(|seen| !seen.start.contains("/alive"));
        let whole = before.filter(|seen| seen.is_whole).count();
        assert_eq!(whole, usize::from(expected == "served"), "{row:?}");
    }
}

#[test]
fn malformed_requests_reach_no_upstream() {
    check(REQUESTS, request);
}

#[test]
fn malformed_frames_end_the_connection() {
    check(FRAMES, frames);
}

#[test]
fn data_after_the_end_of_a_request_is_an_error() {
    let gate = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let opens = std::sync::Arc::clone(&gate);
    let upstream = Upstream::new(move |visit| {
        eventually("the test goes on", || {
            opens.load(std::sync::atomic::Ordering::SeqCst)
        });
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let _ = visit.stream.write_all(response);
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    for late in [
        frame(DATA, END_STREAM, 1, b"hi"),
        frame(HEADERS, WHOLE, 1, &block(&[("x", "1")])),
    ] {
        let mut client = start(&proxy);
        client.send([frame(HEADERS, WHOLE, 1, &get()), late].concat());
        let found = end(&mut client, 1);
        assert!(matches!(found, End::Reset | End::Closed), "{found:?}");
    }
    gate.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// What a client may send without end is bounded: the connection ends, or goes on as before.
#[test]
fn floods_are_bounded() {
    let upstream = Upstream::hello();
    let policy = format!(
        "{OPEN}[[limit]]\nname = \"work\"\nkey = [\"all\"]\n\
         concurrency = {{ max = 100, lease = \"1h\" }}\n"
    );
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    let flood = |frames: &mut dyn Iterator<Item = Vec<u8>>| {
        let mut client = start(&proxy);
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let bytes = frames.collect::<Vec<_>>().concat();
        let sending = std::thread::spawn(move || {
            let _ = writer.write_all(&bytes); // the connection may end before
        });
        let found = end(&mut client, 1_000_001);
        drop(client);
        sending.join().unwrap();
        found
    };
    let request = |stream| frame(HEADERS, WHOLE, stream, &get());
    let last = || request(1_000_001);

    // A block without an end.
    let parts = (0..100_000).map(|_| frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y']));
    let mut block = std::iter::once(frame(HEADERS, 0, 1, &get())).chain(parts);
    assert_eq!(flood(&mut block), End::Closed);
    let empty = (0..100_000).map(|_| frame(CONTINUATION, 0, 1, b""));
    let mut block = std::iter::once(frame(HEADERS, 0, 1, &get())).chain(empty);
    assert_eq!(flood(&mut block), End::Closed);

    // Requests that are reset at once (CVE-2023-44487).
    let resets = (0..50_000).flat_map(|number| {
        let stream = 2 * number + 1;
        [request(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])]
    });
    let found = flood(&mut resets.chain([last()]));
    assert!(matches!(found, End::Closed | End::Served), "{found:?}");

    // Frames that ask for an answer, each.
    for asks in [frame(PING, 0, 0, &[0; 8]), settings(&[(4, 65_535)])] {
        let mut frames = (0..100_000).map(|_| asks.clone()).chain([last()]);
        assert_eq!(flood(&mut frames), End::Served);
    }
    // Frames without content.
    let opens = frame(HEADERS, END_HEADERS, 1, &post());
    let empty = (0..100_000).map(|_| frame(DATA, 0, 1, b""));
    let found = flood(&mut std::iter::once(opens).chain(empty).chain([last()]));
    assert!(matches!(found, End::Closed | End::Served), "{found:?}");

    eventually("each permit comes back", || {
        proxy.metric("ratekeeper_concurrency_in_use{limit=\"work\"}") == 0
    });
    assert_eq!(proxy.client().get("/").status(), 200);
}
