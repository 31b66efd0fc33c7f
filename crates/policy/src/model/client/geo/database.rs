//! Database: the country or the network of each address, compiled from a file in `MaxMind`'s format.
//!
//! ```text
//!   2.125.0.0     0 -> 0 -> 0 -> 0 -> 0 -> 0 -> 1 -> ..   a node has a record for each bit
//!
//!   nodes    [ [1, 2], [1, V + 3], [V, V + 1], .. ]       below V a node, from V on a value
//!   values   [ unknown, NO, SE, GB, .. ]                  each once
//! ```
//!
//! The crate `maxminddb` reads the file. It is read as a whole when it is compiled, and not kept: what
//! remains takes 8 bytes for each node. A look-up cannot fail, and takes one step for each bit of the
//! address at most, whatever the file holds.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use maxminddb::{MaxMindDbError, PathElement, Reader, WithinOptions};
use serde_json::Value;

use super::{Asn, Country};

/// The first record that is a value.
const VALUES: u32 = 1 << 31;
/// Nodes that lead to the IPv4 addresses, which are those of 96 zero bits and their own.
const BITS_BEFORE_V4: u32 = 96;

/// Networks of IPv6 that hold the addresses of IPv4, where a database says so: 6to4 and Teredo.
const ALIASES: [&str; 2] = ["2002::/16", "2001::/32"];

/// A compiled database.
pub(crate) struct GeoDatabase<V> {
    /// SHA-256 of the file, in hexadecimal.
    pub(crate) sha: String,
    pub(crate) built_unix_seconds: u64,
    /// The first is the root.
    nodes: Vec<[u32; 2]>,
    /// The record of all IPv4 addresses.
    v4: u32,
    /// True if it has IPv6 addresses.
    has_ipv6: bool,
    /// By record, from [`VALUES`] on; the first is unknown.
    values: Vec<Option<V>>,
}

/// The value of an address in a database.
pub(crate) trait GeoValue: Copy + Eq + Hash {
    /// Names of the fields that lead to it.
    const PATH: &'static [&'static str];

    /// Returns the value; `None` if it is unknown.
    fn read(value: &Value) -> Option<Self>;
}

impl GeoValue for Country {
    const PATH: &'static [&'static str] = &["country", "iso_code"];

    fn read(value: &Value) -> Option<Self> {
        Self::assigned(value.as_str()?.as_bytes())
    }
}

impl GeoValue for Asn {
    const PATH: &'static [&'static str] = &["autonomous_system_number"];

    fn read(value: &Value) -> Option<Self> {
        u32::try_from(value.as_u64()?).ok().map(Self)
    }
}

impl<V: GeoValue> GeoDatabase<V> {
    /// Compiles a file in `MaxMind`'s format, with the SHA-256 of it.
    ///
    /// # Errors
    /// The reason: it is cut short, damaged, or a database of something else.
    pub(crate) fn compile(bytes: &[u8], sha: String) -> Result<Self, String> {
        let broken = |error: MaxMindDbError| format!("it cannot be read: {error}");
        let reader = Reader::from_source(bytes).map_err(broken)?;
        let mut database = Self {
            sha,
            built_unix_seconds: reader.metadata().build_epoch,
            nodes: vec![[VALUES; 2]],
            v4: 0,
            has_ipv6: reader.metadata().ip_version == 6,
            values: vec![None],
        };
        // A tree that no two branches share has fewer networks, and leads to fewer nodes.
        let most = 2 * reader.metadata().node_count as usize + 128;
        let mut places = HashMap::with_hasher(RandomState::default());
        let mut known = HashMap::with_hasher(RandomState::default());
        let path: Vec<_> = V::PATH.iter().copied().map(PathElement::Key).collect();
        let options = WithinOptions::default().include_networks_without_data();
        let networks = reader.networks(options).map_err(broken)?;
        for (count, network) in networks.enumerate() {
            let network = network.map_err(broken)?;
            if count > most || database.nodes.len() > most {
                return Err("it is damaged: branches of its tree lead into each other".into());
            }
            let Some(place) = network.offset() else {
                continue;
            };
            let record = match places.get(&place) {
                Some(record) => *record,
                None => match network.decode_path::<Value>(&path) {
                    Ok(found) => found
                        .and_then(|found| V::read(&found))
                        .map_or(VALUES, |value| {
                            *known.entry(value).or_insert_with(|| {
                                database.values.push(Some(value));
                                VALUES + number(database.values.len() - 1)
                            })
                        }),
                    // What the path leads through is no map.
                    Err(MaxMindDbError::Decoding { .. }) => VALUES,
                    Err(error) => return Err(broken(error)),
                },
            };
            places.insert(place, record);
            let network = network.network().map_err(broken)?;
            database.insert(network.ip(), network.prefix().into(), record);
        }
        if database.values.len() == 1 {
            let field = V::PATH.join(".");
            return Err(format!("none of its records has a known `{field}`"));
        }
        database.v4 = database.walk(0, 0, BITS_BEFORE_V4);
        let aliases = if database.has_ipv6 { &ALIASES[..] } else { &[] };
        for network in aliases.iter().filter_map(|alias| alias.parse().ok()) {
            // The iterator leaves out a network that leads to those of IPv4, and no other.
            let mut networks = reader.within(network, options).map_err(broken)?;
            if networks.next().is_none() {
                database.insert(network.ip(), network.prefix().into(), database.v4);
            }
        }
        database.nodes.shrink_to_fit();
        Ok(database)
    }

    fn insert(&mut self, ip: IpAddr, prefix: u32, record: u32) {
        let (bits, length) = match ip {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), prefix + BITS_BEFORE_V4),
            IpAddr::V6(v6) => (v6.to_bits(), prefix),
        };
        let side = |bit: u32| usize::from(bits << bit >> 127 == 1);
        let mut node = 0;
        for bit in 0..length.saturating_sub(1) {
            let next = self.nodes[node][side(bit)];
            node = if next < VALUES {
                next as usize
            } else {
                self.nodes.push([next; 2]);
                self.nodes[node][side(bit)] = number(self.nodes.len() - 1);
                self.nodes.len() - 1
            };
        }
        match length {
            0 => self.nodes[0] = [record; 2],
            _ => self.nodes[node][side(length - 1)] = record,
        }
    }

    /// Returns the value of an address; `None` if it is unknown.
    pub(crate) fn find(&self, ip: IpAddr) -> Option<V> {
        let record = match crate::http::network::address(ip) {
            IpAddr::V4(v4) => self.walk(self.v4, u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) if self.has_ipv6 => self.walk(0, v6.to_bits(), 128),
            IpAddr::V6(_) => return None,
        };
        let value = record.checked_sub(VALUES)?;
        *self.values.get(value as usize)?
    }

    /// Returns the record that the first `count` of `bits` lead to.
    fn walk(&self, mut record: u32, mut bits: u128, count: u32) -> u32 {
        for _ in 0..count {
            let Some(node) = self.nodes.get(record as usize) else {
                break;
            };
            record = node[usize::from(bits >> 127 == 1)];
            bits <<= 1;
        }
        record
    }
}

/// A file has less than 2^27 bytes, and fewer nodes and values.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl<V> PartialEq for GeoDatabase<V> {
    fn eq(&self, other: &Self) -> bool {
        self.sha == other.sha
    }
}

impl<V> Eq for GeoDatabase<V> {}

impl<V> fmt::Debug for GeoDatabase<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeoDatabase")
            .field("built_unix_seconds", &self.built_unix_seconds)
            .field("nodes", &self.nodes.len())
            .field("values", &self.values.len())
            .finish_non_exhaustive()
    }
}
