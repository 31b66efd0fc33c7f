//! Server: a number of workers and a queue, in virtual time, and a limit before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ratekeeper_core::{Nanos, Time};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Bounds, Law, Random as _, SplitMix,
};

/// A server with `workers` workers, each busy with one piece of work; the rest waits in order.
pub(crate) struct Server {
    pub(crate) workers: usize,
    /// Mean time of one piece of work; each takes from 0.8 to 1.2 of it.
    pub(crate) service: Nanos,
    /// Maximum number of waiting pieces of work; further ones are refused at once.
    pub(crate) queue: usize,
    /// Times at which the work being served ends.
    pub(crate) serving: BinaryHeap<Reverse<(Time, usize)>>,
    pub(crate) waiting: VecDeque<usize>,
    pub(crate) random: SplitMix,
}

/// Load that clients offer.
#[derive(Clone, Copy)]
pub(crate) enum Demand {
    /// As much as is permitted.
    Endless,
    /// This much at once.
    AtOnce(u32),
}

/// Observations from one moment to the next.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Range of the limits, report by report: one in ten is below `least`. (The limit is low
    /// while times are measured, in 2 windows of 300.)
    pub(crate) least: u32,
    pub(crate) most: u32,
    pub(crate) done: u64,
    pub(crate) dropped: u64,
}

/// A limit before a server.
pub(crate) struct Play {
    pub(crate) limit: AdaptiveConcurrency,
    pub(crate) server: Server,
    pub(crate) now: Time,
}

impl Play {
    pub(crate) fn new(law: Law, workers: usize) -> Self {
        let bounds = Bounds {
            least: 1,
            most: 1_000,
            initial: 20,
        };
        let settings = AdaptiveSettings {
            law,
            bounds,
            ..AdaptiveSettings::default()
        };
        Self {
            limit: AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap(),
            server: Server {
                workers,
                service: Nanos::from_millis(10),
                queue: usize::MAX,
                serving: BinaryHeap::new(),
                waiting: VecDeque::new(),
                random: SplitMix::new(2),
            },
            now: Time::ZERO,
        }
    }

    /// Plays until `end`; nothing is at work then.
    pub(crate) fn until(&mut self, end: Time, demand: Demand) -> Seen {
        let Self { limit, server, now } = self;
        let mut permits = Vec::new();
        let mut refused: VecDeque<(Time, usize)> = VecDeque::new();
        let mut limits = Vec::new();
        let mut seen = Seen {
            least: 0,
            most: 0,
            done: 0,
            dropped: 0,
        };
        loop {
            while *now < end && demand.wants(limit.in_flight()) {
                let before = limit.in_flight();
                let Some(permit) = limit.try_acquire(*now) else {
                    break;
                };
                assert!(before < limit.limit(), "permits are within the limit");
                let number = permits.len();
                permits.push(Some(permit));
                if server.waiting.len() >= server.queue {
                    refused.push_back((*now + Nanos::from_millis(1), number));
                } else {
                    server.waiting.push_back(number);
                }
                server.serve(*now);
            }
            let done = server.serving.peek().map(|Reverse(first)| *first);
            let (at, number, was_refused) = match (done, refused.front()) {
                (None, None) => break,
                (Some((at, number)), Some(&(other, _))) if at <= other => (at, number, false),
                (Some((at, number)), None) => (at, number, false),
                (_, Some(&(at, number))) => (at, number, true),
            };
            *now = at;
            let permit = permits[number].take().unwrap();
            if was_refused {
                refused.pop_front();
                permit.dropped(at);
                seen.dropped += 1;
            } else {
                server.serving.pop();
                server.serve(at);
                permit.success(at);
                seen.done += u64::from(at <= end);
            }
            if at <= end {
                limits.push(limit.limit());
            }
        }
        limits.sort_unstable();
        seen.least = limits[limits.len() / 10];
        seen.most = limits[limits.len() - 1];
        *now = (*now).max(end);
        seen
    }
}

impl Demand {
    fn wants(self, in_flight: u32) -> bool {
        match self {
            Self::Endless => true,
            Self::AtOnce(most) => in_flight < most,
        }
    }
}

impl Server {
    fn serve(&mut self, now: Time) {
        while self.serving.len() < self.workers
            && let Some(number) = self.waiting.pop_front()
        {
            let service = self.service.as_nanos();
            let takes = self.random.between(
                Nanos::from_nanos(service * 8 / 10)..=Nanos::from_nanos(service * 12 / 10),
            );
            self.serving.push(Reverse((now + takes, number)));
        }
    }
}
