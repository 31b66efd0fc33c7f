//! Random requests through the gateway to real servers, compared byte for byte with what these saw
//! and sent: Node's `http` and Python's `http.server` echo, nginx stores files and serves them.
//!
//! ```text
//!   12 connections, kept, ---> gateway ---> Node, Python: x-seen, the request that they read
//!   requests in batches            '------> nginx: a file, whose bytes the test reads
//! ```
//!
//! A failure names the seed of its connection.

mod message;
mod nginx;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use self::message::{Fields, Framing, Random, Request, Response, by_name, pairs};
use crate::cases::cases;
use crate::gateway::gateway;
use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};

/// Connections to each upstream's gateway.
const CONNECTIONS: usize = 4;
const SEED: u64 = 0x5eed_0062;
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum length of a body that is sent with other requests in one batch: larger ones would fill
/// the buffers of both sides.
const SMALL: usize = 2_000;
const LARGE: usize = 200_000;
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000000/1h\"\n";

/// Fields of a connection, of the gateway itself, or with the time.
const OTHERS: [&str; 6] = [
    "connection",
    "keep-alive",
    "date",
    "server",
    "ratelimit",
    "ratelimit-policy",
];

#[test]
fn upstreams_see_what_clients_send_and_clients_what_upstreams_answer() {
    let programs = ["node", "python3", "nginx"].map(process::find);
    let [Some(node), Some(python), Some(nginx)] = programs else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let echo = |name, program: &Path, text: &str| {
        let file = dir.join(name);
        fs::write(&file, text).expect("the test's directory is writable");
        let address = free_address();
        let mut command = Command::new(program);
        command.arg(&file).arg(address.port().to_string());
        (start(dir, name, &mut command, address), address)
    };
    let node = echo("node", &node, include_str!("gateway_random/echo.js"));
    let python = echo("python", &python, include_str!("gateway_random/echo.py"));
    let nginx = nginx::start_files(dir, &nginx);
    let total: usize = cases(3_000, 12_000);
    let each = total.div_ceil(3 * CONNECTIONS);
    let listeners = [("node", node.1), ("python", python.1), ("nginx", nginx.1)];
    let gateways = listeners.map(|(name, upstream)| {
        let home = dir.join(format!("gateway-{name}"));
        fs::create_dir(&home).expect("the test's directory is writable");
        let policy =
            format!("version = 1\n[listen.proxy]\nupstream = \"http://{upstream}\"\n{OPEN}");
        fs::write(home.join("ratekeeper.toml"), policy).expect("it is writable");
        gateway(&home, &["run"])
    });
    std::thread::scope(|scope| {
        for (number, (_, proxy)) in gateways.iter().enumerate() {
            for connection in 0..CONNECTIONS {
                let seed = SEED + (number * CONNECTIONS + connection) as u64;
                let serves_files = number == 2;
                scope.spawn(move || {
                    if serves_files {
                        nginx::ask(dir, *proxy, (seed, each));
                    } else {
                        ask(*proxy, (seed, each));
                    }
                });
            }
        }
    });
}

/// Starts an upstream, and waits until it listens.
fn start(dir: &Path, name: &'static str, command: &mut Command, at: SocketAddr) -> Process {
    let (out, log) = (
        dir.join(format!("{name}.out")),
        dir.join(format!("{name}.log")),
    );
    let process = Process::start(name, command, out, log);
    let listens = clock::poll(name, PATIENCE, || TcpStream::connect(at).ok());
    listens.unwrap_or_else(|error| panic!("{error}"));
    process
}

fn connect(proxy: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(proxy).expect("the gateway listens");
    stream.set_nodelay(true).expect("a TCP stream");
    for side in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        side(&stream, Some(PATIENCE)).expect("a TCP stream");
    }
    BufReader::new(stream)
}

/// Sends `total` requests in batches to an upstream that echoes, and compares each response.
fn ask(proxy: SocketAddr, (seed, total): (u64, usize)) {
    let mut random = Random(seed);
    let mut stream = connect(proxy);
    let mut asked = 0;
    while asked < total {
        if random.once_in(100) {
            stream = connect(proxy);
        }
        let is_large = random.once_in(50);
        let count = if is_large { 1 } else { 1 + random.below(8) };
        let most = if is_large { LARGE } else { SMALL };
        let batch: Vec<Request> = (0..count)
            .map(|step| request(&mut random, asked + step, most))
            .collect();
        let mut bytes = Vec::new();
        for request in &batch {
            request.write(&mut random, &mut bytes);
        }
        stream
            .get_mut()
            .write_all(&bytes)
            .expect("the gateway reads");
        for request in &batch {
            let context = format!(
                "seed {seed:#x}, request {asked}: {} {}",
                request.method, request.target
            );
            let response = Response::read(&mut stream, request.method);
            let response = response.unwrap_or_else(|error| panic!("{context}: {error}"));
            compare(request, response, &context);
            asked += 1;
        }
    }
}

fn request(random: &mut Random, number: usize, most: usize) -> Request {
    let method = random.pick(&[
        "GET", "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "REPORT", "HEAD",
    ]);
    let path = random.text(b"abcXYZ019-._~!$&'()*+,;=:@%/", 30);
    let query = random.text(b"abc=&%+/?19[]{}|^`", 20);
    let path = path.replace('%', "%2F");
    let origin = format!("/{number}/{path}?{}", query.replace('%', "%3d"));
    let host = random.pick(&["a.example", "b.example:8080", "[::1]:80", "C.Example"]);
    let (mut target, mut seen_host) = (origin.clone(), host);
    if random.once_in(20) {
        // The host of the target wins (RFC 9112, section 3.2.2).
        seen_host = "absolute.example";
        target = format!("http://{seen_host}{origin}");
    }
    let body = random.body(most);
    let framing = match (body.is_empty(), random.below(3)) {
        (true, 0) if matches!(method, "GET" | "HEAD" | "OPTIONS" | "DELETE") => Framing::Nothing,
        (_, 1) => Framing::Chunks,
        _ => Framing::Length,
    };
    let mut fields = vec![("Host".to_owned(), host.to_owned())];
    let mut trailers = Vec::new();
    put_fields(random, &mut fields);
    let mut connection = random.pick(&["", "keep-alive", "X-Dropped", "keep-alive, x-dropped,"]);
    if framing == Framing::Chunks && random.once_in(2) {
        let mut put = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
        put("Trailer", "x-end");
        put("TE", "trailers");
        trailers.push(("x-end".to_owned(), random.value()));
        if connection.is_empty() {
            connection = "keep-alive";
        }
    }
    if !connection.is_empty() {
        fields.push(("Connection".to_owned(), format!("{connection}, te")));
    }
    Request {
        method,
        target,
        origin: (origin, seen_host.to_owned()),
        fields,
        body,
        trailers,
        framing,
    }
}

/// Adds the fields of a request that steer its answer, and some that the gateway forwards, removes,
/// or continues.
fn put_fields(random: &mut Random, fields: &mut Vec<(String, String)>) {
    const NAMES: [&str; 19] = [
        "x-a",
        "X-B",
        "accept",
        "Cookie",
        "x_under",
        "Content-Type",
        "authorization",
        "x.dot",
        "y-a",
        "Y-B",
        "y-a",
        "x!#$%&'*+^`|~1",
        "x-dropped",
        "Proxy-Connection",
        "Keep-Alive",
        "X-Forwarded-For",
        "x_forwarded_host",
        "X-Ratekeeper-Shadow",
        "Via",
    ];
    const STATUSES: [&str; 10] = [
        "200", "201", "204", "206", "302", "304", "404", "418", "500", "503",
    ];
    for _ in 0..random.below(7) {
        let name = random.pick(&NAMES);
        let value = match name {
            "Via" => "1.0 before".to_owned(),
            _ => random.value(),
        };
        fields.push((name.to_owned(), value));
    }
    let mut put = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
    put("x-status", random.pick(&STATUSES));
    put("x-framing", random.pick(&["chunked", "length"]));
}

/// Returns the fields that the upstream must see.
fn expected(request: &Request) -> Fields {
    let mut fields = by_name(&request.fields);
    let drops = |all: &Vec<String>| all[0].to_ascii_lowercase().contains("x-dropped");
    if fields.remove("connection").is_some_and(|all| drops(&all)) {
        fields.remove("x-dropped");
    }
    for name in [
        "proxy-connection",
        "keep-alive",
        "te",
        "x_forwarded_host",
        "x-ratekeeper-shadow",
    ] {
        fields.remove(name);
    }
    if let Some(cookies) = fields.get_mut("cookie") {
        *cookies = vec![cookies.join("; ").trim_end().to_owned()];
    }
    let mut put = |name: &str, value: String| fields.insert(name.to_owned(), vec![value]);
    let host = &request.origin.1;
    put("host", host.clone());
    put("x-forwarded-for", "127.0.0.1".to_owned());
    put("x-forwarded-host", host.clone());
    put("x-forwarded-proto", "http".to_owned());
    put(
        "forwarded",
        format!("for=127.0.0.1;host=\"{host}\";proto=http"),
    );
    if !request.trailers.is_empty() {
        put("te", "trailers".to_owned());
        put("connection", "te".to_owned());
    }
    match request.framing {
        Framing::Nothing => {}
        Framing::Length => drop(put("content-length", request.body.len().to_string())),
        Framing::Chunks => drop(put("transfer-encoding", "chunked".to_owned())),
    }
    let mut via = fields.remove("via").unwrap_or_default();
    via.push("1.1 ratekeeper".to_owned());
    fields.insert("via".to_owned(), vec![via.join(", ")]);
    fields
}

/// Compares what the upstream has seen, and what the client receives.
fn compare(request: &Request, mut response: Response, context: &str) {
    let field = |name: &str| {
        let mut named = request.fields.iter().filter(|(own, _)| own == name);
        named.next().expect("each request has it").1.as_str()
    };
    let seen = response.fields.remove("x-seen");
    let seen = seen.unwrap_or_else(|| panic!("{context}: {response:?}"));
    let seen: Value = serde_json::from_str(&seen[0]).expect("the upstream writes JSON");
    let line = format!("{} {} HTTP/1.1", request.method, request.origin.0);
    assert_eq!(seen["line"], line, "{context}");
    let mut fields = by_name(&pairs(&seen["fields"]));
    let id = fields.remove("x-request-id");
    assert!(
        id.is_some_and(|ids| ids.len() == 1 && !ids[0].is_empty()),
        "{context}"
    );
    assert_eq!(fields, expected(request), "{context}");
    let trailers = pairs(&seen["trailers"]);
    assert_eq!(trailers, request.trailers, "{context}");
    assert_eq!(seen["bytes"], request.body.len(), "{context}");

    assert_eq!(response.status.to_string(), field("x-status"), "{context}");
    let sent = request.fields.iter();
    let own = sent.filter(|(name, _)| name.to_ascii_lowercase().starts_with("y-"));
    let own: Vec<_> = own.cloned().collect();
    let mut answered = by_name(&own);
    let is_head = request.method == "HEAD";
    let has_body = !matches!(response.status, 204 | 304);
    let mut put = |name: &str, value: String| answered.insert(name.to_owned(), vec![value]);
    match field("x-framing") {
        "length" if has_body => drop(put("content-length", request.body.len().to_string())),
        "chunked" if has_body && !is_head => {
            put("transfer-encoding", "chunked".to_owned());
            if !trailers.is_empty() {
                put("trailer", "x-end".to_owned());
            }
        }
        _ => {}
    }
    assert!(response.fields.contains_key("ratelimit"), "{context}");
    let mut received = response.fields;
    received.retain(|name, _| !OTHERS.contains(&&**name));
    assert_eq!(received, answered, "{context}");
    if has_body && !is_head {
        assert!(response.body == request.body, "{context}: the body differs");
        let passes = field("x-framing") == "chunked";
        let trailers = if passes {
            by_name(&trailers)
        } else {
            BTreeMap::new()
        };
        assert_eq!(response.trailers, trailers, "{context}");
    }
}
