//! Recorder: a relay before the server that records the bytes sent to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::wire::{frame, requests};

/// A relay on a port of its own, for as long as the program runs.
pub(super) struct Recorder {
    pub(super) port: u16,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// Starts a relay before the server at `port`.
    pub(super) fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let relay = listener.local_addr().expect("it is bound").port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    return;
                };
                let both = (client.try_clone(), server.try_clone());
                let (Ok(from_client), Ok(from_server)) = both else {
                    return;
                };
                let kept = Arc::clone(&kept);
                thread::spawn(move || carry(from_client, server, Some(&kept)));
                thread::spawn(move || carry(from_server, client, None));
            }
        });
        Self { port: relay, sent }
    }

    /// Returns the script calls with this number of keys since the last call, each as it was sent.
    pub(super) fn take(&self, keys: usize) -> Vec<Vec<u8>> {
        let bytes = std::mem::take(&mut *self.sent.lock().expect("no lock holder panics"));
        let keys = keys.to_string();
        let calls = requests(&bytes).into_iter();
        calls
            .filter(|words| words[0] == b"EVALSHA" && words[2] == keys.as_bytes())
            .map(|words| frame(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect()
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, kept: Option<&Mutex<Vec<u8>>>) {
    let _ = to.set_nodelay(true);
    let mut buffer = [0; 1 << 14];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(kept) = kept {
            let mut kept = kept.lock().expect("no lock holder panics");
            kept.extend_from_slice(&buffer[..count]);
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
