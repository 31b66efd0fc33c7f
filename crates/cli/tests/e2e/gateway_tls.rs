//! The gateway with TLS and HTTP/2 on both sides: curl and openssl as clients, nginx as the
//! application; and gRPC, with the clients and the server of other languages.
//!
//! `cargo xtask test` brings the latter: `target/grpcio-1.76.0` (`PyPI`),
//! `target/grpc-js-1.14.1` (npm).

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::gateway::{gateway, text};
use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};

const START_WITHIN: Duration = Duration::from_secs(60);
const OPEN: &str = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1000000/1h\"\n";

/// Writes an authority as `ca.pem`, and a certificate and key for each owner.
fn certificates(dir: &Path, owners: &[(&str, &str)]) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
    fs::write(dir.join("ca.pem"), issuer.pem()).expect("the test's directory is writable");
    for (owner, name) in owners {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![(*name).to_owned()]).expect("a name");
        let common = rcgen::DnType::CommonName;
        params.distinguished_name.push(common, *name);
        let signed = params.signed_by(&key, &issuer).expect("it signs others");
        for (end, text) in [("pem", signed.pem()), ("key", key.serialize_pem())] {
            let path = dir.join(format!("{owner}.{end}"));
            fs::write(path, text).expect("the test's directory is writable");
        }
    }
}

fn start(dir: &Path, listener: &str, limits: &str) -> (Process, SocketAddr) {
    let text = format!("version = 1\n[listen.proxy]\n{listener}\n{limits}");
    fs::write(dir.join("ratekeeper.toml"), text).expect("the test's directory is writable");
    gateway(dir, &["run"])
}

/// Starts nginx with TLS and HTTP/2, or HTTP/1.1 alone, which is all that it speaks to upstreams.
fn nginx(dir: &Path, program: &Path) -> (Process, SocketAddr) {
    let address = free_address();
    let at = dir.join("app");
    fs::create_dir_all(&at).expect("the test's directory is writable");
    let (at, keys) = (at.display(), dir.display());
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen {address} ssl http2; server_name localhost;\n\
         ssl_certificate {keys}/app.pem; ssl_certificate_key {keys}/app.key;\n\
         http2_max_concurrent_streams 8; keepalive_requests 50;\n\
         location / {{ default_type text/plain;\n\
         return 200 \"$server_protocol $request_uri $http_host $http_x_forwarded_proto\"; }} }} }}\n"
    );
    let path = dir.join("app/nginx.conf");
    fs::write(&path, config).expect("the test's directory is writable");
    let mut command = Command::new(program);
    command.arg("-p").arg(dir.join("app")).arg("-c").arg(&path);
    let (out, log) = (dir.join("app/out"), dir.join("app/log"));
    let process = Process::start("nginx", &mut command, out, log);
    let listens = clock::poll("nginx", START_WITHIN, || TcpStream::connect(address).ok());
    listens.unwrap_or_else(|error| panic!("{error}"));
    (process, address)
}

#[test]
fn curl_and_openssl_reach_nginx_by_tls_on_both_sides() {
    let (Some(program), Some(_)) = (process::find("nginx"), process::find("curl")) else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let owners = [
        ("site", "a.example"),
        ("shop", "shop.example"),
        ("app", "localhost"),
    ];
    certificates(dir, &owners);
    let (_nginx, application) = nginx(dir, &program);
    let listener = format!(
        "upstream = \"https://localhost:{}\"\nupstream_tls = {{ ca = \"ca.pem\" }}\n\
         connect_timeout = \"30s\"\ntls = [{{ certificate = \"site.pem\", key = \"site.key\" }},\n\
         {{ certificate = \"shop.pem\", key = \"shop.key\" }}]\n",
        application.port()
    );
    let (_service, proxy) = start(dir, &listener, OPEN);
    let ca = dir.join("ca.pem").display().to_string();
    let port = proxy.port();
    for host in ["a.example", "shop.example"] {
        let resolve = format!("{host}:{port}:127.0.0.1");
        let url = format!("https://{host}:{port}/x");
        let expected = format!("HTTP/2.0 /x {host}:{port} https");
        for version in ["--http1.1", "--http2"] {
            let mut arguments = vec!["--cacert", &ca, "--resolve", &resolve, version];
            // More than nginx serves on one connection, so that it goes away now and then.
            arguments.extend(["-Z", "--parallel-max", "20", "-w", "\\n"]);
            let urls: Vec<&str> = (0..120).map(|_| &*url).collect();
            arguments.extend(urls);
            let answers = text(&arguments).replace('\n', ""); // it ends lines later than answers
            assert_eq!(answers, expected.repeat(120), "{version}");
        }
    }
    if process::find("openssl").is_some() {
        for (name, subject) in [
            ("shop.example", "CN = shop.example"),
            ("other.example", "CN = a.example"),
        ] {
            let address = proxy.to_string();
            let mut command = Command::new("openssl");
            command.args(["s_client", "-connect", &address, "-servername", name]);
            command.args(["-alpn", "h2", "-CAfile", &ca]);
            let output = command.stdin(Stdio::null()).output().expect("it runs");
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(shown.contains(subject), "{name}: {shown}");
            assert!(shown.contains("ALPN protocol: h2"), "{name}: {shown}");
        }
    }
}

/// Starts the gRPC server, and the gateway in front of it.
fn with_grpc(dir: &Path, library: &Path) -> (Process, Process, SocketAddr) {
    certificates(dir, &[("site", "localhost")]);
    let address = free_address();
    let mut command = Command::new("python3");
    command
        .args(["-c", include_str!("grpc/server.py")])
        .arg(address.port().to_string())
        .env("PYTHONPATH", library);
    let (out, log) = (dir.join("server.out"), dir.join("server.log"));
    let mut server = Process::start("server.py", &mut command, out, log);
    let listens = clock::poll("server.py", START_WITHIN, || {
        assert_eq!(server.ended(), None, "{}", server.log());
        TcpStream::connect(address).ok()
    });
    listens.unwrap_or_else(|error| panic!("{error}"));
    let listener = format!(
        "upstream = \"h2c://{address}\"\n\
         tls = {{ certificate = \"site.pem\", key = \"site.key\" }}\n"
    );
    let few = "[[limit]]\nname = \"few\"\nmatch = { path = \"/demo.Echo/Few\" }\nkey = [\"all\"]\n\
               limit = \"1/1h\"\n";
    let (service, proxy) = start(dir, &listener, &format!("{OPEN}{few}"));
    (server, service, proxy)
}

fn runs(command: &mut Command, proxy: SocketAddr, dir: &Path) {
    let output = command
        .arg(proxy.port().to_string())
        .arg(dir.join("ca.pem"))
        .output()
        .expect("the client starts");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    assert_eq!(output.stdout, b"done\n", "{shown}");
}

#[test]
fn grpc_clients_of_two_languages_pass_the_gateway() {
    let python = process::carried("target/grpcio-1.76.0/grpc/__init__.py");
    let Some(library) = python.as_deref().and_then(|file| file.ancestors().nth(2)) else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let (_server, _service, proxy) = with_grpc(dir, library);
    let mut client = Command::new("python3");
    client
        .args(["-c", include_str!("grpc/client.py")])
        .env("PYTHONPATH", library);
    runs(&mut client, proxy, dir);
    let node = process::carried("target/grpc-js-1.14.1/node_modules/@grpc/grpc-js/package.json");
    let Some(library) = node.as_deref().and_then(|file| file.ancestors().nth(3)) else {
        return;
    };
    let script = dir.join("client.js");
    fs::write(&script, include_str!("grpc/client.js")).expect("the directory is writable");
    let mut client = Command::new("node");
    client.arg(script).env("NODE_PATH", library);
    runs(&mut client, proxy, dir);
}
