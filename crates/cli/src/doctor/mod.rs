//! Doctor: the checks of a shared store, each with one line and advice.
//!
//! ```text
//!   RedisStore --servers--> reachable? --no--> that is all there is to say
//!                              | yes
//!     version  replica?  cluster  scripts  clock  eviction  persistence  latency
//!        |         |        |        |       |       |           |          |
//!        +---------+--------+--------+--> Finding: ok, warning, failure; hint
//! ```
//!
//! Pure functions judge the servers' own reports; measurements are in `measure.rs`. Nothing is
//! written but keys under a prefix of their own, which are removed.

mod cluster;
mod measure;
mod reach;
mod settings;
mod version;

pub(crate) use measure::forget;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::time::Duration;

use ratekeeper_policy::RedisSettings;
use ratekeeper_server::writable_by_all;
use ratekeeper_store::{RedisServer, RedisStore, ServerInfo};
use serde::Serialize;
use serde_json::{Map, Value};

/// Time after which a server counts as unreachable. Longer than the deadline of most policies, so
/// that slowness can be distinguished from absence.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    Ok,
    Warning,
    Failure,
}

/// Outcome of a check, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Judgement {
    #[serde(rename = "result")]
    pub(crate) grade: Grade,
    pub(crate) message: String,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Judgement {
    pub(crate) fn ok(message: impl Into<String>) -> Self {
        Self {
            grade: Grade::Ok,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn warning(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            grade: Grade::Warning,
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    pub(crate) fn failure(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            grade: Grade::Failure,
            ..Self::warning(message, hint)
        }
    }

    /// Combines the judgements of several servers: the worst, with the address of the first that
    /// has it, or the common one.
    fn of_all(each: &[JudgedServer]) -> Self {
        let count = each.len();
        let worst = each.iter().map(|it| it.judged.grade).max();
        let is_worst = |it: &&JudgedServer| Some(it.judged.grade) == worst;
        let as_bad = each.iter().filter(is_worst).count();
        let Some(JudgedServer { address, judged }) = each.iter().find(is_worst) else {
            return Self::ok("no server was checked");
        };
        let message = &judged.message;
        let message = if count == 1 {
            message.clone()
        } else if each.iter().all(|it| it.judged == *judged) {
            format!("{message}, on each of {count} servers")
        } else if as_bad == 1 {
            format!("{address}: {message}")
        } else {
            format!("{address}: {message} ({as_bad} of {count} servers have this result)")
        };
        Self {
            message,
            ..judged.clone()
        }
    }
}

/// A check and its outcome.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    #[serde(flatten)]
    pub(crate) judged: Judgement,
    /// Measurements, for programs.
    #[serde(flatten)]
    pub(crate) figures: Map<String, Value>,
}

impl Finding {
    pub(crate) fn new(check: &'static str, judged: Judgement) -> Self {
        Self {
            check,
            judged,
            figures: Map::new(),
        }
    }

    fn with(mut self, name: &str, figure: impl Into<Value>) -> Self {
        self.figures.insert(name.into(), figure.into());
        self
    }
}

/// A server that answers.
struct DoctorNode {
    server: RedisServer,
    info: ServerInfo,
}

impl DoctorNode {
    fn is_primary(&self) -> bool {
        self.info.text("role") != Some("slave")
    }
}

/// The judgement of one of several servers.
struct JudgedServer {
    address: String,
    judged: Judgement,
}

impl JudgedServer {
    fn new(node: &DoctorNode, judged: Judgement) -> Self {
        let address = node.server.address();
        Self { address, judged }
    }
}

/// Returns a finding for a policy that every user of the machine may write.
pub(crate) fn open_policy(path: &Path) -> Option<Finding> {
    let text = writable_by_all(path)?;
    let hint = format!("chmod o-w {}", path.display());
    Some(Finding::new("policy", Judgement::warning(text, hint)))
}

/// Returns a prefix that no policy has.
pub(crate) fn scratch_prefix() -> String {
    // A hasher of the standard library begins with random bytes.
    format!("ratekeeper-doctor-{:016x}", RandomState::new().hash_one(()))
}

/// Runs every check of a store that is used by the settings `redis`; `store` has a prefix of its
/// own.
pub(crate) async fn examine(store: &RedisStore, redis: &RedisSettings) -> Vec<Finding> {
    let (reached, nodes) = reach::reach(store).await;
    let mut findings = vec![reached];
    if nodes.is_empty() {
        return findings;
    }
    let each = |check, judge: &dyn Fn(&ServerInfo) -> Judgement| {
        let judged = nodes
            .iter()
            .filter(|node| node.is_primary() || !redis.cluster)
            .map(|node| JudgedServer::new(node, judge(&node.info)));
        Finding::new(check, Judgement::of_all(&judged.collect::<Vec<_>>()))
    };
    findings.push(each("version", &version::judge));
    findings.push(each("role", &settings::role));
    let cluster = cluster::judge(&nodes, redis).await;
    findings.extend(cluster.map(|judged| Finding::new("cluster", judged)));
    let failed = |found: &Finding| found.judged.grade == Grade::Failure;
    // Of a server that is too old, or lost, the scripts tell more.
    let mut decides = !findings.iter().skip(2).any(failed);
    if decides {
        let scripts = measure::scripts(store, &nodes).await;
        decides = !failed(&scripts);
        findings.push(scripts);
    }
    findings.push(measure::clocks(&nodes).await);
    findings.push(each("eviction", &settings::eviction));
    let mut kept = Vec::new();
    for node in nodes.iter().filter(|node| node.is_primary()) {
        let snapshots = node.server.setting("save").await.ok().flatten(); // hosted ones refuse
        let judged = settings::persistence(&node.info, snapshots.as_deref());
        kept.push(JudgedServer::new(node, judged));
    }
    if !kept.is_empty() {
        findings.push(Finding::new("persistence", Judgement::of_all(&kept)));
    }
    if decides {
        findings.push(measure::latency(store, redis.deadline).await);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_agree_are_one_line_otherwise_the_worst_is_shown() {
        let judged = |each: &[(&str, Judgement)]| {
            let each = each.iter().map(|(at, judged)| JudgedServer {
                address: (*at).to_owned(),
                judged: judged.clone(),
            });
            let judged = Judgement::of_all(&each.collect::<Vec<_>>());
            (judged.grade, judged.message)
        };
        let (good, bad) = (
            Judgement::ok("good"),
            Judgement::failure("bad", "repair it"),
        );
        let rows = [
            (vec![("a", good.clone())], (Grade::Ok, "good")),
            (
                vec![("a", good.clone()), ("b", good.clone())],
                (Grade::Ok, "good, on each of 2 servers"),
            ),
            (
                vec![("a", good.clone()), ("b", bad.clone()), ("c", good.clone())],
                (Grade::Failure, "b: bad"),
            ),
            (
                vec![("a", good), ("b", bad.clone()), ("c", bad)],
                (Grade::Failure, "b: bad (2 of 3 servers have this result)"),
            ),
        ];
        for (each, (grade, message)) in rows {
            assert_eq!(judged(&each), (grade, message.to_owned()));
        }
    }

    #[test]
    fn no_two_scratch_prefixes_are_alike() {
        assert_ne!(scratch_prefix(), scratch_prefix());
    }
}
