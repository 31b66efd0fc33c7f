//! Mmdb: writes small databases in `MaxMind`'s format, for tests.
//!
//! It is written from the specification, apart from the reader; `reference.mmdb` beside it comes
//! from another writer.

use std::net::IpAddr;

/// Zeros between the tree and the data.
const SEPARATOR: usize = 16;

/// A database that is being written: networks of IPv4 and IPv6, each with a value.
pub(crate) struct Mmdb {
    /// Bits of a record: 24, 28 or 32.
    pub(crate) record_bits: usize,
    pub(crate) built_unix_seconds: u64,
    nodes: Vec<[Record; 2]>,
    data: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(usize),
    /// Place in the data.
    Value(usize),
}

/// Returns a database of countries, each with a network, made at that time; with the aliases that
/// `MaxMind`'s own have.
pub(crate) fn countries(built_unix_seconds: u64, networks: &[(&str, &str)]) -> Vec<u8> {
    let mut mmdb = Mmdb::new(built_unix_seconds);
    for (network, code) in networks {
        mmdb.country(network, code);
    }
    mmdb.alias();
    mmdb.write()
}

/// Returns a database of networks by number, made at that time.
pub(crate) fn networks(built_unix_seconds: u64, networks: &[(&str, u32)]) -> Vec<u8> {
    let mut mmdb = Mmdb::new(built_unix_seconds);
    for (network, number) in networks {
        mmdb.network(network, *number);
    }
    mmdb.write()
}

impl Mmdb {
    pub(crate) fn new(built_unix_seconds: u64) -> Self {
        Self {
            record_bits: 24,
            built_unix_seconds,
            nodes: vec![[Record::Nothing; 2]],
            data: Vec::new(),
        }
    }

    /// Adds a network of a country, with other fields around the one that is read.
    pub(crate) fn country(&mut self, network: &str, code: &str) {
        let value = map(&[
            (
                "continent",
                map(&[("code", text("??")), ("geoname_id", number(6_255_148))]),
            ),
            (
                "country",
                map(&[
                    ("names", map(&[("en", text("Name"))])),
                    ("iso_code", text(code)),
                ]),
            ),
        ]);
        self.insert(network, value);
    }

    /// Adds a network of an autonomous system.
    pub(crate) fn network(&mut self, network: &str, asn: u32) {
        let value = map(&[
            (
                "autonomous_system_organization",
                text(&"long name ".repeat(4)),
            ),
            ("autonomous_system_number", number(asn.into())),
        ]);
        self.insert(network, value);
    }

    /// Adds a network with an encoded value; networks within it come later.
    pub(crate) fn insert(&mut self, network: &str, value: Vec<u8>) {
        let place = self.data.len();
        self.data.extend(value);
        self.put(network, Record::Value(place));
    }

    /// Lets the networks of 6to4 and Teredo lead to the addresses of IPv4, if there are some.
    fn alias(&mut self) {
        let mut node = 0;
        for _ in 0..96 {
            let Record::Node(next) = self.nodes[node][0] else {
                return;
            };
            node = next;
        }
        for network in ["2001::/32", "2002::/16"] {
            self.put(network, Record::Node(node));
        }
    }

    fn put(&mut self, network: &str, record: Record) {
        let (address, bits) = network.split_once('/').expect("a network");
        let bits: usize = bits.parse().expect("a number of bits");
        let (address, bits) = match address.parse().expect("an address") {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 96 + bits),
            IpAddr::V6(v6) => (v6.to_bits(), bits),
        };
        let side = |depth: usize| usize::from(address >> (127 - depth) & 1 == 1);
        let mut node = 0;
        for depth in 0..bits - 1 {
            node = match self.nodes[node][side(depth)] {
                Record::Node(next) => next,
                outer => {
                    self.nodes.push([outer; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][side(depth)] = Record::Node(next);
                    next
                }
            };
        }
        self.nodes[node][side(bits - 1)] = record;
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let count = self.nodes.len();
        let mut file = Vec::new();
        for node in &self.nodes {
            let [left, right] = node.map(|record| match record {
                Record::Nothing => count,
                Record::Node(next) => next,
                Record::Value(place) => count + SEPARATOR + place,
            });
            let node = match self.record_bits {
                24 => left << 24 | right,
                28 => (left & 0xff_ffff) << 32 | (left >> 24) << 28 | right,
                _ => left << 32 | right,
            };
            file.extend(&node.to_be_bytes()[8 - self.record_bits / 4..]);
        }
        file.extend([0; SEPARATOR]);
        file.extend(&self.data);
        file.extend(b"\xab\xcd\xefMaxMind.com");
        let small = |number: usize| vec![5 << 5 | 2, 0, byte(number)];
        let four = u32::try_from(count).expect("trees of tests are small");
        let four = [&[6 << 5 | 4][..], &four.to_be_bytes()].concat();
        file.extend(map(&[
            ("binary_format_major_version", small(2)),
            ("binary_format_minor_version", small(0)),
            ("build_epoch", number(self.built_unix_seconds)),
            ("database_type", text("Test")),
            ("description", map(&[])),
            ("ip_version", small(6)),
            ("languages", vec![0, 11 - 7]),
            ("node_count", four),
            ("record_size", small(self.record_bits)),
        ]));
        file
    }
}

/// Encodes a text of less than 285 bytes.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let length = text.len();
    let mut value = match length {
        0..29 => vec![2 << 5 | byte(length)],
        _ => vec![0x5d, byte(length - 29)],
    };
    value.extend(text.as_bytes());
    value
}

/// Encodes a number as one of 64 bits.
pub(crate) fn number(number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let bytes = &bytes[number.leading_zeros() as usize / 8..];
    let mut value = vec![byte(bytes.len()), 9 - 7];
    value.extend(bytes);
    value
}

/// Encodes a map of less than 29 fields.
pub(crate) fn map(fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut value = vec![7 << 5 | byte(fields.len())];
    for (name, field) in fields {
        value.extend(text(name));
        value.extend(field);
    }
    value
}

fn byte(size: usize) -> u8 {
    u8::try_from(size).expect("values of tests are small")
}
