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
use super::line::LATENESS;

/// Maximum number of grants that the first in line tries, in one step, for moments that have
/// passed.
const MAX_TRIES: usize = 4;

/// A waiter, or a caller about to wait. Dropped, it leaves the line.
pub(crate) struct Turn<D: Waitable> {
    desk: D,
    cost: Permits,
    until: Until,
    /// When it asked, and how long it can wait from then on; `None` before that.
    asked: Option<(Time, Nanos)>,
    /// Its place in the line, while it is there.
    number: Option<u64>,
    /// When it would be charged, if the limit has it wait from then on (leaky queue).
    planned: Option<Time>,
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
            asked: None,
            number: None,
            planned: None,
        }
    }

    pub(crate) fn step(&mut self, waker: &Waker) -> TurnStep {
        let now = self.desk.now();
        match (self.asked, self.number) {
            (Some(asked), Some(number)) => self.advance(now, asked, number, waker),
            _ => self.ask(now, waker),
        }
    }

    /// Takes the permits at once if they are free, or joins the line.
    fn ask(&mut self, now: Time, waker: &Waker) -> TurnStep {
        let (desk, line) = (&self.desk, self.desk.line());
        let patience = self.until.patience(now);
        self.asked = Some((now, patience));
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
        if let Err(full) = desk.room(queue.len()) {
            return TurnStep::Useless(full);
        }
        let number = line.join(&mut queue, now, self.cost, waker);
        drop(queue);
        self.number = Some(number);
        self.advance(now, (now, patience), number, waker)
    }

    /// Serves the first in line; all other waiters wait.
    ///
    /// If permits come back when work is done, the wait of a denial is only an upper bound, so that
    /// callers with less patience wait too.
    fn advance(
        &mut self,
        now: Time,
        (asked, patience): (Time, Nanos),
        number: u64,
        waker: &Waker,
    ) -> TurnStep {
        let desk = &self.desk;
        let left = patience.saturating_sub(now.since(asked));
        let mut queue = desk.line().lock();
        if !queue.is_first(number) {
            if left == Nanos::ZERO {
                drop(queue);
                return self.leave(TurnStep::Refused);
            }
            queue.set_waker(number, waker);
            return TurnStep::Wait((patience < Nanos::MAX).then_some(left));
        }
        let comes_back = desk.comes_back();
        let since = if comes_back {
            now // nothing is due at a moment
        } else {
            queue.since.max(now - LATENESS).min(now)
        };
        let mut at = self.planned.take().unwrap_or(since);
        let mut tries = MAX_TRIES;
        loop {
            let wait = match desk.take(at, self.cost, now) {
                Verdict::Allow => {
                    queue.since = at;
                    drop(queue);
                    return self.leave(TurnStep::Granted(now.since(asked)));
                }
                Verdict::AllowAfter(wait) => {
                    self.planned = Some(at);
                    wait
                }
                Verdict::Deny { retry_after } if comes_back && left > Nanos::ZERO => {
                    queue.set_waker(number, waker);
                    let wait = retry_after.min(left);
                    return TurnStep::Wait((wait < Nanos::MAX).then_some(wait));
                }
                Verdict::Deny { retry_after }
                | Verdict::Ban { retry_after }
                | Verdict::Banned { retry_after } => retry_after,
                Verdict::DenyForever => {
                    drop(queue);
                    return self.leave(TurnStep::Useless(self.too_large()));
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
                return self.leave(TurnStep::Refused);
            }
            queue.set_waker(number, waker);
            // Due and denied: the end of time is reached, and no later moment will be better.
            return TurnStep::Wait((wait > Nanos::ZERO).then_some(wait));
        }
    }

    /// Leaves the line with the result `step`.
    fn leave(&mut self, step: TurnStep) -> TurnStep {
        if let Some(number) = self.number.take() {
            let line = self.desk.line();
            line.leave(line.lock(), number);
        }
        step
    }

    fn too_large(&self) -> WaitError {
        WaitError::too_large(self.cost.get(), self.desk.capacity())
    }
}

impl<D: Waitable> Drop for Turn<D> {
    fn drop(&mut self) {
        self.leave(TurnStep::Refused);
    }
}
