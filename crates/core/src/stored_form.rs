//! Stored form: the bytes of a state, and its transition in Lua, for states that many processes
//! share.
//!
//! ```text
//!   this process                            the store
//!   state   <---- read, write ---->         bytes under a key
//!   numbers ----- twin, price ----> doubles --> <core>.lua: the same transition there
//! ```
//!
//! The `.rs` file of a core is its definition. A *twin* is the same transition in Lua, so that a
//! decision takes one call, which judges the request and updates the state. All rounding is done
//! here; a twin adds and compares whole numbers only, each exact in a double (below 2^53). The
//! answer to the caller (`remaining`, `retry_after`) is computed here, by the definition, from
//! the state that the twin found. A limit with numbers that a twin cannot hold exactly has no
//! twin, and is decided here by compare-and-set.
//!
//! Moments of a shared store count from 1970, in whole microseconds of the store's clock.

use alloc::vec::Vec;

use crate::{Algorithm, Nanos, Permits, Time};

/// A reading of a shared store's clock: microseconds since 1970, UTC, without leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixMicros(u64);

impl UnixMicros {
    /// `micros` microseconds after 1970.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The moment as a [`Time`] counted from 1970; saturating, after 584 years.
    pub const fn time(self) -> Time {
        Time::from_nanos(self.0.saturating_mul(1_000))
    }
}

/// Microseconds between the moments, counted from 1970, at which values in a shared store expire:
/// each at the first one after its state acts as fresh.
///
/// So a charge that does not carry it past the next step leaves the expiry as it is, which saves
/// the store a part of the write; a value stays at most four seconds longer than needed. Every
/// writer must keep to the step, because a charge that relies on it would otherwise be forgotten
/// early.
pub const EXPIRY_STEP_MICROS: u64 = 4_000_000;

/// The transition of a limit in Lua.
#[derive(Clone, PartialEq, Debug)]
pub struct LuaTwin {
    /// The core's source: a fragment that adds itself to the table `twins`; of a short twin, one
    /// that decides on one key in the store's `short.lua`.
    pub source: &'static str,
    /// The numbers of the limit, as the source reads them.
    pub numbers: Vec<f64>,
    /// End of the values that the twin can read, if they depend on the numbers of their writer.
    pub name: Vec<u8>,
}

impl LuaTwin {
    /// A twin that reads the values of every writer.
    pub(crate) fn unnamed(source: &'static str, numbers: impl Into<Vec<f64>>) -> Self {
        Self {
            source,
            numbers: numbers.into(),
            name: Vec::new(),
        }
    }
}

/// The bytes of a state, and for how many microseconds they stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptValue {
    /// The value.
    pub bytes: Vec<u8>,
    /// Microseconds after which it has no effect.
    pub micros: u64,
}

/// An algorithm with states that can be kept in a shared store.
pub trait StoredForm: Algorithm {
    /// Name of the core, for its twin and in its states: a lower case letter.
    const TAG: u8;

    /// The state that [`write`](Self::write) wrote; `None` if these bytes are not a state of this
    /// limit.
    fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<Self::State>;

    /// Takes the place of the parameters under which a value was written, as
    /// [`succeed`](Algorithm::succeed) does: then [`read`](Self::read) cuts no debt that they left
    /// at the same rate.
    fn succeed_writer(&mut self, _value: &[u8], _now: UnixMicros) {}

    /// Appends the state; nothing for a key never seen.
    fn write(&self, state: &Self::State, now: UnixMicros, out: &mut Vec<u8>);

    /// Adds to the value of a state the usage beyond it that `found`, the value before, had:
    /// [`read`](Self::read) cuts the usage to these parameters, and a process with higher numbers
    /// still counts the rest.
    fn keep_beyond(&self, _kept: &mut KeptValue, _found: &[u8], _now: UnixMicros) {}

    /// A fingerprint of the parameters that give a state its meaning: under equal shapes states
    /// mean the same. 0 if they do under any.
    fn shape(&self) -> u64;

    /// The twin; `None` if no twin is exact for these numbers.
    fn twin(&self) -> Option<LuaTwin> {
        None
    }

    /// A cost as the twin reads it.
    fn price(&self, cost: Permits) -> [f64; 4] {
        [cost.as_f64(), 0.0, 0.0, 0.0]
    }

    /// A twin that costs the store about half as much, for requests of one charge each; `None` if
    /// there is none that is exact for these numbers.
    fn short_twin(&self) -> Option<LuaTwin> {
        None
    }

    /// A cost as the short twin reads it.
    fn short_price(&self, cost: Permits) -> f64 {
        cost.as_f64()
    }
}

/// The whole number as a double; exact up to 2^53, which the caller ensures.
#[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
pub(crate) fn double(number: u64) -> f64 {
    debug_assert!(number <= 1 << 53, "{number} is not exact as a double");
    number as f64
}

/// A span of nanoseconds as twins read it: whole microseconds, and nanoseconds below 1,000.
pub(crate) fn micros_and_nanos(nanos: u64) -> [f64; 2] {
    [double(nanos / 1_000), double(nanos % 1_000)]
}

/// Bytes of each count of permits in a state: 4, or 8 if one of the counts needs them.
///
/// So the states of most limits stay short, and can be read by versions that counted in 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountWidth {
    Four,
    Eight,
}

impl CountWidth {
    /// The least width that holds each of `counts`.
    pub(crate) fn of(counts: &[u64]) -> Self {
        if counts.iter().all(|&count| u32::try_from(count).is_ok()) {
            Self::Four
        } else {
            Self::Eight
        }
    }

    /// The width of `counts` counts that fill `bytes` bytes.
    pub(crate) fn filling(bytes: usize, counts: usize) -> Option<Self> {
        let mut widths = [Self::Four, Self::Eight].into_iter();
        widths.find(|width| width.bytes() * counts == bytes)
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// Appends a count.
    pub(crate) fn write(self, count: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&count.to_le_bytes()[..self.bytes()]);
    }
}

/// The shortest step of a grid that twins count: the number of a step times the nanoseconds
/// of its length stays below 2^53.
pub(crate) const SHORTEST_STEP: Nanos = Nanos::from_millis(1);

/// FNV-1a over words.
pub(crate) fn fingerprint(words: &[u64]) -> u64 {
    bytes_fingerprint(words.iter().flat_map(|word| word.to_le_bytes()))
}

/// FNV-1a.
pub(crate) fn bytes_fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Reads the bytes of a state; every method returns `None` once they run out.
pub(crate) struct StateReader<'a>(&'a [u8]);

impl<'a> StateReader<'a> {
    /// The bytes after the tag; `None` if the tag is another.
    pub(crate) fn of(tag: u8, bytes: &'a [u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        (first == tag).then_some(Self(rest))
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// A count of permits; `None` also if it is above [`Permits::MAX`].
    pub(crate) fn count(&mut self, width: CountWidth) -> Option<u64> {
        let count = match width {
            CountWidth::Four => self.u32()?.into(),
            CountWidth::Eight => self.u64()?,
        };
        (count <= Permits::MAX.get()).then_some(count)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// The bytes left.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Number of bytes left.
    pub(crate) const fn left(&self) -> usize {
        self.0.len()
    }

    /// Returns `value` if no bytes are left.
    pub(crate) fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}
