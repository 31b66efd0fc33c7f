//! Loan: requests that take permits of concurrency limits, and give them back when they are done.
//!
//! ```text
//!   acquire --> rates are charged, permits lent: all or none --> work --> release
//!                                                                 |
//!                                                 renew <---------+   longer than the lease
//!                                                                 |
//!                                               the lease ends <--+   the holder crashed
//! ```

use ratekeeper_core::{LeaseId, Lend, Nanos, Permits};
use ratekeeper_policy::{Facts, Policy};
use ratekeeper_store::{Hold, Store, StoreError};
use smallvec::SmallVec;

use crate::{Answer, Clock, Keeper, Permit, Scope};

impl Answer {
    /// Returns the permits lent to a request that [acquires](Keeper::acquire), one of each limit of
    /// concurrency that it passed, and the minimum length of each loan.
    pub fn permits(&self) -> impl Iterator<Item = (Permit, Nanos)> {
        let lease = self.lease.filter(|_| self.allowed());
        lease.into_iter().flat_map(|lease| {
            self.outcomes().filter_map(move |outcome| {
                let limit = outcome.limit.algorithm.concurrency()?;
                let lent = outcome.decision.verdict.allows() && outcome.cost > Permits::ZERO;
                let permit = || Permit::new(&outcome.limit.name, outcome.key, lease);
                lent.then(|| (permit(), limit.lease()))
            })
        })
    }
}

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Like [`check`](Self::check), and takes permits of the limits of concurrency that match, all
    /// together or none. They are lent to the name `lease`: a random number, so that no other
    /// client can give them back.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn acquire(
        &self,
        facts: &Facts<'_>,
        scope: Scope<'_>,
        lease: LeaseId,
    ) -> Result<Answer, StoreError> {
        let mut answer = self.asked(facts, scope);
        let lend = Lend::To(lease);
        let decisions = self.decide(&answer.list(), &answer, lend).await?;
        answer.set(decisions);
        answer.lease = Some(lease);
        Ok(answer)
    }

    /// Takes permits back; returns for each how many they were: zero if they came back before, or
    /// the lease has ended.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn release(&self, permits: &[Permit]) -> Result<Vec<Permits>, StoreError> {
        let (policy, now) = (self.policy(), self.clock().now());
        let (at, holds) = holds(permits, &policy, self.wall_origin().unix_nanos(now));
        let released = self.store().release(&holds, now).await?;
        Ok(spread(permits.len(), &at, released))
    }

    /// Renews leases for their full length from now; returns for each that length, or `None` if it
    /// has ended or was released.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn renew(&self, permits: &[Permit]) -> Result<Vec<Option<Nanos>>, StoreError> {
        let (policy, now) = (self.policy(), self.clock().now());
        let (at, holds) = holds(permits, &policy, self.wall_origin().unix_nanos(now));
        let renewed = self.store().renew(&holds, now).await?;
        Ok(spread(permits.len(), &at, renewed))
    }
}

/// Returns the stored holds of `permits`, and their indices; skips limits that no longer exist.
fn holds<'a>(
    permits: &'a [Permit],
    policy: &'a Policy,
    unix_nanos: u64,
) -> (SmallVec<[usize; 4]>, SmallVec<[Hold<'a>; 4]>) {
    let held = permits.iter().enumerate().filter_map(|(at, permit)| {
        let key = permit.key();
        let hold = Hold {
            limit: policy.limit_of(permit.limit(), key, unix_nanos)?,
            key,
            lease: permit.lease(),
        };
        Some((at, hold))
    });
    held.unzip()
}

/// Places each value at its index; defaults elsewhere.
fn spread<T: Default + Clone>(length: usize, at: &[usize], values: SmallVec<[T; 4]>) -> Vec<T> {
    let mut all = vec![T::default(); length];
    for (&at, value) in at.iter().zip(values) {
        all[at] = value;
    }
    all
}
