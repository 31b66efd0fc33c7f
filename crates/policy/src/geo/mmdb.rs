//! Mmdb: reads a database file in `MaxMind`'s format, version 2.
//!
//! ```text
//!   | tree: nodes of two records | 16 zeros | data: values | marker | metadata |
//!
//!   record   24, 28 or 32 bits: below N a node, N nothing, above N + 16 a place in the data
//!   value    type and size in its first byte: text, number, map, list, or a pointer to another
//! ```
//!
//! A file may come from anywhere, so nothing in it is believed: each read is within the bytes, and
//! all reads of a file are counted against a budget that grows with its size.
//!
//! Source: `MaxMind`, "`MaxMind` DB File Format Specification", version 2.0 (2013).

/// Precedes the metadata.
const MARKER: &[u8; 14] = b"\xab\xcd\xefMaxMind.com";
/// The specification's maximum size of the metadata.
const MAX_METADATA: usize = 128 << 10;
/// Number of zeros between the tree and the data.
const SEPARATOR: usize = 16;
/// Reads for each byte of a file. One is enough where no two records share a value; four leaves
/// room for those that do, and bounds the time that overlapping values take.
const READS_PER_BYTE: u64 = 4;

/// A database file.
#[derive(Debug)]
pub(super) struct MmdbFile<'b> {
    pub(super) node_count: u32,
    /// True if its addresses have 128 bits.
    pub(super) has_ipv6: bool,
    pub(super) built_unix_seconds: u64,
    /// Bits of a record: 24, 28 or 32.
    record_bits: u64,
    tree: &'b [u8],
    data: &'b [u8],
    reads: u64,
}

/// A value of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'b> {
    Text(&'b [u8]),
    Number(u64),
    /// The number of its fields; each name and value follows.
    Map(usize),
    /// The number of its values, which follow.
    List(usize),
    Pointer(usize),
    /// Bytes, fractions, flags and large numbers.
    Other,
}

impl<'b> MmdbFile<'b> {
    /// Reads the metadata.
    ///
    /// # Errors
    /// If it is no such file, or cut short.
    pub(super) fn open(bytes: &'b [u8]) -> Result<Self, String> {
        let tail = bytes.len().saturating_sub(MAX_METADATA + MARKER.len());
        let mut places = bytes[tail..].windows(MARKER.len());
        let Some(marker) = places.rposition(|place| place == MARKER) else {
            return Err("it is cut short, or not in MaxMind's format: it has no metadata".into());
        };
        let (before, metadata) = (
            &bytes[..tail + marker],
            &bytes[tail + marker + MARKER.len()..],
        );
        let mut reads = READS_PER_BYTE * bytes.len() as u64;
        let mut number = |name: &'static str| match find(metadata, 0, &[name], &mut reads)? {
            Some(Value::Number(number)) => Ok(number),
            _ => Err(format!("its metadata has no `{name}`")),
        };
        let version = number("binary_format_major_version")?;
        if version != 2 {
            return Err(format!("its format has version {version}, not 2"));
        }
        let (node_count, record_bits) = (number("node_count")?, number("record_size")?);
        if ![24, 28, 32].contains(&record_bits) {
            return Err(format!(
                "its records have {record_bits} bits, not 24, 28 or 32"
            ));
        }
        let ip_version = number("ip_version")?;
        let built_unix_seconds = number("build_epoch")?;
        // Two records of a node are `record_bits / 4` bytes.
        let tree = node_count.saturating_mul(record_bits / 4);
        let tree = usize::try_from(tree).unwrap_or(usize::MAX);
        let data = before.get(tree.saturating_add(SEPARATOR)..);
        let (Some(data), Ok(node_count)) = (data, u32::try_from(node_count)) else {
            return Err(format!(
                "it is cut short: it has less than {node_count} nodes"
            ));
        };
        Ok(Self {
            node_count,
            has_ipv6: ip_version == 6,
            built_unix_seconds,
            record_bits,
            tree: &before[..tree],
            data,
            reads,
        })
    }

    /// Returns the two records of each node.
    pub(super) fn nodes(&self) -> impl Iterator<Item = [u32; 2]> + use<'b> {
        let bits = self.record_bits;
        let size = usize::try_from(bits / 4).unwrap_or(usize::MAX);
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
        };
        self.tree.chunks_exact(size).map(move |node| match bits {
            24 => [number(&node[..3]), number(&node[3..])],
            // The byte in the middle has the highest bits of both.
            28 => {
                let middle = u32::from(node[3]);
                let left = number(&node[..3]) | (middle & 0xf0) << 20;
                [left, number(&node[4..]) | (middle & 0x0f) << 24]
            }
            _ => [number(&node[..4]), number(&node[4..])],
        })
    }

    /// Returns the value at `path` below the value of a record beyond the nodes; `None` if it has
    /// no such field.
    ///
    /// # Errors
    /// If the file is damaged there.
    pub(super) fn value(
        &mut self,
        record: u32,
        path: &[&str],
    ) -> Result<Option<Value<'b>>, String> {
        let beyond = (record - self.node_count) as usize;
        let Some(at) = beyond.checked_sub(SEPARATOR) else {
            return Err(damaged());
        };
        find(self.data, at, path, &mut self.reads)
    }
}

/// Returns the value at `path` below the value at `at`.
fn find<'b>(
    data: &'b [u8],
    at: usize,
    path: &[&str],
    reads: &mut u64,
) -> Result<Option<Value<'b>>, String> {
    let mut cursor = Cursor { data, at, reads };
    let mut value = cursor.followed()?;
    for name in path {
        let Value::Map(fields) = value else {
            return Ok(None);
        };
        match cursor.field(fields, name.as_bytes())? {
            Some(found) => value = found,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn damaged() -> String {
    "it is damaged: a value is outside of the file, or not in MaxMind's format".into()
}

/// A place in the data; it moves behind each value that is read.
struct Cursor<'b, 'r> {
    data: &'b [u8],
    at: usize,
    /// Number of reads left.
    reads: &'r mut u64,
}

impl<'b> Cursor<'b, '_> {
    fn bytes(&mut self, count: usize) -> Result<&'b [u8], String> {
        let end = self.at.checked_add(count).ok_or_else(damaged)?;
        let bytes = self.data.get(self.at..end).ok_or_else(damaged)?;
        self.at = end;
        Ok(bytes)
    }

    fn number(&mut self, count: usize) -> Result<usize, String> {
        let bytes = self.bytes(count)?;
        Ok(bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }

    /// Reads one value; of a map or a list its beginning.
    fn next(&mut self) -> Result<Value<'b>, String> {
        *self.reads = self.reads.checked_sub(1).ok_or_else(damaged)?;
        let first = self.number(1)?;
        let kind = match first >> 5 {
            0 => 7 + self.number(1)?, // the types above 7
            kind => kind,
        };
        if kind == 1 {
            return self.pointer(first);
        }
        let size = match first & 31 {
            29 => 29 + self.number(1)?,
            30 => 285 + self.number(2)?,
            31 => 65_821 + self.number(3)?,
            size => size,
        };
        Ok(match kind {
            2 => Value::Text(self.bytes(size)?),
            5 | 6 | 9 if size <= 8 => Value::Number(self.number(size)? as u64),
            7 => Value::Map(size),
            11 => Value::List(size),
            14 => Value::Other, // its size is the flag
            3 | 4 | 8 | 10 | 15 => {
                self.bytes(size)?;
                Value::Other
            }
            _ => return Err(damaged()),
        })
    }

    fn pointer(&mut self, first: usize) -> Result<Value<'b>, String> {
        let high = first & 7;
        Ok(Value::Pointer(match first >> 3 & 3 {
            0 => high << 8 | self.number(1)?,
            1 => (high << 16 | self.number(2)?) + 2_048,
            2 => (high << 24 | self.number(3)?) + 526_336,
            _ => self.number(4)?,
        }))
    }

    /// Reads one value, there or where it points to. No pointer leads to another one.
    fn followed(&mut self) -> Result<Value<'b>, String> {
        let mut value = self.next()?;
        if let Value::Pointer(to) = value {
            self.at = to;
            value = self.next()?;
        }
        if matches!(value, Value::Pointer(_)) {
            return Err(damaged());
        }
        Ok(value)
    }

    /// Passes over one value and all in it.
    fn skip(&mut self) -> Result<(), String> {
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            match self.next()? {
                Value::Map(fields) => left += 2 * fields as u64,
                Value::List(values) => left += values as u64,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the value of a field of a map that has just begun.
    fn field(&mut self, fields: usize, wanted: &[u8]) -> Result<Option<Value<'b>>, String> {
        for _ in 0..fields {
            let mut name = self.next()?;
            if let Value::Pointer(to) = name {
                let back = std::mem::replace(&mut self.at, to);
                name = self.next()?;
                self.at = back;
            }
            if name == Value::Text(wanted) {
                return self.followed().map(Some);
            }
            self.skip()?;
        }
        Ok(None)
    }
}
