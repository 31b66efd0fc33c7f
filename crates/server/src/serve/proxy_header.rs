//! Proxy header: the address of a client, which a balancer sends before the first byte of a
//! connection (PROXY protocol, versions 1 and 2).
//!
//! ```text
//!   1:  PROXY TCP4 192.0.2.1 203.0.113.7 56324 443\r\n
//!   2:  signature, 12 bytes | 0x21 | family | length | source, destination, ports, ..
//! ```
//!
//! * Source: Willy Tarreau, "The PROXY protocol, versions 1 and 2" (2010 to 2020).

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum number of bytes of a header of version 1, with the end of its line.
const MAX_LINE: usize = 107;
/// Maximum number of bytes of one of version 2 after its length: room for a certificate's names.
const MAX_REST: usize = 4 << 10;

/// Reads the header, and no byte after it. Returns the address of the client: `peer` if the
/// balancer speaks for itself or does not know it, `None` if there is no valid header.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    peer: SocketAddr,
) -> Option<SocketAddr> {
    let mut line = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut line).await.ok()?;
    let client = if line == SIGNATURE {
        version_2(stream, peer).await?
    } else if line.starts_with(b"PROXY ") {
        while !line.ends_with(b"\r\n") {
            if line.len() == MAX_LINE {
                return None;
            }
            line.push(stream.read_u8().await.ok()?);
        }
        version_1(&line, peer)?
    } else {
        return None;
    };
    // `0.0.0.0` is the address of callers at a Unix socket, which may be trusted.
    let is_stated = !client.ip().to_canonical().is_unspecified();
    (client == peer || is_stated).then_some(client)
}

fn version_1(line: &[u8], peer: SocketAddr) -> Option<SocketAddr> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Some(peer),
        ["PROXY", family @ ("TCP4" | "TCP6"), source, _, port, _] => {
            let ip: IpAddr = source.parse().ok()?;
            let is_right = ip.is_ipv4() == (family == "TCP4");
            is_right.then_some(SocketAddr::new(ip, port.parse().ok()?))
        }
        _ => None,
    }
}

async fn version_2(stream: &mut (impl AsyncRead + Unpin), peer: SocketAddr) -> Option<SocketAddr> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.ok()?;
    let [command, family, length @ ..] = head;
    let mut rest = vec![0; usize::from(u16::from_be_bytes(length)).min(MAX_REST + 1)];
    if rest.len() > MAX_REST {
        return None;
    }
    stream.read_exact(&mut rest).await.ok()?;
    let (ip, ports): (IpAddr, usize) = match (command, family >> 4) {
        (0x20, _) | (0x21, 0 | 3) => return Some(peer), // a check, unknown, or a Unix socket
        (0x21, 1) => (<[u8; 4]>::try_from(rest.get(..4)?).ok()?.into(), 8),
        (0x21, 2) => (<[u8; 16]>::try_from(rest.get(..16)?).ok()?.into(), 32),
        _ => return None,
    };
    let port = rest.get(ports..ports + 2)?.try_into().ok()?;
    Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "10.0.0.7:1234";

    /// Reads a header with `GET` after it; returns the address, and the bytes that follow.
    async fn check(header: &[u8]) -> Option<(String, Vec<u8>)> {
        let bytes = [header, b"GET"].concat();
        let mut stream = &bytes[..];
        let client = read(&mut stream, PEER.parse().unwrap()).await?;
        Some((client.to_string(), stream.to_vec()))
    }

    fn of_version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[tokio::test]
    async fn each_version_states_the_client() {
        let v4 = [192, 0, 2, 1, 203, 0, 113, 7, 0xdc, 4, 1, 187];
        let with_more = [&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        let mut v6 = [0; 36];
        (v6[0], v6[15], v6[33]) = (0xfd, 1, 9);
        for (header, expected) in [
            (
                b"PROXY TCP4 192.0.2.1 203.0.113.7 56324 443\r\n".to_vec(),
                "192.0.2.1:56324",
            ),
            (
                b"PROXY TCP6 fd00::1 fd00::2 9 443\r\n".to_vec(),
                "[fd00::1]:9",
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), PEER),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), PEER),
            (of_version_2(0x21, 0x11, &v4), "192.0.2.1:56324"),
            (of_version_2(0x21, 0x11, &with_more), "192.0.2.1:56324"),
            (of_version_2(0x21, 0x21, &v6), "[fd00::1]:9"),
            (of_version_2(0x20, 0, &[]), PEER),
            (of_version_2(0x21, 0, &[1, 2]), PEER),
        ] {
            let read = check(&header).await;
            assert_eq!(
                read,
                Some((expected.to_owned(), b"GET".to_vec())),
                "{header:?}"
            );
        }
    }

    #[tokio::test]
    async fn anything_else_is_no_header() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(MAX_LINE));
        let mut mapped = [0; 36]; // ::ffff:0.0.0.0
        mapped[10..12].fill(0xff);
        let huge = of_version_2(0x21, 0x11, &vec![0; MAX_REST + 1]);
        for header in [
            b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1\r\n".to_vec(),
            b"PROXY TCP4\r\n".to_vec(),
            b"PROXY TCP4 fd00::1 fd00::2 9 443\r\n".to_vec(),
            b"PROXY TCP4 0.0.0.0 203.0.113.7 9 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 203.0.113.7 70000 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1  203.0.113.7 1 443\r\n".to_vec(),
            of_version_2(0x21, 0x11, &[0; 12]),
            of_version_2(0x21, 0x21, &mapped),
            b"PROXY TCP6 ::ffff:0.0.0.0 fd00::2 9 443\r\n".to_vec(),
            of_version_2(0x21, 0x11, &[192, 0, 2, 1]),
            of_version_2(0x22, 0x11, &[1; 12]),
            of_version_2(0x31, 0x11, &[1; 12]),
            long.into_bytes(),
            huge,
        ] {
            assert_eq!(check(&header).await, None, "{header:?}");
        }
    }
}
