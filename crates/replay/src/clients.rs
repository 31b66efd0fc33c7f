//! Clients: the address, and a small number, of each client of a log. Addresses of one
//! `ipv6_prefix` are one client.
//!
//! A log may name clients by host names or other words. Each is given an address of `5f00::/8`,
//! which belongs to no client of the internet, so that limits by address count each name apart. Its
//! number comes next to the prefix, the lowest bits first, so that an IPv6 prefix of 32 bits or
//! more keeps the names of a log of 16 million apart.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use foldhash::fast::RandomState;
use ipnet::IpNet;
use ratekeeper_policy::{ClientIp, Country};

/// A client of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedClient {
    pub(crate) ip: IpAddr,
    /// The country that a trusted proxy states with the request.
    pub(crate) country: Option<Country>,
    /// Counts the clients from 0.
    pub(crate) number: usize,
}

/// The clients of a log so far.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_text: HashMap<Box<str>, LoggedClient, RandomState>,
    by_network: HashMap<IpNet, usize, RandomState>,
    /// By number.
    networks: Vec<IpNet>,
    names: Vec<Box<str>>,
    text_bytes: usize,
}

/// First byte of the addresses of names.
const PREFIX: u8 = 0x5f;

impl Clients {
    /// Returns the client that a line names as its peer.
    pub(crate) fn of_text(&mut self, text: &str, source: &ClientIp) -> LoggedClient {
        if let Some(client) = self.by_text.get(text) {
            return *client;
        }
        // With a port, each line of a client has another text.
        let with_port = text.parse::<SocketAddr>().ok();
        let address = with_port.map(|it| it.ip()).or_else(|| text.parse().ok());
        let address = address.unwrap_or_else(|| self.address_of_name(text));
        let client = self.of_address(source.identify(address, &[]), source);
        if with_port.is_none() {
            self.text_bytes += text.len();
            self.by_text.insert(text.into(), client);
        }
        client
    }

    pub(crate) fn of_address(&mut self, ip: IpAddr, source: &ClientIp) -> LoggedClient {
        let bits = if ip.is_ipv4() { 32 } else { source.ipv6_prefix };
        let network = IpNet::new(ip, bits).map_or_else(|_| ip.into(), |network| network.trunc());
        let next = self.networks.len();
        let number = *self.by_network.entry(network).or_insert(next);
        if number == next {
            self.networks.push(network);
        }
        LoggedClient {
            ip,
            country: None,
            number,
        }
    }

    fn address_of_name(&mut self, name: &str) -> IpAddr {
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.into());
        self.text_bytes += name.len();
        let [a, b, c, d] = number.to_le_bytes();
        Ipv6Addr::from([PREFIX, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).into()
    }

    /// Returns the name for which an address was given, also if it is cut to its prefix.
    pub(crate) fn name(&self, address: IpAddr) -> Option<&str> {
        let IpAddr::V6(address) = address else {
            return None;
        };
        let [PREFIX, a, b, c, d, ..] = address.octets() else {
            return None;
        };
        let number = u32::from_le_bytes([a, b, c, d]);
        self.names.get(number as usize).map(|name| &**name)
    }

    /// Returns a client as it is in the log.
    pub(crate) fn words(&self, number: usize) -> String {
        self.networks.get(number).map_or(String::new(), |network| {
            let address = network.addr();
            match self.name(address) {
                Some(name) => name.to_owned(),
                None if network.prefix_len() == network.max_prefix_len() => address.to_string(),
                None => network.to_string(),
            }
        })
    }

    /// Returns the number of clients that have a name for an address.
    pub(crate) fn names(&self) -> usize {
        self.names.len()
    }

    /// Returns the memory that they take, about.
    pub(crate) fn bytes(&self) -> usize {
        const ENTRY: usize = 180; // of both tables, with their free slots
        self.networks.len() * ENTRY + self.text_bytes
    }
}
