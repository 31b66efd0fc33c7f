//! Limits as the store uses them: on its clock, with a twin if there is one, and with their
//! earlier forms from before their numbers changed.
//!
//! ```text
//!   name of a key     ...:per-user           GCRA: values name their numbers
//!                     ...:per-user~w9c41d02a others: then the shape of their states
//!                     ...:per-user&edge-1    counted by this process alone
//!                     ...:per-user=pro       by a plan; numbers of single keys: as the limit
//!
//!   reload:  ~w9c41d02a --> ~i11fe70b         the new key is not there: the usage under
//!                                            the old one is carried over, once
//! ```
//!
//! Processes that have not reloaded yet still use the old keys, so while a new policy spreads
//! a caller may be counted under both, each within its limit; GCRA has one key, and together they
//! admit at most the looser limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Call, Gcra, Limit, LimitKeys, LimitScope, LuaTwin, Origin,
    StoredForm, UnixMicros,
};

use super::state::micros_left;

/// Maximum number of earlier shapes of a limit: more reloads within one window are rare.
const MAX_EARLIER: usize = 4;
/// Maximum number of other limits, of plans, under which a key with numbers of its own is looked
/// for.
const MAX_BASE: usize = 8;

/// A limit, ready for use.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) version: u32,
    /// Identifies the limit in the names of its keys.
    pub(super) label: Label,
    /// The algorithm, on a clock that counts from 1970.
    pub(super) algorithm: AnyAlgorithm,
    pub(super) tag: u8,
    pub(super) twin: Option<LuaTwin>,
    /// The cheaper twin, for requests of one charge each.
    pub(super) short: Option<LuaTwin>,
    /// Its earlier forms, newest first.
    pub(super) earlier: Vec<Earlier>,
}

/// The parts of a key's name that identify its limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Label {
    /// Its name; behind `&` the name of the process, if each counts it by itself.
    pub(super) limit: Arc<str>,
    /// Shape of its states; empty if they mean the same under any numbers.
    pub(super) shape: String,
    /// True if its keys share a slot with the keys of all limits that take nothing back.
    pub(super) is_final: bool,
}

/// A limit before its states changed their meaning.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub(super) label: Label,
    pub(super) algorithm: AnyAlgorithm,
    until: Arc<AtomicU64>,
}

impl Label {
    fn new(limit: &Limit, algorithm: &AnyAlgorithm, node: &str) -> Self {
        let tag = algorithm.tag();
        // Numbers of single keys are in the values, so that the usage stays when they change.
        let (_, name) = limit.family();
        Self {
            limit: match limit.scope {
                LimitScope::Cluster => Arc::clone(name),
                // No name has a `&`.
                LimitScope::Node => format!("{name}&{node}").into(),
            },
            shape: match algorithm.shape() {
                0 if tag == Gcra::TAG => String::new(),
                0 => format!("~{}", char::from(tag)),
                // The chance that two shapes of one limit share 32 bits is one in 4 billion.
                shape => format!("~{}{:08x}", char::from(tag), shape >> 32),
            },
            is_final: algorithm.supports(Call::Refund).is_err(),
        }
    }
}

impl Earlier {
    fn new(label: Label, algorithm: AnyAlgorithm) -> Self {
        Self {
            label,
            algorithm,
            until: Arc::default(),
        }
    }

    /// Returns true if a state of it may still matter. The first call that knows the time
    /// sets the end of that.
    pub(super) fn matters(&self, now: UnixMicros) -> bool {
        if now == UnixMicros::default() {
            return true;
        }
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            // Doubled, because denials that are counted may charge another quota.
            let (limit, all) = (&self.algorithm, self.algorithm.capacity());
            let used_up = limit.state_with_usage(all, now.time());
            let span = micros_left(limit, &used_up, now).saturating_mul(2);
            self.until
                .store(now.get().saturating_add(span).max(1), Ordering::Relaxed);
            return true;
        }
        now.get() <= until
    }
}

impl Prepared {
    fn new(limit: &Limit, origin: Origin, node: &str, before: Option<&Self>) -> Self {
        let mut algorithm = limit.algorithm.on_clock(origin, Origin::UNIX);
        if let Some(before) = before {
            algorithm.succeed(&before.algorithm);
        }
        let tag = algorithm.tag();
        let label = Label::new(limit, &algorithm, node);
        let mut earlier = Vec::new();
        if let LimitKeys::Single(base) = &limit.keys {
            // With a time of their own for each version: its keys may be others.
            earlier.extend(base.iter().take(MAX_BASE).map(|base| {
                let algorithm = base.algorithm.on_clock(origin, Origin::UNIX);
                Earlier::new(Label::new(base, &algorithm, node), algorithm)
            }));
        }
        if let Some(before) = before {
            let last = Earlier::new(before.label.clone(), before.algorithm.clone());
            let base: Vec<_> = earlier
                .iter()
                .map(|old: &Earlier| old.label.clone())
                .collect();
            let more = std::iter::once(&last).chain(&before.earlier);
            let more = more.filter(|old| old.label != label && !base.contains(&old.label));
            earlier.extend(more.take(MAX_EARLIER).cloned());
        }
        earlier.retain(|old| old.label != label);
        Self {
            version: limit.version,
            label,
            tag,
            twin: algorithm.twin(),
            short: algorithm.short_twin(),
            algorithm,
            earlier,
        }
    }
}

/// The newest version of each limit, by its id.
#[derive(Debug)]
pub(super) struct KnownLimits {
    known: RwLock<Known>,
    /// Name of this process.
    node: String,
}

#[derive(Debug)]
struct Known {
    /// Origin of the clock that the limits were constructed for.
    origin: Origin,
    slots: Vec<Option<Arc<Prepared>>>,
}

impl KnownLimits {
    /// Creates the table of limits that were constructed for a clock with this origin.
    pub(super) const fn new(origin: Origin, node: String) -> Self {
        let slots = Vec::new();
        let known = RwLock::new(Known { origin, slots });
        Self { known, node }
    }

    pub(super) fn origin(&self) -> Origin {
        self.known.read().origin
    }

    /// Sets the origin of further limits, and forgets the known ones if it has changed.
    pub(super) fn set_origin(&self, origin: Origin) {
        let mut known = self.known.write();
        if known.origin != origin {
            *known = Known {
                origin,
                slots: Vec::new(),
            };
        }
    }

    /// Returns the limit ready for use, in this version or a newer one.
    pub(super) fn prepare(&self, limit: &Limit) -> Arc<Prepared> {
        let id = limit.id.index();
        if let Some(Some(known)) = self.known.read().slots.get(id)
            && known.version >= limit.version
        {
            return Arc::clone(known);
        }
        let mut known = self.known.write();
        let Known { origin, slots } = &mut *known;
        if slots.len() <= id {
            slots.resize(id + 1, None);
        }
        let slot = &mut slots[id];
        match slot {
            Some(known) if known.version >= limit.version => Arc::clone(known),
            _ => {
                let prepared = Prepared::new(limit, *origin, &self.node, slot.as_deref());
                let prepared = Arc::new(prepared);
                *slot = Some(Arc::clone(&prepared));
                prepared
            }
        }
    }
}
