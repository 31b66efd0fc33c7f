//! Queue: the answers that are held back, by the line in which they wait.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper::Answer;
use ratekeeper_core::{LimitId, Time};
use ratekeeper_store::AnyStore;
use strum::VariantNames;
use tokio::sync::{Notify, watch};

use super::charges::take_back;
use crate::counter::Counter;

/// Default maximum number of answers held back at a time: each keeps a connection and its
/// buffers, about 40 KB.
pub(crate) const DEFAULT_MAX_HELD: u32 = 1_000;

/// The answers held back by the http door.
#[derive(Debug)]
pub(crate) struct HoldQueue {
    pub(super) most: usize,
    pub(super) lines: Mutex<RequestLines>,
    /// End of holding answers back, once the service stops.
    pub(super) closing: watch::Sender<Option<Time>>,
    /// Number of answers ended, by [`HoldEnd`].
    ended: [Counter; HoldEnd::VARIANTS.len()],
}

/// How a held answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum HoldEnd {
    /// Its moment came.
    Released,
    /// Its client left before.
    Left,
    /// It was refused: too many were held, or the service stopped before its moment.
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct RequestLines {
    pub(super) held: usize,
    /// The same by the limit that asks for the longest wait.
    pub(super) by_limit: HashMap<LimitId, u64>,
    pub(super) next: u64,
    pub(super) by_charges: HashMap<Box<[u8]>, RequestLine>,
}

/// Requests that may change places.
#[derive(Debug, Default)]
pub(super) struct RequestLine {
    /// In the order in which they joined.
    pub(super) waiting: VecDeque<HeldRequest>,
    /// At least as many as requests wait; the earliest first.
    pub(super) moments: VecDeque<PromisedMoment>,
}

#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) number: u64,
    pub(super) first: Arc<Notify>,
}

/// A moment promised to a request of the line.
#[derive(Debug)]
pub(super) struct PromisedMoment {
    pub(super) at: Time,
    pub(super) answer: Answer,
}

impl HoldQueue {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most: most as usize,
            lines: Mutex::default(),
            closing: watch::Sender::new(None),
            ended: Default::default(),
        }
    }

    /// Returns the number of answers held back, and how earlier ones ended.
    pub(crate) fn standing(&self) -> HeldAnswers {
        let ended = self.ended.each_ref().map(Counter::count);
        let now = self.lines.lock().held;
        HeldAnswers { now, ended }
    }

    /// Returns the number of answers held back, by the limit that asks for the longest wait.
    pub(crate) fn lengths(&self) -> HashMap<LimitId, u64> {
        self.lines.lock().by_limit.clone()
    }

    /// Refuses, once the service stops, every answer that would be held back beyond `end`.
    pub(crate) fn close(&self, end: Time) {
        self.closing.send_replace(Some(end));
    }

    pub(super) fn count_end(&self, end: HoldEnd) {
        self.ended[end as usize].add(1);
    }
}

/// Answers held back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldAnswers {
    pub(crate) now: usize,
    /// Number of answers ended, by [`HoldEnd`].
    pub(crate) ended: [u64; HoldEnd::VARIANTS.len()],
}

impl RequestLine {
    pub(super) fn join(&mut self, waiting: HeldRequest, moment: PromisedMoment) {
        let at = self.moments.partition_point(|other| other.at <= moment.at);
        self.moments.insert(at, moment);
        self.waiting.push_back(waiting);
        self.tell_first();
    }

    pub(super) fn index_of(&self, number: u64) -> Option<usize> {
        // Numbers ascend.
        let found = self.waiting.binary_search_by_key(&number, |one| one.number);
        found.ok()
    }

    pub(super) fn leave(&mut self, number: u64, end: HoldEnd) {
        if let Some(index) = self.index_of(number) {
            self.waiting.remove(index);
            if end == HoldEnd::Released {
                self.moments.pop_front();
            }
            self.tell_first();
        }
    }

    /// Gives back moments that no request waits for, from the last on. A moment with later promises
    /// of its limit stays while any request waits that may use an earlier one instead.
    pub(super) fn give_back_spare(&mut self, store: &AnyStore, now: Time) {
        while self.moments.len() > self.waiting.len() {
            let Some(last) = self.moments.back() else {
                return;
            };
            if !take_back(store, &last.answer, now) && !self.waiting.is_empty() {
                return;
            }
            self.moments.pop_back();
        }
    }

    fn tell_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.first.notify_one();
        }
    }
}
