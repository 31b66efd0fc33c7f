//! Faults of what takes messages, exports and lines of the log.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use ratekeeper_server::LogWriter;

use super::{POLICY, Scrapes, stay_above, with};
use crate::harness::in_process::InProcess;
use crate::harness::staged::Scrape;

/// One message of an alert is on its way, a thousand wait, and the others are dropped.
pub(super) fn with_a_receiver_that_hangs() -> Scrapes {
    let receiver = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = receiver.local_addr().expect("it is bound");
    let dir = tempfile::tempdir().expect("a directory of its own");
    let secret = format!("whsec_{}\n", "c2VjcmV0".repeat(4));
    std::fs::write(dir.path().join("secret"), secret).expect("it is writable");
    let alerts =
        format!("[alerts]\nwebhook = {{ url = \"http://{url}/\", secret = \"file:secret\" }}\n");
    let service = InProcess::start_with(dir, &with(&alerts), |config| config);
    let before = service.scrape();
    stay_above(&service, "member", 700);
    let dropped = r#"ratekeeper_webhook_messages_total{result="dropped"}"#;
    (before, service.scrape_with(dropped))
}

pub(super) fn with_a_receiver_that_refuses() -> Scrapes {
    let receiver = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = receiver.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in receiver.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 1 << 14]); // a part of the message
            let refused =
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(refused.as_bytes()); // it may have gone
        }
    });
    let otlp = format!("[otlp]\nendpoint = \"http://{url}\"\ninterval = \"1s\"\n");
    let service = InProcess::start(&with(&otlp));
    let before = service.scrape();
    let failed = r#"ratekeeper_otlp_exports_total{signal="metrics",result="failed"}"#;
    (before, service.scrape_with(failed))
}

/// Each event of the service is a line of a log on a full disk.
pub(super) fn without_a_log() -> Scrapes {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let log = LogWriter::new(full.expect("Linux has it")).expect("a thread");
    let lines = log.clone();
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = InProcess::start_with(dir, POLICY, |mut config| {
        config.log = Some(log);
        config.on_event(move |event| {
            let _ = writeln!(lines.clone(), "{event}"); // a log writer takes everything
        })
    });
    let series = "ratekeeper_log_lines_dropped_total";
    (Scrape::default(), service.scrape_with(series))
}
