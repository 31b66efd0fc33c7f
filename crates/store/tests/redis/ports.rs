//! Ports for servers that cannot choose one themselves.
//!
//! ```text
//!   10,000 ...... 19,999   20,000 ...... 29,999      32,768 ............... 60,999
//!   handed out here        their cluster buses       port 0 and clients: the kernel's
//! ```
//!
//! A port that the kernel has just given is free for a moment only: any program that asks for a
//! port, even a client that connects, may be given it before the server binds it. Then a test talks
//! to the server of another test. So these ports are outside the kernel's range.
//!
//! A process claims each port that it hands out until it ends, by a UDP socket, which no server of
//! the tests has on that address. So test programs that run at once never share a port.
//!
//! A port is tried by connecting, never by listening: a program that another test starts meanwhile
//! has a copy of the listener until it is loaded, and the port is in use for so long.

use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, process};

const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
/// Offset of the bus port of a cluster's node.
const BUS: u16 = 10_000;
/// Keeps the ports of concurrent processes far from each other.
const STRIDE: u32 = 337;
/// The address of the claims.
const CLAIMS: &str = "127.255.255.254";

/// Returns a free port of loopback, handed out once in this process.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(STRIDE);
    for _ in 0..COUNT {
        let next = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from(next % u32::from(COUNT)).expect("below the count");
        let is_free = |port| TcpStream::connect(("127.0.0.1", port)).is_err();
        let Ok(claim) = UdpSocket::bind((CLAIMS, port)) else {
            continue; // of another process
        };
        if is_free(port) && is_free(port + BUS) {
            mem::forget(claim);
            return port;
        }
    }
    panic!("no port is free from {FIRST} on");
}
