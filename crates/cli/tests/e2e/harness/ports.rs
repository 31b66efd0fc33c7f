//! Ports for servers that have to be told one.
//!
//! ```text
//!   10,000 ...... 19,999   20,000 ...... 29,999      32,768 ............... 60,999
//!   handed out here        their cluster buses       port 0 and clients: the kernel's
//! ```
//!
//! A port that the kernel has just given is free for a moment only: whatever asks for any port,
//! a client that connects too, may be given it again before the server binds it. Then a test
//! talks to the server of another. So these ports are none that the kernel gives.

use std::net::{SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
/// The bus of a cluster's node is so much higher.
const BUS: u16 = 10_000;
/// Processes that run at once begin far from each other.
const STRIDE: u32 = 337;

/// A port of loopback that nobody listens on, handed out once in this process.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(STRIDE);
    for _ in 0..COUNT {
        let next = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from(next % u32::from(COUNT)).expect("below the count");
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
    panic!("no port is free from {FIRST} on");
}

/// The same, as an address.
pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
