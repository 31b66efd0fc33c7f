//! Algorithm: how a limit counts, as the file says it.

use std::ops::Range;

use ratekeeper_core::{Edge, Nanos};
use toml::de::DeTable;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::numbers::{Written, span};
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
    SmoothBursty {
        /// For how long permits are saved up; none for the period of the limit.
        saves: Option<Nanos>,
    },
}

/// `algorithm`, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) value: Algorithm,
    pub(super) at: Range<usize>,
    /// Of `min_gap` or `save_up`; empty if neither is written.
    pub(super) span_at: Range<usize>,
}

/// The fields of `algorithm = { .. }` that belong to one algorithm: field and algorithm.
const OWNED: [(&str, &str); 4] = [
    ("count", "sub-buckets"),
    ("edge", "sub-buckets"),
    ("min_gap", "log"),
    ("save_up", "smooth-bursty"),
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
            Self::SmoothBursty { .. } => "smooth-bursty",
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
    let mut span_at = 0..0;
    let mut written = |field, kind| match fields.and_then(|fields| read::text(fields, field)) {
        None => Some(None),
        Some(text) => {
            span_at = text.at.clone();
            span(&text, kind, out).map(Some)
        }
    };
    let value = match name {
        "sliding" => Algorithm::Sliding,
        "fixed" => Algorithm::Fixed,
        "quota-reset" => Algorithm::QuotaReset,
        "gcra" | "token-bucket" | "leaky-bucket" => Algorithm::Gcra,
        "sub-buckets" => sub_buckets(fields),
        "log" => Algorithm::Log {
            gap: written("min_gap", Written::MinGap)?.unwrap_or_default(),
        },
        "hybrid" => Algorithm::Hybrid,
        "exponential" => Algorithm::Exponential,
        "smooth-bursty" => Algorithm::SmoothBursty {
            saves: written("save_up", Written::SaveUp)?,
        },
        _ => return None, // reported as an unknown word
    };
    Some(Named { value, at, span_at })
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
