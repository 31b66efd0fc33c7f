//! Loans: what only a table of permits on loan does.

use foldhash::quality::RandomState;
use ratekeeper_core::{Concurrency, LeaseId, Leases, Lend, Nanos, Permits, Refund, Time};

use super::{Ask, Table};
use crate::memory::key::StoredKey;

impl<K: StoredKey> Table<Concurrency, K> {
    /// A table of permits on loan.
    pub(in crate::memory) fn of_loans(algorithm: Concurrency, hasher: RandomState) -> Self {
        Self {
            lends: true,
            ..Self::new(algorithm, hasher)
        }
    }

    /// Takes back what `ask` was lent; what is not here any more is not taken back.
    pub(in crate::memory) fn take_back(&mut self, ask: &Ask<'_>) {
        let Some((limit, leases)) = self.leases(ask) else {
            return;
        };
        match ask.lend {
            Lend::Unnamed => limit.refund(leases, ask.now, ask.cost),
            Lend::To(id) => {
                limit.release(leases, ask.now, id);
            }
            Lend::Nothing => {}
        }
    }

    /// Takes back all that a name holds; says how much that was.
    pub(in crate::memory) fn release(&mut self, ask: &Ask<'_>, id: LeaseId) -> Permits {
        let leases = self.leases(ask);
        leases.map_or(Permits::ZERO, |(limit, leases)| {
            limit.release(leases, ask.now, id)
        })
    }

    /// Lets the lease of a name run anew; says how long, unless it has ended.
    pub(in crate::memory) fn renew(&mut self, ask: &Ask<'_>, id: LeaseId) -> Option<Nanos> {
        let (limit, leases) = self.leases(ask)?;
        limit.renew(leases, ask.now, id)
    }

    /// Permits on loan, of all keys.
    pub(in crate::memory) fn in_use(&self, now: Time) -> u64 {
        let held = |leases| self.algorithm.in_use(leases, now);
        self.entries.iter().map(|entry| held(&entry.state)).sum()
    }

    /// The limit, and what a key that is here has on loan.
    fn leases(&mut self, ask: &Ask<'_>) -> Option<(Concurrency, &mut Leases)> {
        let at = self.find(ask)?;
        let leases = &mut self.entries.get_mut(at)?.state;
        Some((self.algorithm, leases))
    }
}
