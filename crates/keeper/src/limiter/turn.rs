//! Turn: one waiter, from asking to leaving.
//!
//! ```text
//!            no waiter   
//!            and it fits        first, and its moment has come
//!   ask ---------------> granted <-------------------- in line ----> refused: too late
//!    |                                                  ^   |
//!    '--------------- it fits no patience? refused      |   '- dropped: leaves, moves the
//!    '--------------------------------------------------'      others up
//! ```

use std::task::Waker;

use ratekeeper_core::{Nanos, Permits, Time, Verdict};

use super::WaitError;
use super::desk::Waitable;

/// A waiter, or a caller about to wait. Dropped, it leaves the line.
pub(crate) struct Turn<D: Waitable> {
    desk: D,
    cost: Permits,
    until: Until,
    /// `None` before it asks.
    start: Option<WaitStart>,
    /// Its place in the line, while it is there.
    number: Option<u64>,
    /// Since when it waits out the delay of a leaky queue.
    planned: Option<Time>,
}

/// When a caller asked, and how long it can wait from then on.
#[derive(Clone, Copy)]
struct WaitStart {
    at: Time,
    patience: Nanos,
}

/// How long a caller can wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Until it is served.
    Served,
    /// For this span from when it asks.
    Span(Nanos),
    /// Until this moment of the limiter's clock.
    Moment(Time),
}

impl Until {
    /// Returns the maximum wait of a caller that asks at `now`.
    pub(crate) fn patience(self, now: Time) -> Nanos {
        match self {
            Self::Served => Nanos::MAX,
            Self::Span(span) => span,
            Self::Moment(moment) => moment.since(now),
        }
    }
}

/// The result of a step of a turn.
#[derive(Clone, Copy)]
pub(crate) enum TurnStep {
    Granted(Nanos),
    Refused,
    Useless(WaitError),
    /// Call again when woken, or after this time.
    Wait(Option<Nanos>),
}

impl<D: Waitable> Turn<D> {
    pub(crate) const fn new(desk: D, cost: Permits, until: Until) -> Self {
        Self {
            desk,
            cost,
            until,
            start: None,
            number: None,
            planned: None,
        }
    }

    pub(crate) fn step(&mut self, now: Time, waker: &Waker) -> TurnStep {
        match (self.start, self.number) {
            (Some(start), Some(number)) => self.advance(now, start, number, waker),
            _ => self.ask(now, waker),
        }
    }

    /// Takes the permits at once if they are free, or joins the line.
    fn ask(&mut self, now: Time, waker: &Waker) -> TurnStep {
        let (desk, line) = (&self.desk, self.desk.line());
        let patience = self.until.patience(now);
        let start = WaitStart { at: now, patience };
        self.start = Some(start);
        if line.length() == 0 && desk.take(now, self.cost, now) == Verdict::Allow {
            return TurnStep::Granted(Nanos::ZERO);
        }
        if self.cost > desk.capacity() {
            return TurnStep::Useless(self.too_large());
        }
        let mut queue = line.lock();
        let least = desk.at_least(now, queue.total_with(self.cost));
        if least > patience {
            return TurnStep::Refused;
        }
        if let Some(most) = desk.most_if_full(queue.len()) {
            return TurnStep::Useless(WaitError::TooManyWaiting { most });
        }
        let number = line.join(&mut queue, self.cost, waker);
        drop(queue);
        self.number = Some(number);
        self.advance(now, start, number, waker)
    }

    /// Serves the first in line; all other waiters wait. Without a reason to wait, it leaves.
    fn advance(&mut self, now: Time, start: WaitStart, number: u64, waker: &Waker) -> TurnStep {
        let step = self.in_line(now, start, number, waker);
        if !matches!(step, TurnStep::Wait(_)) {
            self.leave();
        }
        step
    }

    /// Takes the permits if it is first in line and its moment has come.
    ///
    /// If permits come back when work is done, the wait of a denial is only an upper bound, so that
    /// callers with less patience wait too.
    fn in_line(&mut self, now: Time, start: WaitStart, number: u64, waker: &Waker) -> TurnStep {
        let desk = &self.desk;
        let left = start.patience.saturating_sub(now.since(start.at));
        let mut queue = desk.line().lock();
        if !queue.is_first(number) {
            if left == Nanos::ZERO {
                return TurnStep::Refused;
            }
            queue.set_waker(number, waker);
            return TurnStep::Wait((start.patience < Nanos::MAX).then_some(left));
        }
        let verdict = match desk.take(now, self.cost, now) {
            Verdict::AllowAfter(wait) => {
                let since = self.planned.unwrap_or(now).min(now);
                self.planned = Some(since);
                let verdict = self.take_as_planned(now, since);
                if let Verdict::Deny { .. } = verdict {
                    // A later charge, as of a cost that has grown, has taken its place of then.
                    self.planned = Some(now);
                    Verdict::AllowAfter(wait)
                } else {
                    verdict
                }
            }
            verdict => verdict,
        };
        let wait = match verdict {
            Verdict::Allow => return TurnStep::Granted(now.since(start.at)),
            Verdict::Deny { retry_after } if desk.comes_back() && left > Nanos::ZERO => {
                queue.set_waker(number, waker);
                let wait = retry_after.min(left);
                return TurnStep::Wait((wait < Nanos::MAX).then_some(wait));
            }
            Verdict::AllowAfter(wait) => wait,
            Verdict::Deny { retry_after }
            | Verdict::Ban { retry_after }
            | Verdict::Banned { retry_after } => retry_after,
            Verdict::DenyForever => return TurnStep::Useless(self.too_large()),
        };
        let wait = (now + wait).since(now);
        if wait > left {
            return TurnStep::Refused;
        }
        queue.set_waker(number, waker);
        // Due and denied: the end of time is reached, and no later moment will be better.
        TurnStep::Wait((wait > Nanos::ZERO).then_some(wait))
    }

    /// Takes the permits if the delay of the limit has passed since `since`. One that is late is
    /// charged as if its delay ended now, so that the next one does not pass early.
    fn take_as_planned(&self, now: Time, since: Time) -> Verdict {
        match self.desk.take(since, self.cost, since) {
            Verdict::AllowAfter(wait) if since + wait <= now => {
                self.desk.take(now - wait, self.cost, now)
            }
            Verdict::AllowAfter(wait) => Verdict::AllowAfter((since + wait).since(now)),
            verdict => verdict,
        }
    }

    /// Leaves the line.
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            let line = self.desk.line();
            line.leave(line.lock(), number);
        }
    }

    fn too_large(&self) -> WaitError {
        WaitError::too_large(self.cost.get(), self.desk.capacity())
    }
}

impl<D: Waitable> Drop for Turn<D> {
    fn drop(&mut self) {
        self.leave();
    }
}
