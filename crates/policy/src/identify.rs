//! Who the client is: the address behind trusted proxies. Skeleton.

use std::net::IpAddr;

use ipnet::IpNet;

/// Where a client's address comes from; nothing is trusted unless listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Proxies whose forwarding header is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The forwarding header, lower case.
    pub header: String,
    /// Bits of an IPv6 address that make one client.
    pub ipv6_prefix: u8,
}

impl Default for ClientIp {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            header: "x-forwarded-for".into(),
            ipv6_prefix: 64,
        }
    }
}

impl ClientIp {
    /// Whether `peer` is a trusted proxy.
    pub fn trusts(&self, _peer: IpAddr) -> bool {
        todo!()
    }

    /// The client's address: walks the forwarding header from the right, past trusted
    /// proxies; a malformed chain falls back to the peer. Canonical: mapped IPv4 addresses
    /// are IPv4. (The IPv6 prefix is applied by key parts, not here.)
    pub fn identify(&self, _peer: IpAddr, _headers: &[(&str, &[u8])]) -> IpAddr {
        todo!()
    }
}
