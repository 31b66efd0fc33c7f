//! Calls: a batch is decided in one call of the script, or in the two of an exchange.

use redis::Value;

use super::batch::{RedisBatch, ScriptReply};
use super::exchange::Exchange;
use super::gather::Gather;
use super::lanes::{LaneKey, ReplyResult, WaitingRequest};
use super::servers::node::ScriptCall;
use super::trouble::Trouble;

/// The answers to the requests of a batch.
type GroupResult = Result<Vec<ReplyResult>, Trouble>;

impl Gather {
    /// Decides a batch in one call, or by an exchange; makes no call if the batch is empty.
    pub(super) async fn decide(&self, way: LaneKey, group: &[WaitingRequest]) -> GroupResult {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        if way.exchanged.is_some() {
            return self.exchange(way, group).await;
        }
        let LaneKey { slot, given, .. } = way;
        let batch = RedisBatch::of(group.iter().map(|waiting| &waiting.ask));
        let losses = self.hints.losses.so_far();
        let hints = given.map_or_else(|| self.hints.of(&batch), |_| None);
        let Some((script, arguments)) = batch.script(&self.scripts, given, hints) else {
            return Err(Trouble::Refused("a limit has no Lua form".into()));
        };
        let names = batch.names();
        let call = ScriptCall::new(&script, &names, &arguments);
        let answer = self.servers.run(slot, call).await?;
        let found = ScriptReply::read(answer, names.len())?;
        let (each, after) = batch.settle(&found);
        if given.is_none() {
            self.hints.note(&batch, &found, &after, losses);
        }
        let reply = |answer: Result<_, _>| answer.map(|answer| (answer, found.now));
        Ok(each.into_iter().map(reply).collect())
    }

    /// Decides a batch by load, decide and swap.
    async fn exchange(&self, way: LaneKey, group: &[WaitingRequest]) -> GroupResult {
        let LaneKey { slot, given, .. } = way;
        let remembers = given.is_none();
        let batch = RedisBatch::of(group.iter().map(|waiting| &waiting.ask));
        let exchange = Exchange::of(batch, given);
        let (names, batch) = (&exchange.names, &exchange.batch);
        let given = [given.map_or(Vec::new(), |now| now.get().to_string().into())];
        let losses = self.hints.losses.so_far();
        let load = ScriptCall::new(&self.scripts.load, names, &given);
        let found = ScriptReply::read(self.servers.run(slot, load).await?, names.len())?;
        if group.iter().all(|waiting| waiting.answer.is_closed()) {
            return Err(Trouble::Raced); // every caller has gone
        }
        let hints = self.hints.of(batch).filter(|_| remembers);
        let exchanged = exchange.decide(&found, hints.as_deref())?;
        if let Some(arguments) = exchanged.swap {
            let swap = ScriptCall::new(&self.scripts.swap, names, &arguments);
            if self.servers.run(slot, swap).await? != Value::Int(1) {
                return Err(Trouble::Raced);
            }
        }
        if remembers {
            self.hints.note(batch, &found, &exchanged.after, losses);
        }
        let reply = |answer| Ok((answer, found.now));
        Ok(exchanged.answers.into_iter().map(reply).collect())
    }
}
