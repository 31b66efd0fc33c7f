//! Network: blocks of addresses, compared by value.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::ValueError;

/// Reads a CIDR block or a single address; IPv4-mapped IPv6 becomes IPv4.
///
/// ```
/// use ratekeeper_policy::network;
/// assert_eq!(network("192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
/// assert_eq!(network("::ffff:10.0.0.0/104").unwrap(), network("10.0.0.0/8").unwrap());
/// assert_eq!(network("10.1.2.3/8").unwrap_err().help, "write \"10.0.0.0/8\", or \"10.1.2.3\" for the one address");
/// ```
///
/// # Errors
/// If it is neither, or if bits are set beyond the prefix.
pub fn network(text: &str) -> Result<IpNet, ValueError> {
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().map_err(|_| {
            ValueError::new(
                format!("`{text}` is neither an address nor a CIDR block"),
                "write an address \"192.0.2.1\" or a block \"10.0.0.0/8\", \"2001:db8::/32\"",
            )
        })?,
    };
    if network.trunc() != network {
        let (block, address) = (network.trunc(), network.addr());
        return Err(ValueError::new(
            format!("`{text}` has bits set beyond its prefix"),
            format!("write \"{block}\", or \"{address}\" for the one address"),
        ));
    }
    Ok(canonical(network))
}

/// Converts IPv6 that stands for IPv4 to IPv4, by value: `::ffff:0:0/96`, and `64:ff9b::/96`, by
/// which clients come that a NAT64 translates (RFC 6052).
pub(crate) fn address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        other => other,
    }
}

/// Converts IPv6 that stands for IPv4 to IPv4, by value.
pub(crate) fn canonical(network: IpNet) -> IpNet {
    /// Of both networks of [`address`].
    const MAPPED: u8 = 96;
    let IpNet::V6(v6) = network else {
        return network;
    };
    let mapped = match address(v6.addr().into()) {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    };
    let bits = v6.prefix_len().checked_sub(MAPPED);
    match mapped.zip(bits).map(|(ip, bits)| Ipv4Net::new(ip, bits)) {
        Some(Ok(v4)) => v4.into(),
        _ => network,
    }
}
