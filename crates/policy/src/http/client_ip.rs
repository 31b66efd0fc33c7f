//! Client IP: the client's address, behind trusted proxies.
//!
//! ```text
//!   client ---> proxy B ---> proxy A ---> us
//!               trusted      trusted = peer
//!
//!   x-forwarded-for: 127.0.0.1, 203.0.113.9, 10.0.0.2
//!                    spoofed    client       B, written by A
//!                               ^ the walk from the right ends here: not trusted
//! ```
//!
//! * Only hops written by a trusted proxy count; the header of any other peer is ignored.
//! * All lines of the header are one list. If every hop is trusted, the leftmost is the
//!   client.
//! * A hop `unix:` is a proxy that came by a socket of its machine, trusted if `unix:` is listed.
//! * If a hop on the way is malformed, hidden or `unknown`, or the way has more than 64 hops or
//!   8 KiB, the peer is counted. There is always an address.
//! * Empty elements at the left end are ignored, as in any list (RFC 9110, section 5.6.1.2). At
//!   another place, a proxy may have written one for a client without an address. The hop before it
//!   is of that client's choice, so the peer is counted.
//! * Addresses are compared by value: `::ffff:192.0.2.1` and `64:ff9b::192.0.2.1` (NAT64) are
//!   `192.0.2.1`.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::http::forwarded::{MAX_BYTES, MAX_HOPS, Syntax};
use crate::http::network;
use crate::http::octets::trim;

/// Hop without an address.
const UNIX: &[u8] = b"unix:";

/// Source of a client's address; nothing is trusted unless listed.
///
/// ```
/// use ratekeeper_policy::{ClientIp, network};
/// let client_ip = ClientIp {
///     trusted_proxies: vec![network("10.0.0.0/8").unwrap()],
///     ..ClientIp::default()
/// };
/// let headers = [("x-forwarded-for", &b"127.0.0.1, 203.0.113.9"[..])];
/// let seen_by = |peer: &str| client_ip.identify(peer.parse().unwrap(), &headers).to_string();
/// assert_eq!(seen_by("10.0.0.1"), "203.0.113.9");
/// assert_eq!(seen_by("198.51.100.1"), "198.51.100.1", "an untrusted peer may claim anything");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Proxies that are trusted to send a forwarding header.
    pub trusted_proxies: Vec<IpNet>,
    /// Trust in hops `unix:`, as nginx names clients of a socket of its machine.
    pub sockets: SocketTrust,
    /// The forwarding header, lower case.
    pub header: String,
    /// Number of bits of an IPv6 address that identify one client.
    pub ipv6_prefix: u8,
}

/// Trust in hops that came by a socket of a machine, without an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SocketTrust {
    /// The walk ends there, and the peer is counted.
    #[default]
    Distrust,
    /// They are proxies: `trusted_proxies = ["unix:"]`.
    Trust,
}

impl Default for ClientIp {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            sockets: SocketTrust::default(),
            header: "x-forwarded-for".into(),
            ipv6_prefix: 64,
        }
    }
}

impl ClientIp {
    /// Returns true if `peer` is a trusted proxy. A peer of a Unix socket has the address 0.0.0.0.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = network::address(peer);
        if peer.is_unspecified() {
            return self.sockets == SocketTrust::Trust;
        }
        let mut trusted = self.trusted_proxies.iter();
        trusted.any(|network| network::canonical(*network).contains(&peer))
    }

    /// Returns the client's address: walks the forwarding header from the right, past trusted
    /// proxies; a malformed chain falls back to the peer. Canonical: mapped IPv4 addresses are
    /// IPv4. (The IPv6 prefix is applied by key parts, not here.)
    pub fn identify(&self, peer: IpAddr, headers: &[(&str, &[u8])]) -> IpAddr {
        let peer = network::address(peer);
        if !self.trusts(peer) {
            return peer;
        }
        self.walk(headers).unwrap_or(peer)
    }

    /// Returns true if a trusted peer sends the forwarding header, and no client can be read in it.
    pub fn is_unreadable(&self, peer: IpAddr, headers: &[(&str, &[u8])]) -> bool {
        let mut names = headers.iter().map(|(name, _)| name);
        let is_sent = names.any(|name| name.eq_ignore_ascii_case(&self.header));
        is_sent && self.trusts(peer) && self.walk(headers).is_none()
    }

    /// Returns the last address that is not a trusted proxy, or the first if each is trusted. `None`
    /// if there is no header, a hop on the way is malformed, or the way is too long.
    fn walk(&self, headers: &[(&str, &[u8])]) -> Option<IpAddr> {
        let syntax = Syntax::of(&self.header);
        let is_named = |(name, _): &&(&str, &[u8])| name.eq_ignore_ascii_case(&self.header);
        let mut budget = MAX_BYTES;
        let mut hops = 0;
        let mut leftmost = None;
        let mut is_after_empty = false;
        for (_, line) in headers.iter().rev().filter(is_named) {
            let unread = line.len().saturating_sub(budget);
            budget = budget.saturating_sub(line.len());
            let mut rest = Some(&line[unread..]);
            while let Some(part) = rest {
                let (before, hop) = syntax.last_hop(part);
                let is_cut = before.is_none() && unread > 0;
                if is_cut || hops == MAX_HOPS {
                    return None;
                }
                hops += 1;
                rest = before;
                if trim(hop).is_empty() {
                    is_after_empty = true;
                    continue;
                }
                if is_after_empty {
                    return None;
                }
                if trim(hop) == UNIX && self.sockets == SocketTrust::Trust {
                    continue;
                }
                let ip = network::address(syntax.address(hop)?);
                if !self.trusts(ip) {
                    return Some(ip);
                }
                leftmost = Some(ip);
            }
        }
        leftmost
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns settings that trust `10.0.0.0/8` and `fd00::/8` (one of them as a mapped block).
    fn client_ip(header: &str) -> ClientIp {
        let trusted = ["::ffff:10.0.0.0/104", "fd00::/8", "192.0.2.255/32"];
        ClientIp {
            trusted_proxies: trusted.map(|net| net.parse().unwrap()).to_vec(),
            sockets: SocketTrust::Trust,
            header: header.into(),
            ipv6_prefix: 64,
        }
    }

    fn check(header: &str, peer: &str, lines: &[&str], expected: &str) {
        let mut headers: Vec<(&str, &[u8])> = vec![("host", b"x"), ("x-other", b"198.51.100.9")];
        headers.extend(lines.iter().map(|line| (header, line.as_bytes())));
        let found = client_ip(header).identify(peer.parse().unwrap(), &headers);
        assert_eq!(found.to_string(), expected, "{peer} {header}: {lines:?}");
    }

    #[test]
    fn a_header_is_unreadable_if_a_trusted_peer_names_no_client_in_it() {
        for (peer, line, expected) in [
            ("10.0.0.1", "unknown", true),
            ("10.0.0.1", "198.51.100.1, x", true),
            ("10.0.0.1", "x, 198.51.100.1", false),
            ("10.0.0.1", "10.0.0.1", false),
            ("203.0.113.9", "unknown", false),
        ] {
            let settings = client_ip("x-forwarded-for");
            let headers = [("X-Forwarded-For", line.as_bytes())];
            let found = settings.is_unreadable(peer.parse().unwrap(), &headers);
            assert_eq!(found, expected, "{peer} {line}");
            assert!(!settings.is_unreadable(peer.parse().unwrap(), &[]));
        }
    }

    #[test]
    fn the_list_is_walked_from_the_right() {
        const PROXY: &str = "10.0.0.1";
        for (peer, lines, expected) in [
            // No proxy in between.
            ("203.0.113.9", &[][..], "203.0.113.9"),
            ("::ffff:203.0.113.9", &[], "203.0.113.9"),
            ("2001:db8::1", &[], "2001:db8::1"),
            // An untrusted peer may send any header.
            ("203.0.113.9", &["198.51.100.1"], "203.0.113.9"),
            ("203.0.113.9", &["10.0.0.1"], "203.0.113.9"),
            ("203.0.113.9", &["127.0.0.1"], "203.0.113.9"),
            ("11.0.0.1", &["198.51.100.1"], "11.0.0.1"),
            ("127.0.0.1", &["198.51.100.1"], "127.0.0.1"),
            ("::1", &["198.51.100.1"], "::1"),
            // A proxy that came by a socket of its machine.
            (PROXY, &["198.51.100.1, unix:"], "198.51.100.1"),
            (
                PROXY,
                &["198.51.100.1", "unix:", "10.0.0.2, unix:"],
                "198.51.100.1",
            ),
            (PROXY, &["unix:, 203.0.113.9"], "203.0.113.9"),
            (PROXY, &["unix:"], PROXY),
            (PROXY, &["198.51.100.1, unix:x"], PROXY),
            ("203.0.113.9", &["198.51.100.1, unix:"], "203.0.113.9"),
            // One proxy, however it is spelled.
            (PROXY, &[], PROXY),
            (PROXY, &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("fd00::1", &["198.51.100.1"], "198.51.100.1"),
            ("192.0.2.255", &["198.51.100.1"], "198.51.100.1"),
            (PROXY, &["  198.51.100.1\t"], "198.51.100.1"),
            (PROXY, &["198.51.100.1:4711"], "198.51.100.1"),
            (PROXY, &["2001:db8::1"], "2001:db8::1"),
            (PROXY, &["[2001:db8::1]:4711"], "2001:db8::1"),
            (PROXY, &["::ffff:198.51.100.1"], "198.51.100.1"),
            (PROXY, &["[::ffff:198.51.100.1]:1"], "198.51.100.1"),
            // Translated by a NAT64.
            ("64:ff9b::cb00:7101", &[], "203.0.113.1"),
            ("64:ff9b::10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            (
                PROXY,
                &["64:ff9b::cb00:7102, 64:ff9b::10.0.0.2"],
                "203.0.113.2",
            ),
            (PROXY, &["64:ff9b:1::cb00:7102"], "64:ff9b:1::cb00:7102"),
            // Spoofed from the left: only hops written by a trusted proxy count.
            (PROXY, &["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
            (PROXY, &["10.0.0.9, 198.51.100.1"], "198.51.100.1"),
            (PROXY, &["1.1.1.1, 2.2.2.2, 198.51.100.1"], "198.51.100.1"),
            (PROXY, &["garbage, 198.51.100.1"], "198.51.100.1"),
            (PROXY, &[", , 198.51.100.1"], "198.51.100.1"),
            (PROXY, &["\u{e9}\", 198.51.100.1"], "198.51.100.1"),
            (PROXY, &["127.0.0.1", "198.51.100.1"], "198.51.100.1"),
            (PROXY, &["garbage", "198.51.100.1"], "198.51.100.1"),
            // Past trusted proxies.
            (PROXY, &["198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            (
                PROXY,
                &["198.51.100.1, 10.0.0.3:80, fd00::2"],
                "198.51.100.1",
            ),
            (
                PROXY,
                &["198.51.100.1", "10.0.0.3", "10.0.0.2"],
                "198.51.100.1",
            ),
            (
                PROXY,
                &["9.9.9.9, 198.51.100.1, ::ffff:10.0.0.2"],
                "198.51.100.1",
            ),
            (PROXY, &["198.51.100.1,10.0.0.3,10.0.0.2"], "198.51.100.1"),
            // A client inside the trusted networks.
            (PROXY, &["10.0.0.7"], "10.0.0.7"),
            (PROXY, &["10.0.0.7, 10.0.0.2"], "10.0.0.7"),
            // Empty elements at the left end, as of a proxy that appends to an empty value.
            (PROXY, &[", 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            (PROXY, &[", 10.0.0.7"], "10.0.0.7"),
            (PROXY, &[" ,\t,, 10.0.0.7, 10.0.0.2"], "10.0.0.7"),
            (PROXY, &["", "10.0.0.7"], "10.0.0.7"),
            (PROXY, &["", "\t", ",10.0.0.7"], "10.0.0.7"),
            (PROXY, &[""], PROXY),
            (PROXY, &[" , ,"], PROXY),
            (PROXY, &[", unix:"], PROXY),
            // The hop before another one may be of the choice of a client without an address.
            (PROXY, &["9.9.9.9,, 10.0.0.2"], PROXY),
            (PROXY, &["10.0.0.9, \t,10.0.0.2"], PROXY),
            (PROXY, &["9.9.9.9", "", "10.0.0.2"], PROXY),
            (PROXY, &["unix:,, 10.0.0.2"], PROXY),
            // A chain that is broken before its end is ignored.
            (PROXY, &["198.51.100.1,"], PROXY),
            (PROXY, &["198.51.100.1, , 10.0.0.2"], PROXY),
            (PROXY, &["198.51.100.1", ""], PROXY),
            (PROXY, &["unknown"], PROXY),
            (PROXY, &["198.51.100.1, unknown"], PROXY),
            (PROXY, &["198.51.100.1, unknown, 10.0.0.2"], PROXY),
            (PROXY, &["198.51.100.256"], PROXY),
            (PROXY, &["198.51.100.01"], PROXY),
            (PROXY, &["198.51.100.1:99999"], PROXY),
            (PROXY, &["fe80::1%eth0"], PROXY),
            (PROXY, &["[2001:db8::1"], PROXY),
            (PROXY, &["\"198.51.100.1\""], PROXY),
            (PROXY, &["for=198.51.100.1"], PROXY),
            (PROXY, &["198.51.100.1 10.0.0.2"], PROXY),
            (PROXY, &["198.51.100.1; 10.0.0.2"], PROXY),
        ] {
            check("x-forwarded-for", peer, lines, expected);
        }
    }

    #[test]
    fn any_header_can_be_named_and_no_other_counts() {
        for (lines, expected) in [
            (&["198.51.100.1"][..], "198.51.100.1"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["9.9.9.9", "198.51.100.1"], "198.51.100.1"),
            (&["nonsense"], "10.0.0.1"),
        ] {
            check("x-real-ip", "10.0.0.1", lines, expected);
            check("CF-Connecting-IP", "10.0.0.1", lines, expected);
        }
        let headers: [(&str, &[u8]); 1] = [("X-Forwarded-For", b"198.51.100.1")];
        let peer = "10.0.0.1".parse().unwrap();
        assert_eq!(client_ip("x-real-ip").identify(peer, &headers), peer);
        let found = client_ip("x-forwarded-for").identify(peer, &headers);
        assert_eq!(found.to_string(), "198.51.100.1", "names have no case");
        assert_eq!(
            ClientIp::default().identify(peer, &headers),
            peer,
            "no proxy is trusted"
        );
    }

    #[test]
    fn forwarded_is_read_as_in_rfc_7239() {
        const PROXY: &str = "10.0.0.1";
        for (peer, lines, expected) in [
            ("203.0.113.9", &["for=198.51.100.1"][..], "203.0.113.9"),
            (PROXY, &["for=198.51.100.1"], "198.51.100.1"),
            (PROXY, &["For=198.51.100.1"], "198.51.100.1"),
            (PROXY, &["for=\"198.51.100.1\""], "198.51.100.1"),
            (PROXY, &["for=\"198.51.100.1:4711\""], "198.51.100.1"),
            (PROXY, &["for=198.51.100.1:4711"], "198.51.100.1"),
            (PROXY, &["for=\"[2001:db8::1]\""], "2001:db8::1"),
            (PROXY, &["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
            (PROXY, &["for=\"[2001:db8::1]:_x\""], "2001:db8::1"),
            (PROXY, &["for=\"[::ffff:198.51.100.1]\""], "198.51.100.1"),
            (
                PROXY,
                &["for=198.51.100.1;proto=https;by=10.0.0.1"],
                "198.51.100.1",
            ),
            (
                PROXY,
                &["by=10.0.0.1; proto=https; for=198.51.100.1"],
                "198.51.100.1",
            ),
            (
                PROXY,
                &["host=\"a,b;for=9.9.9.9\";for=198.51.100.1"],
                "198.51.100.1",
            ),
            (
                PROXY,
                &["for=198.51.100.1;host=\"a\\\",b\""],
                "198.51.100.1",
            ),
            (PROXY, &["for=198.51.100.1, for=10.0.0.2"], "198.51.100.1"),
            (
                PROXY,
                &["for=198.51.100.1, for=\"[fd00::2]:80\""],
                "198.51.100.1",
            ),
            (PROXY, &["for=198.51.100.1", "for=10.0.0.2"], "198.51.100.1"),
            (PROXY, &["for=10.0.0.7"], "10.0.0.7"),
            // Spoofed from the left.
            (PROXY, &["for=9.9.9.9, for=198.51.100.1"], "198.51.100.1"),
            (PROXY, &["for=\", for=198.51.100.1"], "198.51.100.1"),
            (PROXY, &["for=\", for=\"198.51.100.1:80\""], "198.51.100.1"),
            (PROXY, &["nonsense, for=198.51.100.1"], "198.51.100.1"),
            (PROXY, &["for=_secret, for=198.51.100.1"], "198.51.100.1"),
            // Hops without an address, or broken.
            (PROXY, &["for=unknown"], PROXY),
            (PROXY, &["for=_hidden"], PROXY),
            (PROXY, &["for=198.51.100.1, for=_hidden"], PROXY),
            (
                PROXY,
                &["for=198.51.100.1, for=unknown, for=10.0.0.2"],
                PROXY,
            ),
            (PROXY, &["for=198.51.100.1, proto=https"], PROXY),
            (PROXY, &["for=198.51.100.1;for=9.9.9.9"], PROXY),
            (PROXY, &["for=\"198.51.100.1"], PROXY),
            (PROXY, &["for=198.51.100.1\""], PROXY),
            (PROXY, &["for="], PROXY),
            (PROXY, &["for=\"\""], PROXY),
            (PROXY, &["198.51.100.1"], PROXY),
            (PROXY, &["for=\"[fe80::1%25eth0]\""], PROXY),
            (PROXY, &["for=198.51.100.1,"], PROXY),
            (PROXY, &["for=9.9.9.9,, for=10.0.0.2"], PROXY),
            (PROXY, &["for=9.9.9.9", "", "for=10.0.0.2"], PROXY),
            (PROXY, &[", for=10.0.0.7"], "10.0.0.7"),
            (PROXY, &["", ",\t, for=\"[fd00::2]\""], "fd00::2"),
            (PROXY, &["; , for=10.0.0.7"], PROXY),
            (PROXY, &[""], PROXY),
        ] {
            check("forwarded", peer, lines, expected);
        }
    }

    #[test]
    fn the_number_of_hops_and_bytes_is_bounded() {
        let trusted = |hops: usize| vec!["10.0.0.2"; hops].join(",");
        let client = |hops| format!("198.51.100.1,{}", trusted(hops));
        // The client is hop 64, then hop 65.
        check(
            "x-forwarded-for",
            "10.0.0.1",
            &[&client(MAX_HOPS - 1)],
            "198.51.100.1",
        );
        check(
            "x-forwarded-for",
            "10.0.0.1",
            &[&client(MAX_HOPS)],
            "10.0.0.1",
        );
        let lines = vec!["10.0.0.2"; MAX_HOPS + 1];
        check("x-forwarded-for", "10.0.0.1", &lines, "10.0.0.1");
        // Spaces are bytes too.
        let padded = |spaces| format!("198.51.100.1,{}10.0.0.2", " ".repeat(spaces));
        let fits = MAX_BYTES - "198.51.100.1,10.0.0.2".len();
        check(
            "x-forwarded-for",
            "10.0.0.1",
            &[&padded(fits)],
            "198.51.100.1",
        );
        check(
            "x-forwarded-for",
            "10.0.0.1",
            &[&padded(fits + 1)],
            "10.0.0.1",
        );
        let lines = [&*padded(0), &padded(fits)];
        check("x-forwarded-for", "10.0.0.1", &lines, "198.51.100.1");
        // Hops further left are never read.
        let long = format!("{},198.51.100.1", "x".repeat(1 << 20));
        check("x-forwarded-for", "10.0.0.1", &[&long], "198.51.100.1");
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_address(
            line in prop::collection::vec(any::<u8>(), 0..64),
            text in "(for=|[0-9a-f:.]{1,9}|[\\[\\],;\" _\\\\]){0,16}",
            forwarded in any::<bool>(),
        ) {
            let name = if forwarded { "forwarded" } else { "x-forwarded-for" };
            let headers: [(&str, &[u8]); 2] = [(name, &line), (name, text.as_bytes())];
            client_ip(name).identify("10.0.0.1".parse().unwrap(), &headers);
        }

        /// Whatever a client sends, its proxy appends its address, and that address counts.
        #[test]
        fn no_spoofed_prefix_moves_a_client(
            spoofed in "(for=|10\\.0\\.0\\.2|[\\[\\],;\" _\\\\a-z0-9]){0,16}",
            quoted in any::<bool>(),
        ) {
            let list = format!("{spoofed}, 198.51.100.1");
            check("x-forwarded-for", "10.0.0.1", &[&list], "198.51.100.1");
            let node = if quoted { "\"198.51.100.1:80\"" } else { "198.51.100.1" };
            let list = format!("{spoofed}, for={node}");
            check("forwarded", "10.0.0.1", &[&list], "198.51.100.1");
        }
    }
}
