//! Charge: a limit, a key and a cost, on the way to the store.

use std::sync::Arc;

use ratekeeper_core::{Charge, Decision, Key, KeyBuilder, KeySink, Limit, Permits, Quota};
use ratekeeper_store::{ActualCost, ChargeOrigin, MemoryStore, Settled};
use smallvec::SmallVec;

use super::NamedLimit;
use crate::limiter::desk::permits;
use crate::{LimitKey, SystemClock};

/// The charge of one limit in a [check](super::Limits::check) of several; see
/// [`NamedLimit::of`].
///
/// ```
/// use ratekeeper::{Limits, at_once};
/// let limits = Limits::in_memory();
/// let tokens = limits.token_bucket("tokens", "1000/1m".parse()?)?;
/// let charges = [tokens.of(("ann", "large-model")).cost(300)];
/// assert!(at_once(limits.check(&charges)).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a charge is made by `Limits::check`"]
pub struct LimitCharge<'a, S = MemoryStore, C = SystemClock> {
    pub(super) limit: &'a NamedLimit<S, C>,
    pub(super) key: KeyText,
    /// `None` if no limit can count as many.
    pub(super) cost: Option<Permits>,
    /// Numbers of this key alone.
    pub(super) quota: Option<Quota>,
}

impl<'a, S, C> LimitCharge<'a, S, C> {
    pub(super) fn new(limit: &'a NamedLimit<S, C>, key: impl LimitKey) -> Self {
        Self {
            limit,
            key: KeyText::of(&key),
            cost: Some(Permits::ONE),
            quota: None,
        }
    }

    /// The same charge of `cost` permits; without this call, of one.
    pub fn cost(self, cost: u64) -> Self {
        Self {
            cost: permits(cost),
            ..self
        }
    }

    /// The same charge under other numbers, for keys with a plan of their own: a token bucket with
    /// this quota in place of the limit's algorithm, also after
    /// [`set_limit`](NamedLimit::set_limit). Keys with equal numbers share them. The usage of a key
    /// stays when its numbers change, or when it is charged without them again; lower numbers may
    /// forgive what they do not hold. So give a key one quota at a time: a key that is charged by two
    /// in turn is bounded by neither.
    ///
    /// ```
    /// use ratekeeper::core::Quota;
    /// use ratekeeper::{Limits, at_once};
    /// let limits = Limits::in_memory();
    /// let calls = limits.token_bucket("calls", Quota::per_minute(1))?;
    /// let quota_of = |user: &str| match user {
    ///     "ann" => Quota::per_minute(3), // by your own table
    ///     _ => Quota::per_minute(1),
    /// };
    /// let ask = |user| at_once(limits.check(&[calls.of(user).quota(quota_of(user))])).is_ok();
    /// assert_eq!([ask("ann"), ask("ann"), ask("bob"), ask("bob")], [true, true, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A check fails with [`StoreError::Misconfigured`](ratekeeper_store::StoreError) if no token
    /// bucket can have the quota, and above 1,000 quotas of one limit.
    pub fn quota(self, quota: Quota) -> Self {
        Self {
            quota: Some(quota),
            ..self
        }
    }
}

// Not the key, which may be personal data.
debug_fields!([S, C] LimitCharge<'_, S, C> { limit, cost });

/// The bytes of a key; most need no place on the heap.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyText(SmallVec<[u8; 32]>);

impl KeyText {
    pub(crate) fn of(key: &impl LimitKey) -> Self {
        let mut text = Self::default();
        KeyBuilder::new(&mut text).part(key.key_bytes().as_ref());
        text
    }

    pub(crate) fn as_key(&self) -> Key<'_> {
        Key::from_bytes(&self.0)
    }
}

impl KeySink for KeyText {
    fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// A charge with its limit and key.
#[derive(Clone)]
pub(crate) struct OwnedCharge {
    pub(crate) limit: Arc<Limit>,
    pub(crate) key: KeyText,
    pub(crate) cost: Permits,
}

impl OwnedCharge {
    pub(crate) fn charge(&self) -> Charge<'_> {
        Charge::enforced(&self.limit, self.key.as_key(), self.cost)
    }
}

/// A limit is equal only to itself.
impl PartialEq for OwnedCharge {
    fn eq(&self, other: &Self) -> bool {
        let same_limit = Arc::ptr_eq(&self.limit, &other.limit);
        same_limit && self.key == other.key && self.cost == other.cost
    }
}

impl Eq for OwnedCharge {}

/// A charge that was decided.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) name: Arc<str>,
    pub(super) made: OwnedCharge,
    /// The actual cost, for settling.
    pub(super) used: Permits,
    pub(super) decision: Option<Decision>,
    /// Where and when it was made; `None` if it was not.
    pub(super) origin: Option<ChargeOrigin>,
}

impl Charged {
    pub(super) const fn new(name: Arc<str>, made: OwnedCharge) -> Self {
        Self {
            used: made.cost,
            name,
            made,
            decision: None,
            origin: None,
        }
    }

    pub(super) fn charge(&self) -> Charge<'_> {
        self.made.charge()
    }

    /// Returns the correction of the charge to a cost of `used`; `None` if it was not made.
    pub(super) fn settled(&self, used: Permits) -> Option<Settled<'_>> {
        Some(Settled {
            charge: self.charge(),
            used: ActualCost::Permits(used),
            origin: self.origin?,
        })
    }
}
