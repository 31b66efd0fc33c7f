//! Spread: requests with keys in several slots of a cluster.
//!
//! ```text
//!   items     a.slot 7   b.slot 7   c.slot 3   d.slot 7
//!   groups    7: a b d                3: c               in the order of their first items,
//!                                                        what takes nothing back the last
//!   decide    7 allows --> 3 denies --> give back to 7, unless it counts denials; say how
//!                                       all stands
//! ```
//!
//! No call spans two slots, so one step elsewhere takes several here. They are ordered so
//! that a race or a crash between them admits less, never more: a charge stays until it is
//! given back. Limits that take nothing back share one slot, which is asked when all others
//! have allowed. Limits that share a subject share a slot too; see [`name`](super::name).
//!
//! A chain ([`Mode::Otherwise`]) with charges in several slots is looked at first; then the first
//! of its charges that allows is decided, alone. If another request takes that room in between, the
//! chain denies. A key that the request names twice is looked at as if all charges of it were made.
//!
//! A condition ([`Mode::Once`]) and its charge lie in one slot, because their keys begin with the
//! same part; a headroom has the key of its charge.

use ratekeeper_core::{Decision, Key, Lend, Mode, Permits, UnixMicros};
use smallvec::SmallVec;

use super::batch::RedisRequest;
use super::settle::Item;
use super::slot::slot_of;
use super::trouble::Trouble;
use super::{ItemKeys, RedisStore};
use crate::Decisions;
use crate::act::{Act, ActAnswer, Decide, GiveBack, Look, ScriptAct};
use crate::modes::deny_rest;

/// The items of one slot, and their positions in the request.
struct SlotPart<'a> {
    slot: u16,
    at: SmallVec<[usize; 4]>,
    items: SmallVec<[Item; 2]>,
    keys: ItemKeys<'a>,
}

impl SlotPart<'_> {
    /// Returns true if its charges cannot be given back.
    fn is_final(&self) -> bool {
        self.items.iter().any(|item| item.limit.label.is_final)
    }

    fn ask<A: Act>(&self, act: A) -> RedisRequest<A> {
        RedisRequest {
            act,
            items: self.items.clone(),
        }
    }

    /// Returns the part with only those items for which `is_of` returns true.
    fn only(&self, is_of: impl Fn(&Item) -> bool) -> Self {
        let mut part = Self {
            slot: self.slot,
            at: SmallVec::new(),
            items: SmallVec::new(),
            keys: ItemKeys::new(),
        };
        for ((item, &key), &at) in self.items.iter().zip(&self.keys).zip(&self.at) {
            if is_of(item) {
                part.items.push(item.clone());
                part.keys.push(key);
                part.at.push(at);
            }
        }
        part
    }
}

impl RedisStore {
    /// Performs a request with keys in any slots.
    pub(super) async fn spread<A: Act>(
        &self,
        ask: RedisRequest<A>,
        keys: &[Key<'_>],
        given: Option<UnixMicros>,
    ) -> Result<A::Answer, Trouble> {
        if !self.servers.has_slots() {
            return self.one(ask, keys, 0, given).await;
        }
        // Large: boxed to keep it out of the future of a decision on one server.
        Box::pin(self.spread_over_slots(ask, keys, given)).await
    }

    async fn spread_over_slots<A: Act>(
        &self,
        ask: RedisRequest<A>,
        keys: &[Key<'_>],
        given: Option<UnixMicros>,
    ) -> Result<A::Answer, Trouble> {
        let act = ask.act;
        let mut slots = ask.items.iter().map(|item| slot_of(&item.name));
        if let Some(first) = slots.next()
            && slots.all(|slot| slot == first)
        {
            return self.one(ask, keys, first, given).await;
        }
        let has_chain = ask.items.iter().any(|item| item.mode == Mode::Otherwise);
        if let Some(script) = act.script()
            && let ScriptAct::Decide(lend) = script.act
        {
            let decisions = if has_chain {
                self.decide_chains(&ask.items, keys, lend, given).await?
            } else {
                self.decide_parts(&parts(ask.items, keys), lend, given)
                    .await?
            };
            return Ok((script.answer)(decisions));
        }
        self.each_part(act, ask.items, keys, given).await
    }

    /// Performs an act on each part. The charges of chains are judged each by itself, and joined
    /// then.
    async fn each_part<A: Act>(
        &self,
        act: A,
        mut items: SmallVec<[Item; 2]>,
        keys: &[Key<'_>],
        given: Option<UnixMicros>,
    ) -> Result<A::Answer, Trouble> {
        let modes: SmallVec<[Mode; 4]> = items.iter().map(|item| item.mode).collect();
        let has_chain = modes.contains(&Mode::Otherwise);
        if has_chain {
            for item in &mut items {
                // The two others hold for the next charge, which is of the same slot.
                if !matches!(item.mode, Mode::Once | Mode::Headroom) {
                    item.mode = Mode::Shadow;
                }
            }
        }
        let parts = parts(items, keys);
        let mut answers = Vec::with_capacity(parts.len());
        for part in &parts {
            answers.push(self.part(part, act, given).await?);
        }
        let answer = join(&parts, answers);
        Ok(if has_chain {
            A::Answer::chained(answer, &modes)
        } else {
            answer
        })
    }

    /// Decides the first charge of each chain that allows, and no other of it.
    async fn decide_chains(
        &self,
        items: &[Item],
        keys: &[Key<'_>],
        lend: Lend,
        given: Option<UnixMicros>,
    ) -> Result<Decisions, Trouble> {
        let mode = |at: usize| items[at].mode;
        let alone = items.iter().cloned().collect();
        let mut looked = self.each_part(Look, alone, keys, given).await?;
        let mut chosen = SmallVec::<[usize; 4]>::new();
        for (at, item) in items.iter().enumerate() {
            match item.mode {
                Mode::Enforce | Mode::Shadow | Mode::Once | Mode::Headroom => chosen.push(at),
                Mode::Otherwise if looked.asks(at, mode) => {
                    // The first charge again, unless this one allows: its denial is the chain's.
                    if looked.each[at].verdict.allows() {
                        chosen.pop();
                        chosen.push(at);
                    }
                }
                Mode::Otherwise => {}
            }
        }
        let picked = chosen.iter().map(|&at| {
            let first = (0..=at).rev().find(|&at| mode(at) != Mode::Otherwise);
            let mut item = items[at].clone();
            item.mode = first.map_or(Mode::Enforce, mode);
            item
        });
        let picked_keys: ItemKeys<'_> = chosen.iter().map(|&at| keys[at]).collect();
        let parts = parts(picked.collect(), &picked_keys);
        let decided = self.decide_parts(&parts, lend, given).await?;
        for (&at, decision) in chosen.iter().zip(decided.each) {
            if looked.each[at].verdict.allows() && !decision.verdict.allows() {
                deny_rest(&mut looked.each, at, decision, mode);
            } else {
                looked.each[at] = decision;
            }
        }
        looked.admitted = decided.admitted;
        Ok(looked)
    }

    async fn part<A: Act>(
        &self,
        part: &SlotPart<'_>,
        act: A,
        given: Option<UnixMicros>,
    ) -> Result<A::Answer, Trouble> {
        self.one(part.ask(act), &part.keys, part.slot, given).await
    }

    /// Charges the parts in order until one denies; then gives back, and looks at the rest.
    async fn decide_parts(
        &self,
        parts: &[SlotPart<'_>],
        lend: Lend,
        given: Option<UnixMicros>,
    ) -> Result<Decisions, Trouble> {
        let mut answers: Vec<Decisions> = Vec::with_capacity(parts.len());
        let mut denied = None;
        for (number, part) in parts.iter().enumerate() {
            let decisions = match self.part(part, Decide(lend), given).await {
                Ok(decisions) => decisions,
                Err(trouble) => {
                    // As far as possible: charges that cannot be reached now stay.
                    let made = &parts[..number];
                    let _ = self.give_back(made, &answers, lend, given).await;
                    return Err(trouble);
                }
            };
            let admitted = decisions.admitted;
            answers.push(decisions);
            if !admitted {
                denied = Some(number);
                break;
            }
        }
        if let Some(denied) = denied {
            let made = &parts[..denied];
            self.give_back(made, &answers, lend, given).await?;
            for (number, part) in parts.iter().enumerate().filter(|(at, _)| *at != denied) {
                if number > denied {
                    answers.push(self.refuse(part, lend, given).await?);
                } else {
                    let stands = self.standing(part, given).await?;
                    keep_verdicts(&mut answers[number], stands);
                }
            }
        }
        Ok(join(parts, answers))
    }

    /// Returns the decisions about a part when another has refused the request: limits that count
    /// denials are charged, and the others looked at.
    async fn refuse(
        &self,
        part: &SlotPart<'_>,
        lend: Lend,
        given: Option<UnixMicros>,
    ) -> Result<Decisions, Trouble> {
        let regardless = |item: &Item| item.limit.algorithm.charges_even_if_refused(lend);
        let taken = part.only(regardless);
        if taken.items.is_empty() {
            return self.part(part, Look, given).await;
        }
        let mut answers = vec![self.part(&taken, Decide(lend), given).await?];
        let mut parts = vec![taken];
        let rest = part.only(|item| !regardless(item));
        if !rest.items.is_empty() {
            answers.push(self.part(&rest, Look, given).await?);
            parts.push(rest);
        }
        let mut decisions = join(&parts, answers);
        keep_verdicts(&mut decisions, self.standing(part, given).await?);
        Ok(decisions)
    }

    /// Returns the current states of a part, by a look of cost zero.
    async fn standing(
        &self,
        part: &SlotPart<'_>,
        given: Option<UnixMicros>,
    ) -> Result<Decisions, Trouble> {
        let mut ask = part.ask(Look);
        for item in &mut ask.items {
            item.cost = Permits::ZERO;
        }
        self.one(ask, &part.keys, part.slot, given).await
    }

    /// Gives back the charges of these parts.
    async fn give_back(
        &self,
        parts: &[SlotPart<'_>],
        answers: &[Decisions],
        lend: Lend,
        given: Option<UnixMicros>,
    ) -> Result<(), Trouble> {
        for (part, decisions) in parts.iter().zip(answers) {
            let mut keys = ItemKeys::new();
            let mut items = SmallVec::new();
            for at in 0..decisions.each.len() {
                let mut item = part.items[at].clone();
                let algorithm = &item.limit.algorithm;
                let lends = algorithm.concurrency().is_some();
                let is_made = decisions.makes(at, |at| part.items[at].mode);
                if !is_made || lends && lend == Lend::Nothing {
                    continue;
                }
                if algorithm.charges_even_if_refused(lend) {
                    continue; // stays taken
                }
                if let Lend::To(id) = lend {
                    item.lease = Some(id);
                }
                items.push(item);
                keys.push(part.keys[at]);
            }
            if !items.is_empty() {
                let act = GiveBack;
                self.one(RedisRequest { act, items }, &keys, part.slot, given)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Returns the parts of a request, in the order of their first items; the final one, if there
/// is one, at the end.
fn parts<'a>(items: SmallVec<[Item; 2]>, keys: &[Key<'a>]) -> Vec<SlotPart<'a>> {
    let mut parts: Vec<SlotPart<'a>> = Vec::new();
    for (at, (item, &key)) in items.into_iter().zip(keys).enumerate() {
        let slot = slot_of(&item.name);
        let known = parts.iter().position(|part| part.slot == slot);
        let number = known.unwrap_or_else(|| {
            parts.push(SlotPart {
                slot,
                at: SmallVec::new(),
                items: SmallVec::new(),
                keys: ItemKeys::new(),
            });
            parts.len() - 1
        });
        let part = &mut parts[number];
        part.at.push(at);
        part.items.push(item);
        part.keys.push(key);
    }
    parts.sort_by_key(SlotPart::is_final); // stable
    parts
}

/// Replaces all but the verdict of allowed charges by the states after these were given back.
fn keep_verdicts(decided: &mut Decisions, stands: Decisions) {
    for (decision, standing) in decided.each.iter_mut().zip(stands.each) {
        if decision.verdict.allows() {
            *decision = Decision {
                verdict: decision.verdict,
                ..standing
            };
        }
    }
}

/// Joins the answers about all parts into one, in the order of the request.
fn join<T: ActAnswer>(parts: &[SlotPart<'_>], answers: Vec<T>) -> T {
    T::join(parts.iter().map(|part| &*part.at).zip(answers))
}
