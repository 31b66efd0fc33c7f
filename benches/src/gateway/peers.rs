//! Peers: ratekeeper and other proxies in front of one upstream, each as its own guide advises for
//! speed, with a limit that refuses nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::ports::free_port;
use crate::server::Server;

const POLICY: &str = r#"
version = 1
[listen]
max_connections = 20_000
idle_timeout = "600s"
[listen.proxy]
upstream = "http://127.0.0.1:UPSTREAM"
[[limit]]
name   = "per-ip"
key    = ["ip"]
bucket = { size = 4000000000, refill = "1000000000/1s" }
"#;

const NGINX: &str = "
daemon off;
master_process off;
pid DIRECTORY/nginx.pid;
error_log DIRECTORY/nginx.log crit;
worker_rlimit_nofile 20000;
events { worker_connections 15000; }
http {
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path DIRECTORY/b; proxy_temp_path DIRECTORY/p; fastcgi_temp_path DIRECTORY/f;
    uwsgi_temp_path DIRECTORY/u; scgi_temp_path DIRECTORY/s;
    limit_req_zone $binary_remote_addr zone=per_ip:1m rate=1000000r/s;
    upstream application { server 127.0.0.1:UPSTREAM; keepalive 64; keepalive_requests 1000000000; }
    server {
        listen 127.0.0.1:PORT;
        location / {
            limit_req zone=per_ip burst=1000000 nodelay;
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }
    }
}
";

const HAPROXY: &str = "
global
    maxconn 9000
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout http-keep-alive 600s
frontend in
    bind 127.0.0.1:PORT
    stick-table type ip size 100k expire 60s store http_req_rate(10s)
    http-request track-sc0 src
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 2000000000 }
    default_backend application
backend application
    http-reuse always
    server application 127.0.0.1:UPSTREAM
";

const CADDY: &str = "
{
    admin off
    auto_https off
}
http://127.0.0.1:PORT {
    reverse_proxy 127.0.0.1:UPSTREAM
}
";

pub(super) fn ratekeeper(directory: &Path, upstream: u16) -> Server {
    let policy = written(directory, "ratekeeper.toml", POLICY, upstream, 0);
    Server::start(&["gateway", &policy])
}

/// Starts the gateway of another build of this program.
pub(super) fn beside(program: &Path, directory: &Path, upstream: u16) -> Server {
    let policy = written(directory, "ratekeeper.toml", POLICY, upstream, 0);
    Server::of(program, &["gateway", &policy])
}

pub(super) fn nginx(directory: &Path, upstream: u16) -> Option<Server> {
    let port = free_port();
    let path = written(directory, "nginx.conf", NGINX, upstream, port);
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(directory).args(["-c", &path]);
    Server::other(command, port)
}

pub(super) fn haproxy(directory: &Path, upstream: u16) -> Option<Server> {
    let port = free_port();
    let path = written(directory, "haproxy.cfg", HAPROXY, upstream, port);
    let mut command = Command::new("/usr/sbin/haproxy");
    command.args(["-db", "-f", &path]);
    Server::other(command, port)
}

pub(super) fn caddy(directory: &Path, upstream: u16) -> Option<Server> {
    let port = free_port();
    let path = written(directory, "Caddyfile", CADDY, upstream, port);
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config", &path])
        .env("HOME", directory);
    Server::other(command, port)
}

/// Writes a configuration; returns its path.
fn written(directory: &Path, name: &str, text: &str, upstream: u16, port: u16) -> String {
    let text = text
        .replace("DIRECTORY", &directory.display().to_string())
        .replace("UPSTREAM", &upstream.to_string())
        .replace("PORT", &port.to_string());
    let path = directory.join(name);
    fs::write(&path, text).expect("a configuration is written");
    path.display().to_string()
}
