//! In force: the directives about limits that nginx applies to the requests of a place.
//!
//! ```text
//!   server { limit_req A; limit_conn B;  location /a { limit_req C; } }
//!         A, B                                         C in place of A, and B
//! ```

use std::mem::discriminant;

use super::directive::{Directive, named};
use super::zone::Use;
use crate::import::limits::Writer;

/// Status of a refusal without `limit_req_status`.
const DEFAULT_STATUS: u16 = 503;

/// Directives in force at a place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct InForce {
    /// Each with its line.
    pub(super) uses: Vec<(usize, Use)>,
    pub(super) requests: Refusals,
    pub(super) connections: Refusals,
}

/// How limits of one kind refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusals {
    pub(super) status: u16,
    pub(super) is_dry_run: bool,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            status: DEFAULT_STATUS,
            is_dry_run: false,
        }
    }
}

impl InForce {
    /// Returns true if nginx counts a request here after it was at a place without limits of a
    /// kind. Limits of one kind are counted once.
    pub(super) fn counts_after(&self, first: &Self) -> bool {
        let is_new = |kind| {
            !first
                .uses
                .iter()
                .any(|(_, used)| discriminant(used) == kind)
        };
        let mut kinds = self.uses.iter().map(|(_, used)| discriminant(used));
        kinds.any(is_new)
    }

    /// Returns the directives in force within a block.
    pub(super) fn within(&self, block: &[Directive], writer: &mut Writer) -> Self {
        let mut inner = self.clone();
        for name in ["limit_req", "limit_conn"] {
            if named(block, name).next().is_some() {
                let is_other =
                    |used: &Use| matches!(used, Use::Requests { .. }) != (name == "limit_req");
                inner.uses.retain(|(_, used)| is_other(used));
            }
        }
        for directive in block {
            let name = directive.name.as_str();
            let is_requests = name.starts_with("limit_req");
            let refusals = if is_requests {
                &mut inner.requests
            } else {
                &mut inner.connections
            };
            match name {
                "limit_req" | "limit_conn" => match Use::read(directive) {
                    Ok(used) => {
                        inner.uses.push((directive.line, used));
                        let known = ["zone", "burst", "delay", "nodelay"];
                        for word in directive.others(&known).iter().filter(|_| is_requests) {
                            let why = format!("`{word}` is skipped: nginx itself has no such word");
                            directive.unsupported(&why, writer);
                        }
                    }
                    Err(why) => directive.unsupported(&format!("not imported: {why}"), writer),
                },
                "limit_req_status" | "limit_conn_status" => {
                    let status = directive.words.first().and_then(|word| word.parse().ok());
                    // By 444 nginx closes the connection without an answer.
                    if let Some(status) = status.filter(|status| *status != 444) {
                        refusals.status = status;
                    } else {
                        let word = directive.words.join(" ");
                        directive
                            .unsupported(&format!("`{word}` is not a status of an answer"), writer);
                    }
                }
                "limit_req_dry_run" | "limit_conn_dry_run" => {
                    refusals.is_dry_run = directive.is_on();
                }
                _ => {}
            }
        }
        inner
    }
}
