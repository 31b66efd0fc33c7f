//! Bans: the banned keys of a limit, found by a scan of the servers' keys, a page at a time.
//!
//! ```text
//!   SCAN cursor MATCH rk:{*}:login*~b* COUNT 128 --> names --> GET each --> banned?
//!     ^                                                           |
//!     +---- until the page is full, or the last server has ended -+
//! ```
//!
//! No list of bans is kept, so decisions pay nothing for it, and the states are the only truth.
//! Each command looks at few keys, so no decision waits long behind it. A ban that lasts while
//! the whole list is read is found, at least once; one that begins meanwhile may be missed.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use ratekeeper_core::{Algorithm as _, Banning, Limit, Permits, StoredForm as _, Time, UnixMicros};
use redis::Value;

use super::inspect::{RedisServer, clock_of};
use super::limits::Prepared;
use super::{RedisStore, name};
use crate::{KeyEntry, StoreError};

/// Keys that one command looks at: 0.14 ms of a server with a million keys.
const KEYS_PER_SCAN: usize = 128;
/// Commands for a page.
const SCANS_PER_PAGE: usize = 64;

/// A part of the list of banned keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BanPage {
    /// The keys found, in no order.
    pub bans: Vec<BannedKey>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<BanCursor>,
}

/// A banned key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BannedKey {
    /// The key and its state.
    pub entry: KeyEntry,
    /// True if the server has only a hash of a value, because it is long: then that value of the
    /// key is `#` and the hash.
    pub is_hashed: bool,
}

/// Where a list of bans goes on: a server, and a cursor of its `SCAN`. As text `SERVER/CURSOR`.
#[derive(Clone, PartialEq, Eq, Debug, derive_more::Display)]
#[display("{server}/{cursor}")]
pub struct BanCursor {
    server: String,
    cursor: u64,
}

impl FromStr for BanCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (server, cursor) = text.rsplit_once('/').ok_or(())?;
        Ok(Self {
            server: server.into(),
            cursor: cursor.parse().map_err(|_| ())?,
        })
    }
}

impl RedisStore {
    /// Returns banned keys of these limits, of which the first has the name that those of the
    /// others begin with. A page ends after 8,192 keys of the store, or with `top` bans or more.
    /// Keys without parts are not found.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if a server does not answer; [`StoreError::Misconfigured`] if
    /// it refuses.
    pub async fn bans(
        &self,
        limits: &[&Limit],
        from: Option<&BanCursor>,
        top: usize,
        now: Time,
    ) -> Result<BanPage, StoreError> {
        let Some(first) = limits.first() else {
            return Ok(BanPage::default());
        };
        let search = Search {
            pattern: name::pattern(&self.config.prefix, &first.name, Banning::TAG),
            prefix: &self.config.prefix,
            limits: limits.iter().map(|limit| self.labelled(limit)).collect(),
            given: self.given(now),
        };
        let servers = self.holders().await?;
        let (mut at, mut cursor) = start(&servers, from);
        let mut page = BanPage::default();
        for _ in 0..SCANS_PER_PAGE {
            let Some(server) = servers.get(at) else {
                return Ok(page);
            };
            cursor = search.step(server, cursor, &mut page.bans).await?;
            if cursor == 0 {
                at += 1;
            }
            if page.bans.len() >= top {
                break;
            }
        }
        page.next = servers.get(at).map(|server| BanCursor {
            server: server.address(),
            cursor,
        });
        Ok(page)
    }

    fn labelled(&self, limit: &Limit) -> (String, Arc<Prepared>) {
        let limit = self.limits.prepare(limit);
        let label = format!("{}{}", limit.label.limit, limit.label.shape);
        (label, limit)
    }
}

/// Returns the server and the cursor to go on from. If that server is gone, a replica has its
/// keys, in another order: the list begins again there, or at the next server of a cluster.
fn start(servers: &[RedisServer], from: Option<&BanCursor>) -> (usize, u64) {
    let Some(from) = from else {
        return (0, 0);
    };
    match servers.iter().position(|it| it.address() >= from.server) {
        Some(at) if servers[at].address() == from.server => (at, from.cursor),
        Some(at) => (at, 0),
        None if servers.len() == 1 => (0, 0),
        None => (servers.len(), 0),
    }
}

/// The limits whose bans are searched, and how their keys are named.
struct Search<'a> {
    pattern: String,
    prefix: &'a str,
    /// The limits, by name and shape.
    limits: HashMap<String, Arc<Prepared>>,
    /// The time, if the servers' clocks do not count.
    given: Option<UnixMicros>,
}

impl Search<'_> {
    /// Looks at a few keys of a server, adds the banned ones, and returns its next cursor, 0 at
    /// the end.
    async fn step(
        &self,
        server: &RedisServer,
        cursor: u64,
        bans: &mut Vec<BannedKey>,
    ) -> Result<u64, StoreError> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(KEYS_PER_SCAN);
        let strange = |_| StoreError::Misconfigured("unexpected reply to SCAN".into());
        let scanned = redis::from_redis_value(server.query(&scan).await?);
        let (cursor, names): (u64, Vec<Vec<u8>>) = scanned.map_err(strange)?;
        let found: Vec<_> = names.iter().filter_map(|name| self.read(name)).collect();
        if found.is_empty() {
            return Ok(cursor);
        }
        let mut pipe = redis::pipe();
        pipe.ignore_errors().cmd("TIME"); // a value that has just moved to another server
        for (name, ..) in &found {
            pipe.cmd("GET").arg(*name);
        }
        let mut answers = server
            .in_time(server.node.query_all(&pipe))
            .await?
            .into_iter();
        let clock = answers.next().and_then(clock_of);
        let Some(now) = self.given.or(clock) else {
            return Err(StoreError::Misconfigured("unexpected reply to TIME".into()));
        };
        for ((_, limit, named), value) in found.into_iter().zip(answers) {
            let Value::BulkString(value) = value else {
                continue; // it is over, or has moved
            };
            let algorithm = &limit.algorithm;
            let Some(state) = algorithm.read(&value, now) else {
                continue;
            };
            let decision = algorithm.look(&state, now.time(), Permits::ZERO);
            if decision.verdict.is_ban() {
                bans.push(BannedKey {
                    entry: KeyEntry {
                        key: named.key,
                        decision,
                    },
                    is_hashed: named.is_hashed,
                });
            }
        }
        Ok(cursor)
    }

    /// Reads the name of a key, if it is one of these limits.
    fn read<'n>(&self, name: &'n [u8]) -> Option<(&'n [u8], &Prepared, name::NamedKey)> {
        let limit_of = |label: &str| self.limits.get(label).map(|limit| &**limit);
        let (limit, named) = name::read(self.prefix, name, limit_of)?;
        Some((name, limit, named))
    }
}
