//! Doctor: the checks of a shared store, each with one line and advice.
//!
//! ```text
//!   RedisStore --servers--> reachable? --no--> that is all there is to say
//!                              | yes
//!     version  replicas  cluster  scripts  clock  eviction  persistence  latency
//!        |         |        |        |       |       |           |          |
//!        +---------+--------+--------+--> Finding: ok, warning, failure; hint
//! ```
//!
//! Pure functions judge the servers' own reports; measurements are in `measure.rs`. Nothing is
//! written but keys under a prefix of their own, which are removed.

mod cluster;
pub(crate) mod conformance;
pub(crate) mod geo;
mod measure;
pub(crate) mod notices;
mod reach;
mod settings;
mod version;

pub(crate) use measure::forget;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::time::Duration;

use ratekeeper_core::{Nanos, UnixMicros};
use ratekeeper_server::writable_by_all;
use ratekeeper_store::{RedisServer, RedisStore, ServerInfo, StoreError};
use serde_json::{Map, Value, json};

/// Time after which a server counts as unreachable. Longer than the deadline of most policies, so
/// that slowness can be distinguished from absence.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Grade {
    Ok,
    Warning,
    Failure,
}

impl Grade {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// Outcome of a check, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judgement {
    pub(crate) grade: Grade,
    pub(crate) message: String,
    /// Advice.
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

    /// Combines the judgements of several servers: the common one, or the worst.
    fn of_all(each: Vec<(String, Self)>) -> Self {
        let count = each.len();
        let worst = each.iter().map(|(_, judged)| judged.grade).max();
        let mut first: Option<(String, Self)> = None;
        let (mut alike, mut as_bad) = (true, 0_usize);
        for (address, judged) in each {
            alike &= first.as_ref().is_none_or(|(_, first)| *first == judged);
            if Some(judged.grade) == worst {
                as_bad += 1;
                let known = first
                    .as_ref()
                    .is_some_and(|(_, first)| Some(first.grade) == worst);
                if !known {
                    first = Some((address, judged));
                }
            } else if first.is_none() {
                first = Some((address, judged));
            }
        }
        let Some((address, judged)) = first else {
            return Self::ok("no server was checked");
        };
        if count == 1 {
            return judged;
        }
        let message = match (alike, as_bad) {
            (true, _) => format!("{}, on each of {count} servers", judged.message),
            (false, 1) => format!("{address}: {}", judged.message),
            (false, more) => format!(
                "{address}: {} ({more} of {count} servers have this result)",
                judged.message
            ),
        };
        Self { message, ..judged }
    }
}

/// A check and its outcome.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) judged: Judgement,
    /// Measurements, for programs.
    pub(crate) figures: Map<String, Value>,
}

impl Finding {
    fn new(check: &'static str, judged: Judgement) -> Self {
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

    pub(crate) fn document(&self) -> Value {
        let mut document = json!({
            "check": self.check,
            "result": self.judged.grade.name(),
            "message": self.judged.message,
        });
        if let Some(hint) = &self.judged.hint {
            document["hint"] = hint.as_str().into();
        }
        if let Some(document) = document.as_object_mut() {
            document.extend(self.figures.clone());
        }
        document
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

    fn has_cluster(&self) -> bool {
        self.info.number("cluster_enabled") == Some(1)
    }
}

/// Facts that the checks need besides the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// True if the store is used as a cluster.
    pub(crate) cluster: bool,
    /// Maximum time of a decision.
    pub(crate) deadline: Nanos,
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

/// The first server of a store that answers.
pub(crate) struct FirstServer {
    /// `redis 7.0.15`
    pub(crate) product: String,
    /// True if it is a node of a cluster.
    pub(crate) cluster: bool,
    pub(crate) clock: Result<UnixMicros, StoreError>,
}

/// Returns the first server; `None` if no server answers, or if it is too old to decide.
pub(crate) async fn first(store: &RedisStore) -> (Finding, Option<FirstServer>) {
    let (reached, nodes) = reach::reach(store).await;
    let Some(node) = nodes.first() else {
        return (reached, None);
    };
    let judged = version::judge(&node.info);
    if judged.grade == Grade::Failure {
        return (Finding::new("version", judged), None);
    }
    let named = |(name, version): (&str, &str)| format!("{name} {version}");
    let first = FirstServer {
        product: version::product(&node.info).map_or("an unknown server".into(), named),
        cluster: node.has_cluster(),
        clock: node.server.clock().await,
    };
    (reached, Some(first))
}

/// Runs every check; `store` has a prefix of its own.
pub(crate) async fn examine(store: &RedisStore, expected: Expected) -> Vec<Finding> {
    let (reached, nodes) = reach::reach(store).await;
    let mut findings = vec![reached];
    if nodes.is_empty() {
        return findings;
    }
    let each = |judge: &dyn Fn(&DoctorNode) -> Judgement| {
        let judged = nodes
            .iter()
            .filter(|node| node.is_primary() || !expected.cluster);
        Judgement::of_all(
            judged
                .map(|node| (node.server.address(), judge(node)))
                .collect(),
        )
    };
    findings.push(Finding::new(
        "version",
        each(&|node| version::judge(&node.info)),
    ));
    let replicas = each(&|node| settings::replicas(&node.info));
    let usable = replicas.grade != Grade::Failure;
    findings.push(Finding::new("replicas", replicas));
    let cluster = cluster::judge(&nodes, expected).await;
    let whole = cluster
        .as_ref()
        .is_none_or(|judged| judged.grade != Grade::Failure);
    findings.extend(cluster.map(|judged| Finding::new("cluster", judged)));
    let mut decides = usable && whole;
    if decides {
        let scripts = measure::scripts(store, &nodes).await;
        decides = scripts.judged.grade != Grade::Failure;
        findings.push(scripts);
    }
    findings.push(measure::clocks(&nodes).await);
    findings.push(Finding::new(
        "eviction",
        each(&|node| settings::eviction(&node.info)),
    ));
    let mut kept = Vec::new();
    for node in nodes.iter().filter(|node| node.is_primary()) {
        let judged = settings::persistence(&node.info, &settings::Saves::of(&node.server).await);
        kept.push((node.server.address(), judged));
    }
    if !kept.is_empty() {
        findings.push(Finding::new("persistence", Judgement::of_all(kept)));
    }
    if decides {
        findings.push(measure::latency(store, &nodes, expected.deadline).await);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_agree_are_one_line_otherwise_the_worst_is_shown() {
        let judged = |each: &[(&str, Judgement)]| {
            let each = each
                .iter()
                .map(|(at, judged)| ((*at).to_owned(), judged.clone()));
            let judged = Judgement::of_all(each.collect());
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
