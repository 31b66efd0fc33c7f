//! Algorithm: how a limit counts, as the file says it.

use std::ops::Range;

use ratekeeper_core::{Edge, Error, Nanos};
use toml::de::DeTable;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::numbers::{Written, refuse};
use super::read;

/// Sub-buckets of `algorithm = "sub-buckets"`.
const DEFAULT_SUB_BUCKETS: u32 = 6;

/// An algorithm as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    Sliding,
    Fixed,
    QuotaReset,
    Gcra,
    SubBuckets {
        count: u32,
        edge: Edge,
    },
    Log {
        /// Least time between two requests; zero asks for none.
        gap: Nanos,
    },
    Hybrid,
    Exponential,
}

/// `algorithm`, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) value: Algorithm,
    pub(super) at: Range<usize>,
    /// Of `min_gap`; empty if it is not written.
    pub(super) gap_at: Range<usize>,
}

/// The fields of `algorithm = { .. }` that belong to one algorithm: field and algorithm.
const OWNED: [(&str, &str); 3] = [
    ("count", "sub-buckets"),
    ("edge", "sub-buckets"),
    ("min_gap", "log"),
];

impl Algorithm {
    /// As it stands in the file.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Sliding => "sliding",
            Self::Fixed => "fixed",
            Self::QuotaReset => "quota-reset",
            Self::Gcra => "gcra",
            Self::SubBuckets { .. } => "sub-buckets",
            Self::Log { .. } => "log",
            Self::Hybrid => "hybrid",
            Self::Exponential => "exponential",
        }
    }
}

/// `algorithm`, a word or a table.
pub(super) fn algorithm(table: &DeTable<'_>, out: &mut Findings<'_>) -> Option<Named> {
    let node = table.get("algorithm")?;
    let at = node.span();
    let (name, fields) = match node.get_ref().as_table() {
        Some(fields) => (read::text(fields, "name")?.value, Some(fields)),
        None => (node.get_ref().as_str()?, None),
    };
    if let Some(fields) = fields
        && strays(name, fields, out)
    {
        return None;
    }
    let mut gap_at = 0..0;
    let value = match name {
        "sliding" => Algorithm::Sliding,
        "fixed" => Algorithm::Fixed,
        "quota-reset" => Algorithm::QuotaReset,
        "gcra" | "token-bucket" | "leaky-bucket" => Algorithm::Gcra,
        "sub-buckets" => sub_buckets(fields),
        "log" => {
            let text = fields.and_then(|fields| read::text(fields, "min_gap"));
            let gap = match text {
                None => Nanos::ZERO,
                Some(text) => {
                    let gap = text.value.parse().and_then(|gap| match gap {
                        Nanos::ZERO => Err(Error::NoSpan),
                        gap => Ok(gap),
                    });
                    let gap = gap.map_err(|error| refuse(error, &text, Written::MinGap, out));
                    gap_at = text.at;
                    gap.ok()?
                }
            };
            Algorithm::Log { gap }
        }
        "hybrid" => Algorithm::Hybrid,
        "exponential" => Algorithm::Exponential,
        _ => return None, // reported as an unknown word
    };
    Some(Named { value, at, gap_at })
}

fn sub_buckets(fields: Option<&DeTable<'_>>) -> Algorithm {
    let most = super::fields::MAX_SUB_BUCKETS;
    let count = fields.and_then(|fields| read::number(fields, "count", most));
    let edge = fields.and_then(|fields| read::text(fields, "edge"));
    Algorithm::SubBuckets {
        count: count
            .and_then(|count| u32::try_from(count.value).ok())
            .unwrap_or(DEFAULT_SUB_BUCKETS),
        edge: match edge.map(|edge| edge.value) {
            Some("weighted") => Edge::Weighted,
            Some("drop") => Edge::Drop,
            _ => Edge::Full,
        },
    }
}

/// Reports the first field that belongs to another algorithm.
fn strays(name: &str, fields: &DeTable<'_>, out: &mut Findings<'_>) -> bool {
    let stray = OWNED.iter().find_map(|(field, owner)| {
        let node = fields.get(*field).filter(|_| *owner != name)?;
        Some((field, owner, node.span()))
    });
    let Some((field, owner, at)) = stray else {
        return false;
    };
    let name = shown(name);
    let message = format!("`{field}` belongs to \"{owner}\", not to \"{name}\"");
    out.error(codes::ALGORITHM, at, message, "without meaning here")
        .help(format!(
            "write algorithm = \"{name}\", or name = \"{owner}\""
        ));
    true
}

/// `algorithm` beside a quantity that has its own; `gcra` may be said of those that are.
pub(super) fn no_algorithm(
    named: Option<Named>,
    quantity: &str,
    gcra: bool,
    out: &mut Findings<'_>,
) {
    let Some(named) = named.filter(|named| !gcra || named.value != Algorithm::Gcra) else {
        return;
    };
    let message = format!("`algorithm` beside {quantity}");
    let label = if gcra {
        format!("a {quantity} is always counted by GCRA")
    } else {
        format!("{quantity} has an algorithm of its own")
    };
    out.error(codes::ALGORITHM, named.at, message, label)
        .help("remove `algorithm`, or write the number as limit = \"100/1m\"");
}
