//! Algorithm: how a limit counts, as the file says it.

use ratekeeper_core::Edge;
use toml::de::DeTable;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::read::{self, At};

/// Sub-buckets of `algorithm = "sub-buckets"`.
const DEFAULT_SUB_BUCKETS: u32 = 6;

/// An algorithm as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    Sliding,
    Fixed,
    QuotaReset,
    Gcra,
    SubBuckets { count: u32, edge: Edge },
}

impl Algorithm {
    /// As it stands in the file.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Sliding => "sliding",
            Self::Fixed => "fixed",
            Self::QuotaReset => "quota-reset",
            Self::Gcra => "gcra",
            Self::SubBuckets { .. } => "sub-buckets",
        }
    }
}

/// `algorithm`, a word or a table.
pub(super) fn algorithm(table: &DeTable<'_>, out: &mut Findings<'_>) -> Option<At<Algorithm>> {
    let node = table.get("algorithm")?;
    let at = node.span();
    let (name, fields) = match node.get_ref().as_table() {
        Some(fields) => (read::text(fields, "name")?.value, Some(fields)),
        None => (node.get_ref().as_str()?, None),
    };
    let count =
        fields.and_then(|fields| read::number(fields, "count", super::fields::MAX_SUB_BUCKETS));
    let edge = fields.and_then(|fields| read::text(fields, "edge"));
    if name != "sub-buckets" {
        let count = count.as_ref().map(|count| ("count", count.at.clone()));
        let stray = count.or_else(|| edge.as_ref().map(|edge| ("edge", edge.at.clone())));
        if let Some((field, at)) = stray {
            let message = format!(
                "`{field}` belongs to \"sub-buckets\", not to \"{}\"",
                shown(name)
            );
            out.error(codes::ALGORITHM, at, message, "without meaning here")
                .help(format!(
                    "write algorithm = \"{}\", or name = \"sub-buckets\"",
                    shown(name)
                ));
            return None;
        }
    }
    let algorithm = match name {
        "sliding" => Algorithm::Sliding,
        "fixed" => Algorithm::Fixed,
        "quota-reset" => Algorithm::QuotaReset,
        "gcra" | "token-bucket" | "leaky-bucket" => Algorithm::Gcra,
        "sub-buckets" => Algorithm::SubBuckets {
            count: count
                .and_then(|count| u32::try_from(count.value).ok())
                .unwrap_or(DEFAULT_SUB_BUCKETS),
            edge: match edge.map(|edge| edge.value) {
                Some("weighted") => Edge::Weighted,
                Some("drop") => Edge::Drop,
                _ => Edge::Full,
            },
        },
        _ => return None, // reported as an unknown word
    };
    Some(At::new(algorithm, at))
}
