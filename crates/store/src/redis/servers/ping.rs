//! Ping: whether the servers answer.

use ratekeeper_core::{Charge, Time};

use super::no_answer;
use super::node::ScriptCall;
use crate::fallback::Remote;
use crate::redis::slot::{SLOTS, slot_of};
use crate::redis::{RedisStore, StoreError};
use crate::{Decisions, Store};

impl Remote for RedisStore {
    /// Checks that states can be read and written: a server that is full, or may not write,
    /// answers but does not decide. In a cluster, one state in each third of the slots is tried
    /// and one success is enough, because servers that do not decide affect their keys only.
    async fn ping(&self) -> Result<(), StoreError> {
        let thirds = if self.servers.has_slots() { 3 } else { 1 };
        let (mut answered, mut trouble) = (false, None);
        for third in 0..thirds {
            let name = probe_name(&self.config.prefix, third);
            let keys = [&*name];
            let call = ScriptCall::new(&self.scripts.ping, &keys, &[]);
            let deadline = self.config.deadline;
            let answer = self.servers.run(slot_of(&name), call);
            let answer = tokio::time::timeout(deadline, answer).await;
            match answer.unwrap_or_else(|_| Err(no_answer(deadline))) {
                Ok(_) => answered = true,
                Err(why) => trouble = Some(why),
            }
        }
        match trouble {
            Some(trouble) if !answered => Err(trouble.into()),
            _ => Ok(()),
        }
    }

    fn is_away(&self) -> bool {
        let servers = self.servers.known();
        !servers.is_empty() && servers.iter().all(|server| server.trouble().is_some())
    }

    /// Forgets the remembered denials first, because the store may have lost its states.
    async fn debit(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        for charge in charges {
            self.denied.forget(&self.item(*charge).name);
        }
        self.decide(charges, now).await
    }
}

/// Returns a key that no limit has, in a third of the slots.
fn probe_name(prefix: &str, third: u16) -> Vec<u8> {
    let name = |number: u16| format!("{prefix}:{{probe-{number}}}?").into_bytes();
    let is_there = |name: &Vec<u8>| slot_of(name) / (SLOTS / 3 + 1) == third;
    let mut names = (0..u16::MAX).map(name);
    names.find(is_there).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_name_in_each_third_of_the_slots() {
        for prefix in ["", "rk", "a longer one:"] {
            for (third, slots) in [(0, 0..=5_461), (1, 5_462..=10_923), (2, 10_924..=16_383)] {
                let name = probe_name(prefix, third);
                assert!(name.starts_with(format!("{prefix}:{{probe-").as_bytes()));
                assert!(slots.contains(&slot_of(&name)));
            }
        }
    }
}
