//! nginx as the application: it stores the bodies of PUT, serves them whole, in part or not at all,
//! and names the variables of a request.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::message::{Fields, Framing, Random, Request, Response};
use super::{LARGE, SMALL, connect, start};
use crate::harness::free_address;
use crate::harness::process::Process;

/// Names of fields, and of their variables.
const NAMED: [(&str, &str); 4] = [
    ("x-a", "$http_x_a"),
    ("Accept", "$http_accept"),
    ("Cookie", "$http_cookie"),
    ("User-Agent", "$http_user_agent"),
];

/// Starts nginx with its files in `nginx/files`.
pub(super) fn start_files(dir: &Path, program: &Path) -> (Process, SocketAddr) {
    let address = free_address();
    let home = dir.join("nginx");
    fs::create_dir_all(home.join("files")).expect("the test's directory is writable");
    let at = home.display();
    let variables = NAMED.map(|(_, variable)| variable).join("\\n");
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log crit;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         large_client_header_buffers 8 16k; keepalive_requests 1000000; keepalive_timeout 600s;\n\
         merge_slashes off; default_type text/plain; server_tokens off;\n\
         server {{ listen {address} backlog=512;\n\
         location / {{ root {at}/files; dav_methods PUT DELETE; }}\n\
         location /named {{ return 200 \"$request\\n$http_host\\n$http_via\\n\
         $http_x_forwarded_for\\n{variables}\"; }} }} }}\n"
    );
    let path = home.join("nginx.conf");
    fs::write(&path, config).expect("the test's directory is writable");
    let mut command = Command::new(program);
    command
        .arg("-p")
        .arg(&home)
        .arg("-c")
        .arg(&path)
        .args(["-e", "stderr"]);
    (start(dir, "nginx", &mut command, address), address)
}

/// The file of a connection.
struct Stored {
    name: String,
    body: Option<Vec<u8>>,
    etag: Option<String>,
}

/// Sends `total` requests about a file of this connection, one at a time.
pub(super) fn ask(dir: &Path, proxy: SocketAddr, (seed, total): (u64, usize)) {
    let mut random = Random(seed);
    let mut stream = connect(proxy);
    let mut file = Stored {
        name: format!("{seed:x}"),
        body: None,
        etag: None,
    };
    for number in 0..total {
        if random.once_in(200) {
            stream = connect(proxy);
        }
        let step = random.below(8);
        let mut request = Request {
            method: ["PUT", "PUT", "DELETE", "HEAD", "GET", "GET", "GET", "GET"][step],
            target: format!("/{}", file.name),
            origin: (String::new(), String::new()),
            fields: vec![("Host".to_owned(), "a.example".to_owned())],
            body: Vec::new(),
            trailers: Vec::new(),
            framing: Framing::Nothing,
        };
        let kind = file.prepare(step, &mut request, &mut random);
        let mut bytes = Vec::new();
        request.write(&mut random, &mut bytes);
        stream
            .get_mut()
            .write_all(&bytes)
            .expect("the gateway reads");
        let context = format!(
            "seed {seed:#x}, request {number}: {} {kind:?}",
            request.method
        );
        let response = Response::read(&mut stream, request.method);
        let response = response.unwrap_or_else(|error| panic!("{context}: {error}"));
        file.compare(&kind, &request, response, &context);
        if request.method == "PUT" {
            let stored = fs::read(dir.join("nginx/files").join(&file.name));
            let stored = stored.expect("nginx has stored it");
            assert!(stored == request.body, "{context}: the stored bytes differ");
        }
    }
}

/// What a request asks of the file.
#[derive(Debug)]
enum Kind {
    Store,
    Remove,
    Whole,
    Range(usize, usize),
    Unchanged,
    /// No file, but the lines that nginx answers.
    Named(Vec<String>),
}

impl Stored {
    fn prepare(&self, step: usize, request: &mut Request, random: &mut Random) -> Kind {
        let length = self.body.as_ref().map_or(0, Vec::len);
        match step {
            0 | 1 => {
                let most = if random.once_in(10) { LARGE } else { SMALL };
                request.body = random.body(most);
                request.framing = random.pick(&[Framing::Length, Framing::Chunks]);
                Kind::Store
            }
            2 => Kind::Remove,
            5 if length > 0 => {
                let first = random.below(length);
                let last = first + random.below(length - first);
                request
                    .fields
                    .push(("Range".to_owned(), format!("bytes={first}-{last}")));
                Kind::Range(first, last)
            }
            6 if self.etag.is_some() => {
                let etag = self.etag.clone().expect("there is one");
                request.fields.push(("If-None-Match".to_owned(), etag));
                Kind::Unchanged
            }
            7 => {
                let query = random.text(b"abc=&%+/?19[]{}|^`", 40).replace('%', "%3d");
                let path = random
                    .text(b"abcXYZ019-_~!$&'()*+,;=:@%/", 40)
                    .replace('%', "%2F");
                request.target = format!("/named{path}?{query}");
                let mut lines = vec![
                    format!("GET {} HTTP/1.1", request.target),
                    "a.example".to_owned(),
                    "1.1 ratekeeper".to_owned(),
                    "127.0.0.1".to_owned(),
                ];
                for (name, _) in NAMED {
                    let value = random.value();
                    request.fields.push((name.to_owned(), value.clone()));
                    lines.push(value);
                }
                Kind::Named(lines)
            }
            _ => Kind::Whole,
        }
    }

    fn compare(&mut self, kind: &Kind, request: &Request, response: Response, context: &str) {
        let Response {
            status,
            fields,
            body,
            ..
        } = response;
        assert!(fields.contains_key("ratelimit"), "{context}");
        let one = |name: &str| one(&fields, name, context);
        match (kind, &self.body) {
            (Kind::Named(lines), _) => {
                assert_eq!(status, 200, "{context}");
                let text: String = body.iter().copied().map(char::from).collect();
                assert_eq!(text, lines.join("\n"), "{context}");
            }
            (Kind::Store, before) => {
                let expected = if before.is_some() { 204 } else { 201 };
                assert_eq!(status, expected, "{context}");
                self.body = Some(request.body.clone());
                self.etag = None;
            }
            (_, None) => assert_eq!(status, 404, "{context}"),
            (Kind::Remove, Some(_)) => {
                assert_eq!((status, body.len()), (204, 0), "{context}");
                (self.body, self.etag) = (None, None);
            }
            (Kind::Unchanged, Some(_)) => {
                assert_eq!((status, one("content-length")), (304, None), "{context}");
                assert_eq!(one("etag"), self.etag, "{context}");
            }
            (Kind::Range(first, last), Some(stored)) => {
                assert_eq!(status, 206, "{context}");
                let range = format!("bytes {first}-{last}/{}", stored.len());
                assert_eq!(one("content-range"), Some(range), "{context}");
                assert!(
                    body == stored[*first..=*last],
                    "{context}: the body differs"
                );
            }
            (Kind::Whole, Some(stored)) => {
                let length = stored.len().to_string();
                assert_eq!(
                    (status, one("content-length")),
                    (200, Some(length)),
                    "{context}"
                );
                assert_eq!(one("accept-ranges").as_deref(), Some("bytes"), "{context}");
                assert!(one("last-modified").is_some(), "{context}");
                let is_head = request.method == "HEAD";
                let whole: &[u8] = if is_head { &[] } else { stored };
                assert!(body == whole, "{context}: the body differs");
                self.etag = one("etag");
            }
        }
    }
}

/// Returns the only value of a field.
fn one(fields: &Fields, name: &str, context: &str) -> Option<String> {
    let values = fields.get(name)?;
    assert_eq!(values.len(), 1, "{context}: {name}");
    Some(values[0].clone())
}
