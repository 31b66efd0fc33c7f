//! Database: the country or the network of each address, compiled from a file.
//!
//! ```text
//!   2.125.0.0     0 -> 0 -> 0 -> 0 -> 0 -> 0 -> 1 -> ..   a node has a record for each bit
//!
//!   nodes    [ [1, 2], [1, N + 3], [N, N + 1], .. ]       below N a node, from N on a value
//!   values   [ unknown, NO, SE, GB, .. ]                  each once
//! ```
//!
//! The file is checked as a whole when it is compiled, and not kept. What remains takes 8 bytes for
//! each node. A look-up takes one step for each bit of the address at most, whatever the
//! file holds.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;

use foldhash::fast::RandomState;

use super::mmdb::{MmdbFile, Value};
use super::{Asn, Country};

/// Maximum number of different places in the data that a tree may name, to bound the memory of
/// the compiler: about 80 MB.
const MAX_PLACES: usize = 4 << 20;

/// A compiled database.
pub(crate) struct GeoDatabase<V> {
    /// SHA-256 of the file, in hexadecimal.
    pub(crate) sha: String,
    pub(crate) built_unix_seconds: u64,
    nodes: Box<[[u32; 2]]>,
    /// The record of all IPv4 addresses.
    v4: u32,
    /// True if it has IPv6 addresses.
    has_ipv6: bool,
    /// By record, from the number of nodes on; the first is unknown.
    values: Box<[Option<V>]>,
}

/// The value of an address in a database.
pub(crate) trait GeoValue: Copy + Eq + Hash {
    /// Names of the fields that lead to it.
    const PATH: &'static [&'static str];

    /// Returns the value; `None` if it is unknown.
    fn read(value: Value<'_>) -> Option<Self>;
}

impl GeoValue for Country {
    const PATH: &'static [&'static str] = &["country", "iso_code"];

    fn read(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Text(code) => Self::assigned(code),
            _ => None,
        }
    }
}

impl GeoValue for Asn {
    const PATH: &'static [&'static str] = &["autonomous_system_number"];

    fn read(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Number(number) => u32::try_from(number).ok().map(Self),
            _ => None,
        }
    }
}

impl<V: GeoValue> GeoDatabase<V> {
    /// Compiles a file in `MaxMind`'s format, with the SHA-256 of it.
    ///
    /// # Errors
    /// The reason: it is cut short, damaged, or a database of something else.
    pub(crate) fn compile(bytes: &[u8], sha: String) -> Result<Self, String> {
        let mut file = MmdbFile::open(bytes)?;
        let end = file.node_count;
        let mut values = Values::new();
        let mut nodes = Vec::with_capacity(end as usize);
        for mut node in file.nodes() {
            for record in &mut node {
                if *record >= end {
                    *record = end + values.number(*record, &mut file)?;
                }
            }
            nodes.push(node);
        }
        if values.each.len() == 1 {
            let field = V::PATH.join(".");
            return Err(format!("none of its records has a known `{field}`"));
        }
        let mut database = Self {
            sha,
            built_unix_seconds: file.built_unix_seconds,
            nodes: nodes.into(),
            v4: 0,
            has_ipv6: file.has_ipv6,
            values: values.each.into(),
        };
        if file.has_ipv6 {
            // IPv4 addresses are those of 96 zero bits and their own.
            database.v4 = database.walk(0, 0, 96);
        }
        Ok(database)
    }

    /// Returns the value of an address; `None` if it is unknown.
    pub(crate) fn find(&self, ip: IpAddr) -> Option<V> {
        let record = match crate::pattern::address(ip) {
            IpAddr::V4(v4) => self.walk(self.v4, u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) if self.has_ipv6 => self.walk(0, v6.to_bits(), 128),
            IpAddr::V6(_) => return None,
        };
        let value = (record as usize).checked_sub(self.nodes.len())?;
        *self.values.get(value)?
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

/// The values of a file, each once, while it is compiled.
struct Values<V> {
    each: Vec<Option<V>>,
    numbers: HashMap<V, u32, RandomState>,
    /// Numbers by record.
    places: HashMap<u32, u32, RandomState>,
}

impl<V: GeoValue> Values<V> {
    fn new() -> Self {
        Self {
            each: vec![None],
            numbers: HashMap::default(),
            places: HashMap::default(),
        }
    }

    /// Returns the number of a record's value.
    fn number(&mut self, record: u32, file: &mut MmdbFile<'_>) -> Result<u32, String> {
        if record == file.node_count {
            return Ok(0);
        }
        if let Some(number) = self.places.get(&record) {
            return Ok(*number);
        }
        if self.places.len() == MAX_PLACES {
            return Err(format!("it has more than {MAX_PLACES} different records"));
        }
        let number = match file.value(record, V::PATH)?.and_then(V::read) {
            None => 0,
            Some(value) => {
                let each = &mut self.each;
                *self.numbers.entry(value).or_insert_with(|| {
                    each.push(Some(value));
                    u32::try_from(each.len() - 1).unwrap_or(u32::MAX)
                })
            }
        };
        self.places.insert(record, number);
        Ok(number)
    }
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
