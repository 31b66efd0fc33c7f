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

use ratekeeper_core::{Decision, Key, Lend, Permits, UnixMicros};
use smallvec::SmallVec;

use super::batch::RedisRequest;
use super::settle::{Item, RedisAct, RedisOutcome};
use super::slot::slot_of;
use super::trouble::Trouble;
use super::{ItemKeys, RedisStore};
use crate::Decisions;

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

    fn ask(&self, act: RedisAct) -> RedisRequest {
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
    pub(super) async fn spread(
        &self,
        ask: RedisRequest,
        keys: &[Key<'_>],
        told: Option<UnixMicros>,
    ) -> Result<RedisOutcome, Trouble> {
        if !self.servers.has_slots() {
            return self.one(ask, keys, 0, told).await;
        }
        // Large: boxed to keep it out of the future of a decision on one server.
        Box::pin(self.spread_over_slots(ask, keys, told)).await
    }

    async fn spread_over_slots(
        &self,
        ask: RedisRequest,
        keys: &[Key<'_>],
        told: Option<UnixMicros>,
    ) -> Result<RedisOutcome, Trouble> {
        let act = ask.act;
        let mut parts = parts(ask, keys);
        if parts.len() == 1 {
            let part = parts.remove(0);
            return self.one(part.ask(act), &part.keys, part.slot, told).await;
        }
        match act {
            RedisAct::Decide(lend) => self.decide_parts(&parts, lend, told).await,
            act => {
                let mut outcomes = Vec::with_capacity(parts.len());
                for part in &parts {
                    outcomes.push(self.part(part, act, told).await?);
                }
                Ok(join(&parts, outcomes))
            }
        }
    }

    async fn part(
        &self,
        part: &SlotPart<'_>,
        act: RedisAct,
        told: Option<UnixMicros>,
    ) -> Result<RedisOutcome, Trouble> {
        self.one(part.ask(act), &part.keys, part.slot, told).await
    }

    /// Charges the parts in order until one denies; then gives back, and looks at the rest.
    async fn decide_parts(
        &self,
        parts: &[SlotPart<'_>],
        lend: Lend,
        told: Option<UnixMicros>,
    ) -> Result<RedisOutcome, Trouble> {
        let mut outcomes = Vec::with_capacity(parts.len());
        let mut denied = None;
        for (number, part) in parts.iter().enumerate() {
            let outcome = match self.part(part, RedisAct::Decide(lend), told).await {
                Ok(outcome) => outcome,
                Err(trouble) => {
                    // As far as possible: charges that cannot be reached now stay.
                    let _ = self
                        .give_back(&parts[..number], &outcomes, lend, told)
                        .await;
                    return Err(trouble);
                }
            };
            let admitted =
                matches!(&outcome, RedisOutcome::Decided(decisions) if decisions.admitted);
            outcomes.push(outcome);
            if !admitted {
                denied = Some(number);
                break;
            }
        }
        if let Some(denied) = denied {
            self.give_back(&parts[..denied], &outcomes, lend, told)
                .await?;
            for (number, part) in parts.iter().enumerate().filter(|(at, _)| *at != denied) {
                if number > denied {
                    outcomes.push(self.refuse(part, lend, told).await?);
                } else {
                    let stands = self.standing(part, told).await?;
                    keep_verdicts(&mut outcomes[number], stands);
                }
            }
        }
        Ok(join(parts, outcomes))
    }

    /// Returns the outcome of a part when another has refused the request: limits that count
    /// denials are charged, and the others looked at.
    async fn refuse(
        &self,
        part: &SlotPart<'_>,
        lend: Lend,
        told: Option<UnixMicros>,
    ) -> Result<RedisOutcome, Trouble> {
        let regardless = |item: &Item| item.limit.algorithm.charges_even_if_refused(lend);
        let taken = part.only(regardless);
        if taken.items.is_empty() {
            return self.part(part, RedisAct::Look, told).await;
        }
        let mut outcomes = vec![self.part(&taken, RedisAct::Decide(lend), told).await?];
        let mut parts = vec![taken];
        let rest = part.only(|item| !regardless(item));
        if !rest.items.is_empty() {
            outcomes.push(self.part(&rest, RedisAct::Look, told).await?);
            parts.push(rest);
        }
        let mut outcome = join(&parts, outcomes);
        keep_verdicts(&mut outcome, self.standing(part, told).await?);
        Ok(outcome)
    }

    /// Returns the current states of a part, by a look of cost zero.
    async fn standing(
        &self,
        part: &SlotPart<'_>,
        told: Option<UnixMicros>,
    ) -> Result<RedisOutcome, Trouble> {
        let mut ask = part.ask(RedisAct::Look);
        for item in &mut ask.items {
            item.cost = Permits::ZERO;
        }
        self.one(ask, &part.keys, part.slot, told).await
    }

    /// Gives back the charges of these parts.
    async fn give_back(
        &self,
        parts: &[SlotPart<'_>],
        outcomes: &[RedisOutcome],
        lend: Lend,
        told: Option<UnixMicros>,
    ) -> Result<(), Trouble> {
        for (part, outcome) in parts.iter().zip(outcomes) {
            let RedisOutcome::Decided(decisions) = outcome else {
                continue;
            };
            let mut keys = ItemKeys::new();
            let mut items = SmallVec::new();
            for (at, decision) in decisions.each.iter().enumerate() {
                let mut item = part.items[at].clone();
                let algorithm = &item.limit.algorithm;
                let lends = algorithm.concurrency().is_some();
                if !decision.verdict.allows() || lends && lend == Lend::Nothing {
                    continue; // was not charged
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
                let act = RedisAct::Refund;
                self.one(RedisRequest { act, items }, &keys, part.slot, told)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Returns the parts of a request, in the order of their first items; the final one, if there
/// is one, at the end.
fn parts<'a>(ask: RedisRequest, keys: &[Key<'a>]) -> Vec<SlotPart<'a>> {
    let mut parts: Vec<SlotPart<'a>> = Vec::new();
    for (at, (item, &key)) in ask.items.into_iter().zip(keys).enumerate() {
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
fn keep_verdicts(decided: &mut RedisOutcome, stands: RedisOutcome) {
    if let (RedisOutcome::Decided(decided), RedisOutcome::Decided(stands)) = (decided, stands) {
        for (decision, standing) in decided.each.iter_mut().zip(stands.each) {
            if decision.verdict.allows() {
                *decision = Decision {
                    verdict: decision.verdict,
                    ..standing
                };
            }
        }
    }
}

/// Joins the outcomes of all parts into one, in the order of the request.
fn join(parts: &[SlotPart<'_>], outcomes: Vec<RedisOutcome>) -> RedisOutcome {
    let mut admitted = true;
    let mut decided = Vec::new();
    let (mut there, mut released, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
    for (part, outcome) in parts.iter().zip(outcomes) {
        let places = part.at.iter().copied();
        match outcome {
            RedisOutcome::Decided(decisions) => {
                admitted &= decisions.admitted;
                decided.extend(places.zip(decisions.each));
            }
            RedisOutcome::WereThere(each) => there.extend(places.zip(each)),
            RedisOutcome::Released(each) => released.extend(places.zip(each)),
            RedisOutcome::Renewed(each) => renewed.extend(places.zip(each)),
            RedisOutcome::Refunded => return RedisOutcome::Refunded,
        }
    }
    if !there.is_empty() {
        return RedisOutcome::WereThere(in_order(there));
    }
    if !released.is_empty() {
        return RedisOutcome::Released(in_order(released));
    }
    if !renewed.is_empty() {
        return RedisOutcome::Renewed(in_order(renewed));
    }
    RedisOutcome::Decided(Decisions {
        admitted,
        each: in_order(decided),
    })
}

fn in_order<T>(mut placed: Vec<(usize, T)>) -> SmallVec<[T; 4]>
where
    [T; 4]: smallvec::Array<Item = T>,
{
    placed.sort_unstable_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, each)| each).collect()
}
