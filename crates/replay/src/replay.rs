//! Replay: the requests of a log decided by a policy, in the log's time.
//!
//! ```text
//!   record --> facts --> keeper (the policy, counters in memory, the log's clock) --> answer
//!                                   ^ results are reported when the record says they came
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ratekeeper::{Answer, Clock, Keeper, Permit, Report, Scope, at_once};
use ratekeeper_core::{LeaseId, Limit, Origin, Time};
use ratekeeper_policy::{Cost, Facts, Geo, KeyPart, Policy, Rule};
use ratekeeper_store::{MemoryConfig, MemoryStore};
use smallvec::SmallVec;

use crate::clients::{Clients, LoggedClient};
use crate::record::{FieldKind, Record};
use crate::report::describe_key;
use crate::tally::ReplayTally;

/// A policy that decides the requests of a log, with counters in memory, and counts its decisions.
/// Its clock is the log's, so calendars and windows begin as in service.
///
/// ```
/// use ratekeeper_policy::config::{Context, parse};
/// use ratekeeper_replay::{RequestLog, LogOptions, ORIGIN, Replay};
///
/// let policy = r#"
///     version = 1
///     [[limit]]
///     name  = "per-ip"
///     key   = ["ip"]
///     limit = "2/1m"
/// "#;
/// let policy = parse(policy, Context::from(ORIGIN)).unwrap().policy;
/// # let directory = std::env::temp_dir().join(format!("ratekeeper-replay-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("access.log");
/// # let line = r#"192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" 200 5"#;
/// # std::fs::write(&path, format!("{line}\n{line}\n{line}\n"))?;
/// let mut replay = Replay::new(policy, 64 << 20);
/// for record in RequestLog::open(&[path], &LogOptions::default())? {
///     let record = record?;
///     if !replay.decide(&record).allowed() {
///         println!("{} {}", record.client(), record.path_and_query().0);
///     }
/// }
/// assert_eq!((replay.decided(), replay.refused()), (3, 1));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    keeper: Keeper<MemoryStore, LogClock>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) clients: Clients,
    pub(crate) tally: ReplayTally,
    /// Requests whose results come later, by their end and number.
    ends: BTreeMap<(u64, u64), End>,
    /// Names of the gateway's routes, to which `on_limit` sends requests.
    routes: Vec<Box<str>>,
    is_reported: bool,
    is_lent: bool,
    /// Parts of keys and matches for which no record had a value, so far.
    pub(crate) unseen: Vec<KeyPart>,
    pub(crate) has_durations: bool,
    /// Number of allowed requests with a status, which is the result that is reported.
    pub(crate) results: u64,
}

/// The zero of a replay's clock, with which its policy is read: 1970.
pub const ORIGIN: Origin = Origin::UNIX;

/// The clock of a log: the time of the last record.
#[derive(Debug, Default)]
struct LogClock(AtomicU64);

impl Clock for LogClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Relaxed))
    }

    fn origin(&self) -> Origin {
        ORIGIN
    }
}

/// The end of a request that was allowed.
#[derive(Debug)]
struct End {
    answer: Answer,
    status: Option<u16>,
}

type Headers<'a> = SmallVec<[(&'a str, &'a [u8]); 4]>;

fn headers(record: &Record) -> Headers<'_> {
    let headers = record.named(FieldKind::Header);
    headers
        .map(|(name, value)| (name, value.as_bytes()))
        .collect()
}

impl Replay {
    /// Creates a replay by `policy`, which was read with [`ORIGIN`]. Its counters take at most
    /// `counter_bytes`; see [`evictions`](Self::evictions).
    pub fn new(policy: Policy, counter_bytes: usize) -> Self {
        let store = MemoryStore::new(MemoryConfig {
            budget_bytes: counter_bytes,
        });
        let keeper = Keeper::new(policy, store, LogClock::default());
        let policy = keeper.policy();
        let lends = |limit: &Limit| limit.algorithm.concurrency().is_some();
        let is_lent = policy.rules.iter().flat_map(Rule::limits).any(lends);
        let mut unseen: Vec<KeyPart> = Vec::new();
        for part in policy.rules.iter().flat_map(parts) {
            if !unseen.contains(&part) {
                unseen.push(part);
            }
        }
        let proxy = policy.settings.listen.proxy.iter();
        let routes = proxy.flat_map(|proxy| &proxy.routes);
        Self {
            is_lent,
            routes: routes.map(|route| route.name.clone()).collect(),
            is_reported: policy.rules.are_corrected(),
            tally: ReplayTally::new(&policy),
            keeper,
            policy,
            clients: Clients::default(),
            ends: BTreeMap::new(),
            unseen,
            has_durations: false,
            results: 0,
        }
    }

    /// Returns the number of requests that were decided.
    pub fn decided(&self) -> u64 {
        self.tally.all.requests
    }

    /// Returns the number of requests that were refused.
    pub fn refused(&self) -> u64 {
        self.tally.all.refused
    }

    /// Returns the number of clients, and of those of which a request was refused.
    pub fn clients(&self) -> (u64, u64) {
        (self.tally.all.clients(), self.tally.all.clients_hit())
    }

    /// Returns the number of keys that were forgotten because the memory was full. If it is not
    /// zero, the decisions are not exact.
    pub fn evictions(&self) -> u64 {
        let usage = self.keeper.store().usage();
        usage.limits.iter().map(|limit| limit.evicted.budget).sum()
    }

    /// Returns the memory that counters, counts and clients take, about.
    pub fn bytes(&self) -> usize {
        let ends = self.ends.len() * size_of::<((u64, u64), End)>();
        self.keeper.store().usage().bytes + self.tally.bytes() + self.clients.bytes() + ends
    }

    /// Returns the limit that refused a request and its key, in words: `per-ip ip=192.0.2.1`; empty
    /// if the answer of this replay allowed it.
    pub fn refused_key(&self, answer: &Answer) -> String {
        answer.refused_by().map_or(String::new(), |outcome| {
            let key = describe_key(outcome.rule, outcome.key, self);
            format!("{} {key}", outcome.rule.limit.name)
        })
    }

    /// Returns the client of a record: behind the proxies that the policy trusts.
    pub(crate) fn client(&mut self, record: &Record) -> Option<LoggedClient> {
        let source = &self.policy.client_ip;
        let text = record.client();
        let peer = (!text.is_empty()).then(|| self.clients.of_text(text, source));
        if let Some(peer) = peer.filter(|peer| !source.trusts(peer.ip)) {
            return Some(peer);
        }
        let headers = headers(record);
        let (peer, client) = if let Some(peer) = peer {
            (peer.ip, source.identify(peer.ip, &headers))
        } else {
            // Envoy's own format has no peer, which Envoy writes as the last hop.
            let mut fields = headers.iter();
            let (_, last) = fields.find(|(name, _)| *name == "x-forwarded-for")?;
            let hops = str::from_utf8(last).ok()?;
            let (before, peer) = hops.rsplit_once(',').unwrap_or(("", hops));
            let peer = peer.trim().parse::<IpAddr>().ok()?;
            let before = [("x-forwarded-for", before.as_bytes())];
            (peer, source.identify(peer, &before))
        };
        Some(LoggedClient {
            country: self.policy.stated_country(peer, &headers),
            ..self.clients.of_address(client, source)
        })
    }

    /// Decides a request at its time, which must not be before that of the last one.
    pub fn decide(&mut self, record: &Record) -> Answer {
        let client = self.client(record);
        self.decide_for(record, client)
    }

    /// Decides a request by several replays, which trust the same proxies, and calls `each` with
    /// the place of a replay and its answer.
    pub fn decide_each(
        replays: &mut [Self],
        record: &Record,
        mut each: impl FnMut(usize, &Answer),
    ) {
        let client = replays.first_mut().and_then(|first| first.client(record));
        for (index, replay) in replays.iter_mut().enumerate() {
            each(index, &replay.decide_for(record, client));
        }
    }

    fn decide_for(&mut self, record: &Record, client: Option<LoggedClient>) -> Answer {
        self.end_until(record.at());
        self.keeper.clock().0.store(record.at(), Relaxed);
        let cookies = record.named(FieldKind::Cookie);
        let cookies: SmallVec<[String; 2]> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut headers = headers(record);
        headers.extend(cookies.iter().map(|cookie| ("cookie", cookie.as_bytes())));
        let attributes: SmallVec<[(&str, &str); 4]> = record.named(FieldKind::Attribute).collect();
        let (path, query) = record.path_and_query();
        let facts = Facts {
            method: record.method(),
            host: record.host(),
            path,
            query,
            ip: client.map(|client| client.ip),
            country: client.and_then(|client| client.country),
            headers: &headers,
            attributes: &attributes,
            routes: &self.routes,
            ..Facts::default()
        };
        if !self.unseen.is_empty() {
            let policy = &self.policy;
            self.unseen.retain(|part| !has(part, &facts, policy));
        }
        let number = self.decided();
        let answer = if self.is_lent {
            let lease = LeaseId::from_bytes(u128::from(number).to_be_bytes());
            let acquired = at_once(self.keeper.acquire(&facts, Scope::All, lease));
            acquired.unwrap_or_else(|_| unreachable!("the memory store always answers"))
        } else {
            self.keeper.check_now(&facts, Scope::All)
        };
        self.tally
            .add(record.at(), client.map(|client| client.number), &answer);
        if answer.allowed() && (self.is_reported || self.is_lent) {
            self.has_durations |= record.duration().is_some();
            self.results += u64::from(record.status().is_some());
            let at = record.at().saturating_add(record.duration().unwrap_or(0));
            let end = End {
                answer: answer.clone(),
                status: record.status(),
            };
            self.ends.insert((at, number), end);
            self.end_until(record.at());
        }
        answer
    }

    /// Reports the results of the requests that have ended by then.
    fn end_until(&mut self, at: u64) {
        while let Some(entry) = self.ends.first_entry()
            && entry.key().0 <= at
        {
            let ((at, _), end) = entry.remove_entry();
            self.keeper.clock().0.store(at, Relaxed);
            // The memory store always answers.
            if let (true, Some(status)) = (self.is_reported, end.status) {
                let report = Report::default().status(status);
                let _ = at_once(self.keeper.settle(&end.answer, &report));
            }
            if self.is_lent {
                let permits: Vec<Permit> = end.answer.permits().map(|(permit, _)| permit).collect();
                let _ = at_once(self.keeper.release(&permits));
            }
        }
    }
}

/// Returns the parts of a request that a rule reads: its key, its cost, its `match`, its exemptions
/// and its priority.
pub(crate) fn parts(rule: &Rule) -> impl Iterator<Item = KeyPart> {
    let exemptions = rule.exemptions.iter().map(|exemption| &exemption.matcher);
    let matchers = exemptions.chain(rule.priority.iter().map(|priority| &priority.matcher));
    let others = matchers.flat_map(|matcher| matcher.fields.iter().map(|(field, _)| field));
    let compared = rule.fields().chain(others).filter_map(|field| {
        let part = field.to_string().replacen('.', ":", 1); // `header.x-user` of a `match`
        KeyPart::parse(&part).ok()
    });
    let cost = match &rule.cost {
        Cost::Attribute(name, _) => Some(KeyPart::Attribute(name.clone())),
        _ => None,
    };
    rule.key.iter().cloned().chain(cost).chain(compared)
}

/// Returns true if a request has a value for this part of a key.
fn has(part: &KeyPart, facts: &Facts<'_>, policy: &Policy) -> bool {
    match part {
        KeyPart::Ip { .. } => facts.ip.is_some(),
        KeyPart::Host => !facts.host.is_empty(),
        KeyPart::Method => !facts.method.is_empty(),
        KeyPart::Country | KeyPart::Continent => {
            let mut files = policy.geo.iter().flat_map(Geo::files);
            facts.country.is_some() || files.any(|file| file.field == "country_db")
        }
        KeyPart::Header(name) => facts.header(name).is_some(),
        KeyPart::Cookie(name) => {
            let lines = facts.headers.iter().filter(|(it, _)| *it == "cookie");
            let mut pairs = lines.flat_map(|(_, line)| line.split(|byte| *byte == b';'));
            pairs.any(|pair| {
                let rest = pair.trim_ascii_start().strip_prefix(name.as_bytes());
                rest.is_some_and(|rest| rest.starts_with(b"="))
            })
        }
        KeyPart::Bearer | KeyPart::Claim(_) => facts.header("authorization").is_some(),
        KeyPart::ApiKey => ["x-api-key", "authorization"]
            .iter()
            .any(|it| facts.header(it).is_some()),
        KeyPart::Attribute(name) => facts.attribute(name).is_some(),
        KeyPart::Body(_) | KeyPart::Descriptor(_) => false,
        _ => true,
    }
}
