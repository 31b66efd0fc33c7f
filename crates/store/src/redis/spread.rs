//! Spread: requests with keys in several slots of a cluster.
//!
//! ```text
//!   items     a.slot 7   b.slot 7   c.slot 3   d.slot 7
//!   groups    7: a b d                3: c               in the order of their first items,
//!                                                        what takes nothing back the last
//!   decide    7 allows --> 3 denies --> give back to 7, unless it counts denials; look at all
//! ```
//!
//! No call spans two slots, so a decision that is one call elsewhere takes several here. They are
//! ordered so that a race or a crash between them admits less, never more: a charge stays until it
//! is given back. Limits that take nothing back share one slot, which is asked when all others
//! have allowed. Limits that share a subject share a slot too; see [`name`](super::name).
//!
//! A chain ([`Mode::Otherwise`]) with charges in several slots is looked at first; then the first
//! of its charges that allows is decided, alone. If another request takes that room in between, the
//! chain denies. A key that the request names twice is looked at as if all charges of it were made.
//!
//! An act that gives back or corrects looks at all parts first: if a server is away, none changes.
//!
//! A condition ([`Mode::Once`]) and its charge lie in one slot, because their keys begin with the
//! same part; a headroom has the key of its charge.

use ratekeeper_core::{Decision, Lend, Mode, Permits, Receipt, UnixMicros};
use smallvec::SmallVec;

use super::batch::Items;
use super::settle::Item;
use super::slot::slot_of;
use super::trouble::Trouble;
use super::{RedisStore, typed};
use crate::Decisions;
use crate::act::{ActAnswer, ActKind};
use crate::modes::deny_rest;

impl RedisStore {
    /// Performs a request with keys in any slots.
    pub(super) async fn spread<T: ActAnswer>(
        &self,
        act: ActKind,
        items: Items,
        given: Option<UnixMicros>,
    ) -> Result<T, Trouble> {
        if !self.servers.has_slots() {
            return self.one(act, items, 0, given).await;
        }
        let store = self;
        // Large: boxed to keep it out of the future of a decision on one server.
        Box::pin(SlotCalls { store, given }.perform(act, items)).await
    }
}

/// The items of one slot, and their positions in the request.
#[derive(Default)]
struct SlotPart {
    slot: u16,
    positions: SmallVec<[usize; 4]>,
    items: Items,
}

impl SlotPart {
    fn push(&mut self, position: usize, item: Item) {
        self.positions.push(position);
        self.items.push(item);
    }

    /// Returns true if its charges cannot be given back.
    fn is_final(&self) -> bool {
        self.items.iter().any(|item| item.limit.label.is_final)
    }

    /// Returns the part with only those items for which `is_of` returns true; it receives the
    /// index of an item in this part.
    fn only(&self, is_of: impl Fn(usize, &Item) -> bool) -> Self {
        let mut part = Self {
            slot: self.slot,
            ..Self::default()
        };
        for (index, item) in self.items.iter().enumerate() {
            if is_of(index, item) {
                part.push(self.positions[index], item.clone());
            }
        }
        part
    }
}

/// The calls of one request, each to one slot.
#[derive(Clone, Copy)]
struct SlotCalls<'a> {
    store: &'a RedisStore,
    /// The moment of the request, or `None` for the clock of the servers.
    given: Option<UnixMicros>,
}

impl SlotCalls<'_> {
    async fn perform<T: ActAnswer>(self, act: ActKind, items: Items) -> Result<T, Trouble> {
        let mut slots = items.iter().map(|item| slot_of(&item.name));
        if let Some(first) = slots.next()
            && slots.all(|slot| slot == first)
        {
            return self.store.one(act, items, first, self.given).await;
        }
        let has_chain = items.iter().any(|item| item.mode == Mode::Otherwise);
        if let ActKind::Decide(lend) = act {
            let decisions = if has_chain {
                self.decide_chains(&items, lend).await?
            } else {
                self.decide_parts(&parts(items), lend).await?
            };
            return Ok(typed(decisions.into()));
        }
        self.each_part(act, items).await
    }

    /// Performs an act on each part. The charges of chains are judged each by itself, and joined
    /// then.
    async fn each_part<T: ActAnswer>(self, act: ActKind, mut items: Items) -> Result<T, Trouble> {
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
        let parts = parts(items);
        if act != ActKind::Look {
            for part in &parts {
                let _state = self.standing(part).await?;
            }
        }
        let mut answers = Vec::with_capacity(parts.len());
        for part in &parts {
            answers.push(self.part(part, act).await?);
        }
        let answer = join(&parts, answers);
        Ok(if has_chain {
            T::chained(answer, &modes)
        } else {
            answer
        })
    }

    /// Decides the first charge of each chain that allows, and no other of it.
    async fn decide_chains(self, items: &[Item], lend: Lend) -> Result<Decisions, Trouble> {
        let mode = |at: usize| items[at].mode;
        let alone = items.iter().cloned().collect();
        let mut looked: Decisions = self.each_part(ActKind::Look, alone).await?;
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
        let parts = parts(picked.collect());
        let decided = self.decide_parts(&parts, lend).await?;
        for (&at, decision) in chosen.iter().zip(decided.each) {
            if looked.each[at].verdict.allows() && !decision.verdict.allows() {
                deny_rest(&mut looked.each, at, decision, mode);
            } else {
                looked.each[at] = decision;
            }
        }
        (looked.admitted, looked.made) = (decided.admitted, decided.made);
        Ok(looked)
    }

    /// Charges the parts in order until one denies; then gives back, and looks at the rest.
    async fn decide_parts(self, parts: &[SlotPart], lend: Lend) -> Result<Decisions, Trouble> {
        let mut answers: Vec<Decisions> = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            let made = &parts[..number];
            match self.part::<Decisions>(part, ActKind::Decide(lend)).await {
                Ok(decisions) if decisions.admitted => answers.push(decisions),
                Ok(denial) => {
                    self.give_back(made, &answers, lend).await?;
                    for (part, decisions) in made.iter().zip(&mut answers) {
                        keep_verdicts(decisions, self.standing(part).await?);
                    }
                    answers.push(denial);
                    for part in &parts[number + 1..] {
                        answers.push(self.refuse(part, lend).await?);
                    }
                    break;
                }
                Err(trouble) => {
                    // As far as possible: charges that cannot be reached now stay.
                    let _ = self.give_back(made, &answers, lend).await;
                    return Err(trouble);
                }
            }
        }
        Ok(join(parts, answers))
    }

    /// Gives back the charges of these parts.
    async fn give_back(
        self,
        parts: &[SlotPart],
        answers: &[Decisions],
        lend: Lend,
    ) -> Result<(), Trouble> {
        for (part, decisions) in parts.iter().zip(answers) {
            let mut part = part.only(|_, _| true);
            for (item, decision) in part.items.iter_mut().zip(&decisions.each) {
                item.receipt = Some(Receipt::of(decision, decisions.made));
            }
            let mut made = part.only(|index, item| {
                let algorithm = &item.limit.algorithm;
                let lends_nothing = algorithm.concurrency().is_some() && lend == Lend::Nothing;
                decisions.makes(index, |at| part.items[at].mode)
                    && !lends_nothing
                    && !algorithm.charges_even_if_refused(lend) // stays taken
            });
            if let Lend::To(id) = lend {
                made.items.iter_mut().for_each(|item| item.lease = Some(id));
            }
            if !made.items.is_empty() {
                self.part::<()>(&made, ActKind::Settle).await?;
            }
        }
        Ok(())
    }

    /// Returns the decisions about a part when another has refused the request: limits that count
    /// denials are charged, and the others looked at.
    async fn refuse(self, part: &SlotPart, lend: Lend) -> Result<Decisions, Trouble> {
        let is_counted = |item: &Item| item.limit.algorithm.charges_even_if_refused(lend);
        let counted = part.only(|_, item| is_counted(item));
        if counted.items.is_empty() {
            return self.part(part, ActKind::Look).await;
        }
        let mut answers = vec![self.part(&counted, ActKind::Decide(lend)).await?];
        let mut parts = vec![counted];
        let rest = part.only(|_, item| !is_counted(item));
        if !rest.items.is_empty() {
            answers.push(self.part(&rest, ActKind::Look).await?);
            parts.push(rest);
        }
        let mut decisions = join(&parts, answers);
        keep_verdicts(&mut decisions, self.standing(part).await?);
        Ok(decisions)
    }

    /// Returns the current states of a part, by a look of cost zero.
    async fn standing(self, part: &SlotPart) -> Result<Decisions, Trouble> {
        let mut free = part.only(|_, _| true);
        free.items
            .iter_mut()
            .for_each(|item| item.cost = Permits::ZERO);
        self.part(&free, ActKind::Look).await
    }

    /// Performs an act on a part.
    async fn part<T: ActAnswer>(self, part: &SlotPart, act: ActKind) -> Result<T, Trouble> {
        let items = part.items.clone();
        self.store.one(act, items, part.slot, self.given).await
    }
}

/// Returns the parts of a request, in the order of their first items; the final one, if there
/// is one, at the end.
fn parts(items: Items) -> Vec<SlotPart> {
    let mut parts: Vec<SlotPart> = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let slot = slot_of(&item.name);
        let known = parts.iter().position(|part| part.slot == slot);
        let number = known.unwrap_or_else(|| {
            parts.push(SlotPart {
                slot,
                ..SlotPart::default()
            });
            parts.len() - 1
        });
        parts[number].push(at, item);
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
fn join<T: ActAnswer>(parts: &[SlotPart], answers: Vec<T>) -> T {
    T::join(parts.iter().map(|part| &*part.positions).zip(answers))
}
