//! Relay: a server in the middle, whose connections can be slow, or go silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A relay; on command, its existing connections go silent, and stay open.
pub(crate) struct Relay {
    pub(crate) port: u16,
    accepted: Arc<AtomicUsize>,
    silent: Arc<AtomicUsize>,
}

impl Relay {
    /// Starts a relay to `port`, on which each way takes `delay`.
    pub(crate) fn start(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            port: listener.local_addr().unwrap().port(),
            accepted: Arc::default(),
            silent: Arc::default(),
        };
        let (accepted, silent) = (Arc::clone(&relay.accepted), Arc::clone(&relay.silent));
        #[expect(clippy::disallowed_methods, reason = "a network takes its time")]
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                accepted.store(number + 1, Ordering::Relaxed);
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let silent = Arc::clone(&silent);
                    std::thread::spawn(move || {
                        let mut buffer = [0; 4_096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            std::thread::sleep(delay);
                            let lost = number < silent.load(Ordering::Relaxed);
                            if !lost && to.write_all(&buffer[..count]).is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        relay
    }

    /// Makes the existing connections go silent.
    pub(crate) fn falls_silent(&self) {
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.silent.store(accepted, Ordering::Relaxed);
    }
}
