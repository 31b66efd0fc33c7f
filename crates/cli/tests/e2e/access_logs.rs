//! The access logs of real programs: each receives the same requests, and `ratekeeper replay` reads
//! its log without a format, with the same results.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::free_address;
use crate::harness::process::{Process, find};
use crate::harness::visitor::Visitor;
use crate::harness::{clock, envoy};

const START_WITHIN: Duration = Duration::from_secs(60);
/// Envoy writes its logs every ten seconds.
const LOGGED_WITHIN: Duration = Duration::from_secs(30);

const POLICY: &str = r#"
version = 1

[[limit]]
name   = "per-ip"
key    = ["ip"]
bucket = { size = 5, refill = "1/24h" }

[[limit]]
name   = "login"
match  = { path = "/login", method = "POST" }
key    = ["all"]
mode   = "shadow"
bucket = { size = 2, refill = "1/24h" }

[[limit]]
name   = "search"
match  = { query.q = "a b" }
key    = ["path"]
mode   = "shadow"
bucket = { size = 1, refill = "1/24h" }
"#;

/// Last numbers of the loopback addresses of the clients, and their requests: 20 in all.
const REQUESTS: [(u8, &str, &str, usize); 6] = [
    (2, "POST", "/login", 4),
    (2, "GET", "/a/b.html", 6),
    (3, "GET", "/search?q=a%20b&x=%22", 3),
    (2, "GET", "//a/%5B%22%5D/%7Bid%7D?", 2),
    (3, "PUT", "/caf%C3%A9/~a,b;c", 2),
    (2, "DELETE", "/search?q=a+b", 3),
];

/// A directory with a policy, in which a program runs.
struct Site {
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let site = Self {
            dir,
            address: free_address(),
        };
        site.write("policy.toml", POLICY);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let text = text
            .replace("@ADDRESS", &self.address.to_string())
            .replace("@PORT", &self.address.port().to_string())
            .replace("@DIR", &self.dir.path().display().to_string());
        fs::write(self.path(name), text).expect("the test's directory is writable");
        self.path(name)
    }

    fn start(&self, name: &'static str, command: &mut Command) -> Process {
        let out = self.path(&format!("{name}.out"));
        let log = self.path(&format!("{name}.log"));
        let command = command.current_dir(self.dir.path());
        let mut process = Process::start(name, command, out, log);
        let ready = clock::poll("listening program", START_WITHIN, || {
            assert!(process.ended().is_none(), "{name} ended at its start");
            TcpStream::connect(self.address).ok()
        });
        ready.unwrap_or_else(|error| panic!("{error}"));
        process
    }

    /// Sends the requests, and replays each of these logs.
    fn visit(&self, logs: &[&str]) {
        for (client, method, target, times) in REQUESTS {
            let visitor = Visitor::at(client)
                .with("User-Agent", r#"a "quoted" \ agent [1]"#)
                .with("Referer", "http://other.example/?a=b");
            for _ in 0..times {
                let answer = visitor.ask(self.address, method, target);
                answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"));
            }
        }
        for log in logs {
            let path = self.path(log);
            let text = || fs::read_to_string(&path).unwrap_or_default();
            let written = clock::poll("20 lines", LOGGED_WITHIN, || {
                (text().lines().count() >= 20).then_some(())
            });
            written.unwrap_or_else(|error| panic!("{log}: {error}:\n{}", text()));
            let report = replay(self.dir.path(), &path);
            let counts = |limit: &Value| {
                json!([
                    limit["requests"],
                    limit["refused"],
                    limit["clients"],
                    limit["clients_hit"]
                ])
            };
            let limits = report["limits"].as_array().expect("limits").iter();
            let found: Vec<Value> = limits.map(counts).collect();
            let totals = ["lines", "decided", "skipped"].map(|name| report[name].clone());
            assert_eq!(totals, [20, 20, 0], "{report:#}\n{}", text());
            let expected = [[20, 10, 2, 1], [4, 2, 1, 1], [6, 5, 2, 2]];
            assert_eq!(json!(found), json!(expected), "{report:#}\n{}", text());
        }
    }
}

fn replay(dir: &Path, log: &Path) -> Value {
    let run = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .arg("replay")
        .arg(dir.join("policy.toml"))
        .arg(log)
        .arg("--json")
        .output()
        .expect("the command runs");
    let error = String::from_utf8_lossy(&run.stderr);
    let text = fs::read_to_string(log).unwrap_or_default();
    assert!(run.status.success(), "{error}\n{text}");
    serde_json::from_slice(&run.stdout).expect("it prints JSON")
}

#[test]
fn nginx_is_read() {
    let Some(program) = find("nginx") else {
        return;
    };
    let site = Site::new();
    let config = site.write(
        "nginx.conf",
        r#"daemon off; pid nginx.pid; error_log stderr notice; events {}
http {
  client_body_temp_path client; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  log_format own '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
                 '"$http_referer" "$http_user_agent" "$http_x_forwarded_for" $request_time "$host"';
  log_format lines escape=json '{"time":"$time_iso8601","remote_addr":"$remote_addr","host":"$host",'
    '"request":"$request","status":$status,"request_time":$request_time,'
    '"http_user_agent":"$http_user_agent"}';
  access_log combined.log combined; access_log own.log own; access_log json.log lines;
  server { listen @ADDRESS; location / { return 200 "ok\n"; } location /login { return 403; } }
}"#,
    );
    let mut command = Command::new(program);
    command.arg("-p").arg(site.dir.path()).arg("-c").arg(config);
    let _nginx = site.start("nginx", command.args(["-e", "stderr"]));
    site.visit(&["combined.log", "own.log", "json.log"]);
}

#[test]
fn apache_is_read() {
    let Some(program) = find("apache2") else {
        return;
    };
    let site = Site::new();
    let modules = "/usr/lib/apache2/modules"; // where Debian puts them
    let config = r#"ServerRoot @DIR
ServerName app.example
PidFile @DIR/apache.pid
Mutex file:@DIR
Listen @ADDRESS
ErrorLog /dev/stderr
User www-data
Group www-data
DocumentRoot @DIR
LogFormat "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" combined
LogFormat "%h %l %u %t \"%r\" %>s %b" common
CustomLog @DIR/combined.log combined
CustomLog @DIR/common.log common
"#;
    let needed = ["mpm_event", "authz_core"];
    let needed = needed.map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"));
    let config = site.write("apache.conf", &(needed.concat() + config));
    let mut command = Command::new(program);
    let _apache = site.start("apache2", command.arg("-f").arg(config).arg("-DFOREGROUND"));
    site.visit(&["combined.log", "common.log"]);
}

#[test]
fn caddy_is_read() {
    let Some(program) = find("caddy") else {
        return;
    };
    let site = Site::new();
    let config = site.write(
        "Caddyfile",
        "{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n}\nhttp://:@PORT {\n\
         \tlog {\n\t\toutput file @DIR/access.log\n\t}\n\trespond \"ok\"\n}\n",
    );
    let mut command = Command::new(program);
    for home in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env(home, site.dir.path());
    }
    command.args(["run", "--adapter", "caddyfile", "--config"]);
    let _caddy = site.start("caddy", command.arg(config));
    site.visit(&["access.log"]);
}

#[test]
fn haproxy_is_read() {
    let Some(program) = find("haproxy") else {
        return;
    };
    let site = Site::new();
    let config = site.write(
        "haproxy.cfg",
        "global\n  noreuseport\n  log stdout format raw local0 info\n\
         defaults\n  mode http\n  log global\n  option httplog\n  option dontlognull\n  \
         timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n\
         frontend site\n  bind @ADDRESS\n  http-request capture req.hdr(User-Agent) len 30\n  \
         http-request return status 200\n",
    );
    let mut command = Command::new(program);
    let _haproxy = site.start("haproxy", command.arg("-db").arg("-f").arg(config));
    site.visit(&["haproxy.out"]);
}

#[test]
fn envoy_is_read() {
    let site = Site::new();
    let config = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: @PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: site
          use_remote_address: true
          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: @DIR/text.log
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: @DIR/json.log
              log_format:
                json_format:
                  start_time: "%START_TIME%"
                  method: "%REQ(:METHOD)%"
                  path: "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"
                  protocol: "%PROTOCOL%"
                  response_code: "%RESPONSE_CODE%"
                  duration: "%DURATION%"
                  x_forwarded_for: "%REQ(X-FORWARDED-FOR)%"
                  user_agent: "%REQ(USER-AGENT)%"
                  authority: "%REQ(:AUTHORITY)%"
                  downstream_remote_address: "%DOWNSTREAM_REMOTE_ADDRESS%"
          route_config:
            virtual_hosts:
            - name: site
              domains: ["*"]
              routes:
              - match: { prefix: "/" }
                direct_response: { status: 200 }
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"#;
    let config = site.write("config.yaml", config);
    let config = fs::read_to_string(config).expect("it was written");
    let Some(_envoy) = envoy::start(site.dir.path(), &config, site.address) else {
        return;
    };
    site.visit(&["text.log", "json.log"]);
}
