//! Failover: a change of the primary, noticed before it happens.
//!
//! ```text
//!   leader    +selected-slave --50 ms--> the replica becomes a primary --1 s--> +switch-master
//!   here      the old primary is left;   its ROLE is polled: it is used
//!                 '--> -failover-abort-.., leader lost, too late: the old primary again
//! ```
//!
//! The old primary answers as one for seconds, and forgets what it is charged meanwhile. Only the
//! sentinel that leads the failover publishes these events, so every sentinel is subscribed to.
//!
//! * Source: Redis documentation, "High availability with Redis Sentinel", Pub/Sub messages.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep, timeout};

use super::{Backing, SENTINEL_TIMEOUT, SentinelReply, Sentinels, text};
use crate::redis::hints::Losses;
use crate::redis::servers::node::{NodeRole, RedisNode};
use crate::redis::trouble::Trouble;

const SELECTED: &str = "+selected-slave";
const EVENTS: [&str; 4] = [
    SELECTED,
    "-failover-abort-no-good-slave",
    "-failover-abort-not-elected",
    "-failover-abort-slave-timeout",
];
/// Number of events that wait to be read; a failover has two of them.
const MAX_EVENTS: usize = 64;
/// Time between checks of a silent connection.
const PING: Duration = Duration::from_secs(5);
/// Time between questions to the replica for its role.
const POLL: Duration = Duration::from_millis(20);
/// Maximum time to wait for the replica: the usual `failover-timeout` of sentinels.
const LONGEST: Duration = Duration::from_secs(180);
/// The same once the leader is lost, which promotes within two of its turns or never.
const WITHOUT_LEADER: Duration = Duration::from_secs(10);
/// Time until a sentinel that refuses a subscription is asked again.
const REFUSED: Duration = Duration::from_secs(60);
/// Time in which other sentinels may still name the old primary.
const AGREED: Duration = Duration::from_secs(10);

/// A subscription to a sentinel, by its index. Dropped, it may be made again.
pub(super) struct Subscription {
    inner: Weak<Sentinels>,
    index: usize,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.subscribed[self.index].store(false, Ordering::Relaxed);
        }
    }
}

/// Subscribes to each sentinel that is not subscribed to.
pub(super) fn subscribe(inner: &Arc<Sentinels>) {
    for (index, subscribed) in inner.subscribed.iter().enumerate() {
        if !subscribed.swap(true, Ordering::Relaxed) {
            let inner = Arc::downgrade(inner);
            let subscription = Subscription { inner, index };
            tokio::spawn(async move { subscription.follow().await });
        }
    }
}

impl Subscription {
    /// Follows failovers that this sentinel leads, until the connection or the store is gone.
    async fn follow(self) -> Option<()> {
        let (sender, mut events) = channel(MAX_EVENTS);
        let dial = self.inner.upgrade()?.nodes[self.index].dial().clone();
        let subscribed = async {
            let send = move |event| sender.try_send(event);
            let open = dial.connect_to_listen(SENTINEL_TIMEOUT, send).await?;
            let mut line = open.connection.clone();
            line.subscribe(&EVENTS[..]).await?;
            Ok::<_, Trouble>((open, line))
        };
        let (_open, mut line) = match subscribed.await {
            Err(Trouble::Refused(why)) => {
                self.inner.upgrade()?.refusal.get_or_init(|| why);
                sleep(REFUSED).await;
                return None;
            }
            subscribed => subscribed.ok()?,
        };
        loop {
            let Ok(event) = timeout(PING, events.recv()).await else {
                self.inner.upgrade()?;
                redis::cmd("PING").exec_async(&mut line).await.ok()?;
                continue;
            };
            let inner = self.inner.upgrade()?;
            if let Some(failover) = Failover::begun(&event?, &inner.master) {
                failover.follow(&inner, &mut events).await;
            }
        }
    }
}

/// A failover in progress.
#[derive(PartialEq, Eq, Debug)]
struct Failover {
    old: (String, u16),
    chosen: (String, u16),
}

impl Failover {
    /// Reads `slave NAME HOST PORT @ MASTER HOST PORT`; `None` for other events.
    fn begun(event: &PushInfo, master: &str) -> Option<Self> {
        let (channel, message) = message(event)?;
        let words: Vec<&str> = message.split(' ').collect();
        let ["slave", _, host, port, "@", name, old, old_port] = words[..] else {
            return None;
        };
        (channel == SELECTED && name == master).then_some(())?;
        Some(Self {
            old: (old.to_owned(), old_port.parse().ok()?),
            chosen: (host.to_owned(), port.parse().ok()?),
        })
    }

    async fn follow(self, inner: &Sentinels, events: &mut Receiver<PushInfo>) {
        let ((old, old_port), (host, port)) = (&self.old, &self.chosen);
        let (Some(old), Some(dial)) = (inner.dial.to(old, *old_port), inner.dial.to(host, *port))
        else {
            return;
        };
        let epoch = inner.leave(old.address(), Instant::now() + LONGEST);
        let replica = RedisNode::new(dial, NodeRole::Any, inner.patience, Losses::default());
        let is_primary = tokio::select! {
            () = promoted(&replica) => true,
            () = given_up(events, &inner.master) => false,
            () = sleep(LONGEST) => false,
        };
        if !is_primary {
            inner.leave(old.address(), Instant::now()); // no longer
            return;
        }
        inner.leave(old.address(), Instant::now() + AGREED);
        let (host, port) = self.chosen;
        inner.accept(&SentinelReply { host, port, epoch }, Backing::Majority);
    }
}

/// Returns once the replica is a primary.
async fn promoted(replica: &RedisNode) {
    let role = redis::cmd("ROLE");
    loop {
        if let Ok(redis::Value::Array(role)) = replica.query(&role).await
            && role.first().and_then(text) == Some("master")
        {
            return;
        }
        sleep(POLL).await;
    }
}

/// Returns once the leader has given the failover up, or has been lost for long.
async fn given_up(events: &mut Receiver<PushInfo>, master: &str) {
    while let Some(event) = events.recv().await {
        if event.kind == PushKind::Disconnection {
            break;
        }
        let aborted = message(&event).filter(|(channel, _)| *channel != SELECTED);
        if aborted.is_some_and(|(_, message)| message.split(' ').nth(1) == Some(master)) {
            return;
        }
    }
    sleep(WITHOUT_LEADER).await;
}

/// Returns the channel and the text of a message.
fn message(event: &PushInfo) -> Option<(&str, &str)> {
    match (&event.kind, &event.data[..]) {
        (PushKind::Message, [channel, message]) => Some((text(channel)?, text(message)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn event(channel: &str, message: &str) -> PushInfo {
        let text = |text: &str| Value::BulkString(text.into());
        PushInfo {
            kind: PushKind::Message,
            data: vec![text(channel), text(message)],
        }
    }

    #[test]
    fn a_failover_begins_by_the_choice_of_a_replica_of_this_primary() {
        let chosen = "slave 10.0.0.2:6380 10.0.0.2 6380 @ mine 10.0.0.1 6379";
        let begun = Failover::begun(&event(SELECTED, chosen), "mine");
        let expected = Failover {
            old: ("10.0.0.1".into(), 6379),
            chosen: ("10.0.0.2".into(), 6380),
        };
        assert_eq!(begun, Some(expected));
        for (channel, message, master) in [
            (SELECTED, chosen, "other"),
            (EVENTS[3], chosen, "mine"),
            (SELECTED, "master mine 10.0.0.1 6379", "mine"),
            (SELECTED, "slave a 10.0.0.2 x @ mine 10.0.0.1 6379", "mine"),
            (SELECTED, "", "mine"),
        ] {
            assert_eq!(Failover::begun(&event(channel, message), master), None);
        }
    }
}
