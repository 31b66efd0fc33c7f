//! Algorithm: how a limit counts, as written in the file.

use ratekeeper_core::{Edge, Nanos};

use crate::config::{At, Findings, Table, codes, shown};

/// Sub-buckets of `algorithm = "sub-buckets"`.
const DEFAULT_SUB_BUCKETS: u32 = 6;

/// An algorithm as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::config) enum AlgorithmSpec {
    TokenBucket,
    /// One permit each duration / N.
    LeakyBucket,
    Fixed,
    SlidingCounter,
    QuotaReset,
    SubBuckets {
        count: u32,
        edge: Edge,
    },
    SlidingLog {
        /// Least time between two requests; zero for no gap.
        gap: Nanos,
    },
    Hybrid,
    Exponential,
    SmoothBursty {
        /// How long permits are saved up; `None` for the period of the limit.
        saves: Option<Nanos>,
    },
}

/// The fields of `algorithm = { .. }` that belong to one algorithm: field and algorithm.
const OWNED: [(&str, &str); 4] = [
    ("count", "sub-buckets"),
    ("edge", "sub-buckets"),
    ("min_gap", "sliding-window-log"),
    ("save_up", "smooth-bursty"),
];

impl AlgorithmSpec {
    /// Returns the word as written in the file.
    pub(in crate::config) const fn word(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::Fixed => "fixed-window",
            Self::SlidingCounter => "sliding-window-counter",
            Self::QuotaReset => "quota-reset",
            Self::SubBuckets { .. } => "sub-buckets",
            Self::SlidingLog { .. } => "sliding-window-log",
            Self::Hybrid => "hybrid",
            Self::Exponential => "exponential",
            Self::SmoothBursty { .. } => "smooth-bursty",
        }
    }

    /// Returns true if GCRA counts it, which has room for a queue.
    pub(super) const fn is_gcra(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
}

/// Reads `algorithm`, a word or a table.
pub(super) fn algorithm(table: Table<'_>, out: &mut Findings<'_>) -> Option<At<AlgorithmSpec>> {
    let node = table.get("algorithm")?;
    let (name, fields) = match table.table("algorithm") {
        Some(fields) => (fields.text("name")?.value, Some(fields)),
        None => (node.get_ref().as_str()?, None),
    };
    if let Some(fields) = fields
        && strays(name, fields, out)
    {
        return None;
    }
    let span = |field| fields.and_then(|fields| fields.span(field));
    let value = match name {
        "token-bucket" => AlgorithmSpec::TokenBucket,
        "leaky-bucket" => AlgorithmSpec::LeakyBucket,
        "fixed-window" => AlgorithmSpec::Fixed,
        "sliding-window-counter" => AlgorithmSpec::SlidingCounter,
        "quota-reset" => AlgorithmSpec::QuotaReset,
        "sub-buckets" => sub_buckets(fields),
        "sliding-window-log" => AlgorithmSpec::SlidingLog {
            gap: span("min_gap").unwrap_or(Nanos::ZERO),
        },
        "hybrid" => AlgorithmSpec::Hybrid,
        "exponential" => AlgorithmSpec::Exponential,
        "smooth-bursty" => AlgorithmSpec::SmoothBursty {
            saves: span("save_up"),
        },
        _ => return None, // reported as an unknown value
    };
    Some(At::new(value, node.span()))
}

fn sub_buckets(fields: Option<Table<'_>>) -> AlgorithmSpec {
    let count = fields.and_then(|fields| fields.number("count"));
    AlgorithmSpec::SubBuckets {
        count: count.unwrap_or(DEFAULT_SUB_BUCKETS),
        edge: match fields.and_then(|fields| fields.owned("edge")) {
            Some("weighted") => Edge::Weighted,
            Some("drop") => Edge::Drop,
            _ => Edge::Full,
        },
    }
}

/// Reports the first field that belongs to another algorithm.
fn strays(name: &str, fields: Table<'_>, out: &mut Findings<'_>) -> bool {
    let stray = OWNED.iter().find_map(|(field, owner)| {
        let node = fields.get(field).filter(|_| *owner != name)?;
        Some((field, owner, node.span()))
    });
    let Some((field, owner, at)) = stray else {
        return false;
    };
    let name = shown(name);
    let message = format!("`{field}` belongs to \"{owner}\", not to \"{name}\"");
    let label = "not a field of this algorithm";
    out.error(codes::ALGORITHM, at, message, label)
        .help(format!(
            "write algorithm = \"{name}\", or name = \"{owner}\""
        ));
    true
}

/// Reports `algorithm` beside a quantity that has its own, which `own` may name.
pub(super) fn no_algorithm(
    named: Option<At<AlgorithmSpec>>,
    quantity: &str,
    own: Option<AlgorithmSpec>,
    out: &mut Findings<'_>,
) {
    let Some(named) = named.filter(|named| Some(named.value) != own) else {
        return;
    };
    let message = format!("this `algorithm` cannot be combined with {quantity}");
    let label = match own {
        Some(own) => format!("{quantity} is always a \"{}\"", own.word()),
        None => format!("{quantity} has its own algorithm"),
    };
    out.error(codes::ALGORITHM, named.at, message, label)
        .help("remove `algorithm`, or write the number as limit = \"100/1m\"");
}
