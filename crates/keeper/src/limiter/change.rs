//! Change: refunds, resets, and changes of the limit while it is used.
//!
//! ```text
//!   set_limit --> states mean the same?  yes: they stay, in permits
//!                                        no:  its usage is charged to a fresh one
//! ```
//!
//! Each of them wakes the first waiter.

use std::convert::Infallible;
use std::hint;
use std::mem::needs_drop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratekeeper_core::{Error, Gcra, Nanos, Permits, Quota, Receipt, Refund, Time};
use ratekeeper_store::{GiveBackNote, GivenBack, StateChange};

use super::{Grant, Limiter, LimiterAlgorithm, StateCell};
use crate::Clock;

/// Pauses of a thread that lost a race before it tries again: 200 ns in all on Zen 4. The word stays
/// with the winner for some more decisions: two threads decide twice as often.
const PAUSES: u32 = 8;

impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// Gives back permits that were taken here and not used, as far as time has not paid for them:
    /// a bucket that was full again meanwhile gets nothing back, because it has lost nothing. The
    /// first waiter can take them at once. Only for algorithms that can take them back. Moments that
    /// [`reserve`](Self::reserve) has promised stay: if such permits are not taken before that
    /// moment, they can be used at it beside the promised ones. After a [reset](Self::reset), or a
    /// [change](Self::set_limit) of the limit, earlier grants give nothing back.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// let grant = limiter.check_n(4).unwrap();
    /// limiter.refund(grant);
    /// assert_eq!(limiter.peek().remaining.get(), 10);
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn refund(&self, grant: Grant)
    where
        A: Refund,
    {
        let back = Permits::new(grant.cost()); // down: never more
        let _ = self.give_back(&grant, back, |limit, state, now, receipt| {
            limit.give_back(state, now, back, receipt);
            Ok::<_, Infallible>(())
        });
    }

    /// Gives back `back` permits of a grant of this limiter, by `act`.
    pub(super) fn give_back<E>(
        &self,
        grant: &Grant,
        back: Permits,
        act: impl Fn(&A, &mut A::State, Time, Receipt) -> Result<(), E>,
    ) -> Result<(), E> {
        let (now, mut receipt) = (self.clock.now(), grant.receipt());
        if grant.made.limiter != self.id || back == Permits::ZERO {
            return Ok(());
        }
        let mut given_back = self.given_back.lock();
        if !given_back.complete(&mut receipt) || receipt.paid <= now {
            return Ok(());
        }
        self.marks.begin();
        let changed = self.place.update(|state| {
            self.with(|limit| {
                let look = |state: &_| limit.look(state, now, Permits::ZERO);
                let before = look(state);
                act(limit, state, now, receipt)?;
                Ok((before, look(state)))
            })
        });
        let number = self.marks.end();
        let (before, after) = changed?;
        // Where nothing is owed, the receipts of a state without notes say so by themselves.
        let is_known = after.reset_after == Nanos::ZERO && given_back.is_empty();
        if after != before && !is_known {
            let sooner = before.reset_after.saturating_sub(after.reset_after);
            given_back.note(GiveBackNote {
                change: StateChange {
                    number,
                    at: now,
                    until: now + before.reset_after,
                },
                of: Some(grant.receipt()),
                permits: back,
                sooner: self.with(A::is_paid_in_order).then_some(sooner),
            });
        }
        drop(given_back);
        self.line.wake_first();
        Ok(())
    }

    /// Notes that grants made before give nothing back.
    fn forget_grants(&self, given_back: &mut GivenBack) {
        given_back.note_forgotten(StateChange {
            number: self.marks.next(),
            at: self.clock.now(),
            until: Time::MAX,
        });
    }

    /// Takes back permits that a limit of concurrency has lent; no effect under other limits.
    #[cfg(feature = "tower")]
    pub(crate) fn take_back(&self, cost: Permits) {
        let now = self.clock.now();
        self.place
            .update(|state| self.with(|algorithm| algorithm.take_back(state, now, cost)));
        self.line.wake_first();
    }

    /// Forgets the charges, and the promises of [`reserve`](Self::reserve). Waiters stay in line,
    /// for the fresh limit.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// let _ = limiter.check();
    /// limiter.reset();
    /// assert_eq!(limiter.peek().remaining.get(), 10);
    /// ```
    pub fn reset(&self) {
        let mut given_back = self.given_back.lock();
        self.place.update(|state| *state = A::State::default());
        self.forget_grants(&mut given_back);
        drop(given_back);
        self.era.begin();
        self.line.wake_first();
    }

    /// Changes the limit while it is used. The usage stays the same permits, at most the larger of
    /// the new quota and burst: a lower quota forgives the rest, a lower burst at the same rate
    /// forgives nothing. Debts beyond an empty bucket stay the same permits too, and promised moments
    /// stay: up to the latest moment that [`reserve`](Self::reserve) has promised, for any key, a
    /// debt is taken for a promise. (Post-paid limits keep the share of their stored permits.) Waiters stay in line, at the
    /// new rate.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use ratekeeper::core::QuotaReset;
    /// let limiter = Limiter::per("10/1m").unwrap();
    /// let _ = limiter.check_n(10);
    /// limiter.set_quota("10/1h".parse().unwrap()).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 0, "ten are used");
    /// limiter.set_quota("15/1h".parse().unwrap()).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 5, "ten are used");
    ///
    /// let hourly = |permits: &str| QuotaReset::new(permits.parse().unwrap()).unwrap();
    /// let limiter = Limiter::new(hourly("10/1h"));
    /// let _ = limiter.check_n(4);
    /// limiter.set_limit(hourly("100/1h"));
    /// assert_eq!(limiter.peek().remaining.get(), 96);
    /// ```
    pub fn set_limit(&self, limit: A) {
        let mut limit = limit.patient();
        let now = self.clock.now();
        let queue = self.line.lock(); // one change at a time
        self.with(|old| limit.succeed(old));
        let limit = Arc::new(limit);
        let mut given_back = self.given_back.lock();
        self.with(|old| {
            let convert = |state: &mut A::State| {
                if limit.keeps_state_of(old) {
                    let promised = Time::from_nanos(self.promised.load(Ordering::Relaxed));
                    limit.rescale(state, old, now, promised.since(now));
                } else {
                    self.promised.store(0, Ordering::Relaxed); // a fresh state holds no promise
                    *state = limit.state_with_usage(old.usage(state, now), now);
                }
            };
            match old.believing() {
                Some(old) => self.replace(old, &limit, convert),
                None => self.place.update(|state| {
                    convert(state);
                    self.limit.store(Arc::clone(&limit)); // under the lock of the state
                }),
            }
        });
        // They know when the old numbers would have paid them.
        self.forget_grants(&mut given_back);
        drop(given_back);
        self.era.begin();
        drop(queue);
        self.line.wake_first();
    }

    /// Converts a state without a lock, and then replaces the limit.
    ///
    /// ```text
    ///   changes: odd -----> convert -----> limit: the new one -----> changes: even
    ///                          a charge meanwhile: taken back, and decided again afterwards
    /// ```
    fn replace(&self, old: A, limit: &Arc<A>, convert: impl Fn(&mut A::State)) {
        self.limit.store(Arc::new(old)); // from now on no charge takes the short way
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.place.update(convert);
        self.limit.store(Arc::clone(limit));
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Pauses after a lost race; see [`PAUSES`].
    pub(super) fn let_others_pass(&self) {
        if self.limit.unchanged().is_some() {
            (0..PAUSES).for_each(|_| hint::spin_loop());
        }
    }

    /// Charges by `charge`, by a limit that is not changed meanwhile: else the state may be in the
    /// numbers of another, so the charge is taken back if no other came, and made again.
    pub(super) fn charge<T>(&self, charge: impl Fn(&A, &mut A::State) -> T) -> T {
        // Only states of a word are without a lock, and cheap to copy.
        let copy = |state: &A::State| (!needs_drop::<A::State>()).then(|| state.clone());
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            if !changes.is_multiple_of(2) {
                drop(self.line.lock()); // the change is made
                continue;
            }
            let (answer, before, after) = self.place.update(|state| {
                let before = copy(state);
                let answer = self.with(|limit| charge(limit, state));
                (answer, before, copy(state))
            });
            if self.changes.load(Ordering::Acquire) == changes {
                return answer;
            }
            self.place.update(|state| match (&before, &after) {
                (Some(before), Some(after)) if state == after => *state = before.clone(),
                _ => {}
            });
        }
    }
}

impl<C: Clock> Limiter<Gcra, C> {
    /// Like [`set_limit`](Self::set_limit), to a token bucket with the numbers of `quota`;
    /// reservations and debts reach about a year ahead.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// limiter.set_quota("20/1h".parse().unwrap()).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 20, "full stays full");
    /// ```
    ///
    /// # Errors
    /// Those of [`Limiter::per`]; then nothing is changed.
    pub fn set_quota(&self, quota: Quota) -> Result<(), Error> {
        self.set_limit(Gcra::token_bucket(quota)?);
        Ok(())
    }
}
