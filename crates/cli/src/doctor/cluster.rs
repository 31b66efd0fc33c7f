//! Cluster: whether every slot is served, and whether a cluster is used as one.

use std::ops::RangeInclusive;

use ratekeeper_policy::RedisSettings;
use ratekeeper_store::ClusterNode;

use super::{DoctorNode, Judgement, reach};
use crate::words;

/// Returns `None` if there is no cluster, and none is expected.
pub(super) async fn judge(nodes: &[DoctorNode], redis: &RedisSettings) -> Option<Judgement> {
    let found = nodes
        .iter()
        .find(|node| node.info.number("cluster_enabled") == Some(1));
    match (redis.cluster, found) {
        (false, None) => None,
        (false, Some(node)) => {
            let address = node.server.address();
            let message = format!("{address} is a cluster node, but is used as a single server");
            let hint =
                "set cluster = true in [store.redis], or append ?cluster to the URL of --store";
            Some(Judgement::failure(message, hint))
        }
        (true, None) => Some(Judgement::failure(
            "the server is not a cluster node",
            "write one `url` that is not a list, without `cluster`; or set cluster-enabled in the \
             server's configuration file",
        )),
        (true, Some(node)) => Some(match node.server.cluster().await {
            Ok(seen) => slots(&seen, &node.server.address()),
            Err(error) => {
                let why = reach::why(error);
                let hint = "let the user run CLUSTER NODES";
                Judgement::warning(
                    format!("the state of the cluster cannot be read: {why}"),
                    hint,
                )
            }
        }),
    }
}

/// Judges the node list of one node; `asked` is its address.
fn slots(nodes: &[ClusterNode], asked: &str) -> Judgement {
    let gaps = ClusterNode::unserved(nodes);
    if !gaps.is_empty() {
        let count: u32 = gaps.iter().map(length).sum();
        let first = gaps[0].start();
        let message = format!(
            "no node serves {} of 16,384 slots, the first of them {first}; keys in these slots \
             cannot be counted",
            words::count(count),
        );
        let hint = format!(
            "run redis-cli --cluster check {asked} for details, and redis-cli --cluster fix \
             {asked} to repair the slots"
        );
        return Judgement::failure(message, hint);
    }
    let serving: Vec<_> = nodes.iter().filter(|node| !node.slots.is_empty()).collect();
    let replicas: Vec<_> = nodes.iter().filter(|node| node.is("slave")).collect();
    let is_lost = |node: &&&ClusterNode| node.is("fail") || node.is("fail?");
    if let Some(lost) = serving.iter().find(is_lost) {
        let slots = lost.slots.iter().map(length).sum::<u32>();
        let (address, slots) = (&lost.address, words::count(slots));
        return Judgement::failure(
            format!("{address}, which serves {slots} slots, is reported as failed or failing"),
            "restart it, or let a replica take over with CLUSTER FAILOVER",
        );
    }
    if let Some(lost) = replicas.iter().find(is_lost) {
        return Judgement::warning(
            format!(
                "{}, a replica, is reported as failed or failing",
                lost.address
            ),
            "restart it: until then, its primary has one replica fewer",
        );
    }
    let primaries = match serving.len() {
        1 => "1 primary".into(),
        count => format!("{count} primaries"),
    };
    let replicas = words::counted(replicas.len(), "replica");
    Judgement::ok(format!("{primaries} and {replicas} serve all 16,384 slots"))
}

fn length(slots: &RangeInclusive<u16>) -> u32 {
    u32::from(*slots.end()) - u32::from(*slots.start()) + 1
}

#[cfg(test)]
mod tests {
    use super::super::Grade::{Failure, Ok, Warning};
    use super::*;

    fn node(address: &str, flags: &str, slots: &[RangeInclusive<u16>]) -> ClusterNode {
        ClusterNode {
            address: address.into(),
            flags: flags.split(',').map(str::to_owned).collect(),
            slots: slots.to_vec(),
        }
    }

    #[test]
    fn a_cluster_serves_every_slot_or_fails() {
        let whole = || node("a:1", "myself,master", &[0..=16_383]);
        let rows = [
            (vec![whole()], Ok, "1 primary and 0 replicas"),
            (
                vec![whole(), node("b:1", "slave", &[])],
                Ok,
                "1 replica serve",
            ),
            (
                vec![whole(), node("b:1", "slave,fail", &[])],
                Warning,
                "b:1, a replica",
            ),
            (
                vec![node("a:1", "master", &[0..=99, 101..=16_383])],
                Failure,
                "no node serves 1 of 16,384 slots, the first of them 100;",
            ),
            (
                vec![node("a:1", "master", &[1..=1, 3..=3, 5..=5, 7..=7])],
                Failure,
                "no node serves 16,380 of 16,384 slots, the first of them 0;",
            ),
            (
                vec![
                    node("a:1", "myself,master", &[0..=8_000]),
                    node("b:1", "master,fail?", &[8_001..=16_383]),
                ],
                Failure,
                "b:1, which serves 8,383 slots",
            ),
        ];
        for (nodes, grade, words) in rows {
            let judged = slots(&nodes, "a:1");
            assert_eq!(judged.grade, grade, "{}", judged.message);
            assert!(judged.message.contains(words), "{}", judged.message);
        }
    }
}
