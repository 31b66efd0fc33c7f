//! Turn: one who waits, from asking to leaving.
//!
//! ```text
//!            nobody waits
//!            and it fits        first, and its moment has come
//!   ask ---------------> granted <-------------------- in line ----> refused: too late
//!    |                                                  ^   |
//!    '--------------- it fits no patience? refused      |   '- dropped: leaves, moves the
//!    '--------------------------------------------------'      others up
//! ```

use std::task::Waker;

use ratekeeper_core::{Nanos, Permits, Time, Verdict};

use super::line::LATENESS;
use super::{Held, Limiter, Place, WaitError};
use crate::Clock;

/// Grants that one look of the first in line may try for moments that have passed.
const MOST_TRIES: usize = 4;

/// One who waits, or is about to. Dropped, it leaves the line.
pub(super) struct Turn<'a, A: Held, C: Clock> {
    limiter: &'a Limiter<A, C>,
    cost: Permits,
    patience: Nanos,
    /// When it asked; `None`: not yet.
    asked: Option<Time>,
    /// Its place in the line, while it is there.
    number: Option<u64>,
    /// When it would be charged, if the limit has it wait from then on (leaky queue).
    planned: Option<Time>,
}

/// What a turn comes to.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Granted(Nanos),
    Refused,
    Useless(WaitError),
    /// Look again when woken, or after this time.
    Wait(Option<Nanos>),
}

impl<'a, A: Held, C: Clock> Turn<'a, A, C> {
    pub(super) const fn new(limiter: &'a Limiter<A, C>, cost: Permits, patience: Nanos) -> Self {
        Self {
            limiter,
            cost,
            patience,
            asked: None,
            number: None,
            planned: None,
        }
    }

    pub(super) fn step(&mut self, waker: &Waker) -> Step {
        let now = self.limiter.clock.now();
        match (self.asked, self.number) {
            (Some(asked), Some(number)) => self.advance(now, asked, number, waker),
            _ => self.ask(now, waker),
        }
    }

    /// Takes at once what is there, or joins the line.
    fn ask(&mut self, now: Time, waker: &Waker) -> Step {
        let limiter = self.limiter;
        self.asked = Some(now);
        if limiter.line.length() == 0 && limiter.take(now, self.cost, now) == Verdict::Allow {
            return Step::Granted(Nanos::ZERO);
        }
        if self.cost > limiter.capacity() {
            return Step::Useless(self.too_large());
        }
        let mut queue = limiter.line.lock();
        let least = limiter.at_least(now, queue.total_with(self.cost));
        if least > self.patience {
            return Step::Refused;
        }
        if queue.len() >= limiter.most_waiting {
            let most = limiter.most_waiting;
            return Step::Useless(WaitError::TooManyWaiting { most });
        }
        let number = limiter.line.join(&mut queue, now, self.cost, waker);
        drop(queue);
        self.number = Some(number);
        self.advance(now, now, number, waker)
    }

    /// Serves the first in line; tells all others to wait.
    fn advance(&mut self, now: Time, asked: Time, number: u64, waker: &Waker) -> Step {
        let limiter = self.limiter;
        let left = self.patience.saturating_sub(now.since(asked));
        let mut queue = limiter.line.lock();
        if !queue.is_first(number) {
            if left == Nanos::ZERO {
                drop(queue);
                return self.leave(Step::Refused);
            }
            queue.set_waker(number, waker);
            return Step::Wait((self.patience < Nanos::MAX).then_some(left));
        }
        let since = queue.since.max(now - LATENESS).min(now);
        let mut at = self.planned.take().unwrap_or(since);
        let mut tries = MOST_TRIES;
        loop {
            let wait = match limiter.take(at, self.cost, now) {
                Verdict::Allow => {
                    queue.since = at;
                    drop(queue);
                    return self.leave(Step::Granted(now.since(asked)));
                }
                Verdict::AllowAfter(wait) => {
                    self.planned = Some(at);
                    wait
                }
                Verdict::Deny { retry_after } => retry_after,
                Verdict::DenyForever => {
                    drop(queue);
                    return self.leave(Step::Useless(self.too_large()));
                }
            };
            let due = at + wait;
            if due <= now && at < now {
                tries -= 1;
                at = if tries == 0 { now } else { due };
                continue;
            }
            let wait = due.since(now);
            if wait > left {
                drop(queue);
                return self.leave(Step::Refused);
            }
            queue.set_waker(number, waker);
            return Step::Wait(Some(wait));
        }
    }

    /// Leaves the line with what it came to.
    fn leave(&mut self, step: Step) -> Step {
        if let Some(number) = self.number.take() {
            let line = &self.limiter.line;
            line.leave(line.lock(), number);
        }
        step
    }

    fn too_large(&self) -> WaitError {
        WaitError::TooLarge {
            cost: self.cost,
            capacity: self.limiter.capacity(),
        }
    }
}

impl<A: Held, C: Clock> Drop for Turn<'_, A, C> {
    fn drop(&mut self) {
        self.leave(Step::Refused);
    }
}

impl<A: Held, C: Clock> Limiter<A, C> {
    /// Charges `cost` at `at`, if it may pass by `now`; else nothing, and says why.
    fn take(&self, at: Time, cost: Permits, now: Time) -> Verdict {
        self.place.update(|state| {
            self.with(|algorithm| {
                let verdict = algorithm.look(state, at, cost).verdict;
                let passes = match verdict {
                    Verdict::Allow => true,
                    Verdict::AllowAfter(wait) => at + wait <= now,
                    Verdict::Deny { .. } | Verdict::DenyForever => false,
                };
                if !passes {
                    return verdict;
                }
                let _charged = algorithm.decide(state, at, cost);
                Verdict::Allow
            })
        })
    }
}
