//! Saved: the states of a store as bytes, for the next process.
//!
//! ```text
//!   moment | section | section | .. | end
//!
//!   section, some keys of one limit:      L | name | tag, lends, shape | record | ..
//!   record, of a key:                     K | key  | usage | ban left | state
//!           of evicted keys:              F | size | usage | ban left | state
//! ```
//!
//! * A state is written in its [stored form](ratekeeper_core::StoredForm), and is read back
//!   if it means the same under the limit of that name. If not, the limit has changed, and
//!   the usage at the moment is carried over, as at a reload; so is a ban. In no case does a key
//!   have used less than it had.
//! * A window that opens with a request (`quota-reset`) is kept to the microsecond, rounded up. All
//!   other states are exact.
//! * Moments in states count from the zero of the clock: the next process must continue it.
//! * A shard is locked for [`PASS_SLOTS`] slots of a limit at a time: keys whose hash is in a span,
//!   so that none is missed or written twice while others come and go. The bytes of a pass are
//!   buffered, so that no lock is held while they are written.
//! * Numbers have seven bits in a byte, the lowest first.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use ratekeeper_core::{Charge, Key, Limit, Listed, Nanos, Permits, Time, UnixMicros, Verdict};

use super::MemoryStore;
use super::flat::HashSpan;
use super::key::SizeClass;

const SECTION: u8 = b'L';
const KEY: u8 = b'K';
const FLOOR: u8 = b'F';
const END: u8 = b'E';

/// Slots of a limit that are saved under one lock: about a millisecond on a slow machine.
const PASS_SLOTS: usize = 2_048;
/// Maximum number of bytes of a name, a key or a state that is read.
const MAX_FIELD: u64 = 64 << 20;

/// Bytes that are read at once, so that memory is taken only for bytes that are there.
const READ_AT_ONCE: usize = 64 << 10;

/// The result of [`MemoryStore::restore`].
///
/// ```
/// use ratekeeper_core::Time;
/// use ratekeeper_store::{MemoryConfig, MemoryStore};
///
/// let store = MemoryStore::new(MemoryConfig::default());
/// let mut bytes = Vec::new();
/// store.save([], Time::ZERO, &mut bytes).unwrap();
/// let restored = store.restore(&mut bytes.as_slice(), Time::ZERO, |_| None).unwrap();
/// assert_eq!((restored.keys, restored.dropped.len()), (0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of keys that were read, of limits that exist.
    pub keys: u64,
    /// Names of limits that do not exist any more: their keys were dropped.
    pub dropped: BTreeSet<String>,
}

/// How the states of a section are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Form {
    tag: u8,
    /// 1 if it lends permits: the tag alone does not tell a balance from permits on loan.
    lends: u8,
    shape: u64,
}

impl Form {
    fn of<A: Listed>(algorithm: &A) -> Self {
        Self {
            tag: A::TAG,
            lends: u8::from(A::LENDS),
            shape: algorithm.shape(),
        }
    }
}

/// A state as it was saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedState<'a> {
    form: Form,
    /// The moment at which it was saved.
    then: Time,
    used: Permits,
    /// Time left of a ban.
    ban: Nanos,
    state: &'a [u8],
}

impl SavedState<'_> {
    /// Returns the state under the present parameters of its limit, which succeed those of then.
    pub(super) fn under<A: Listed>(&self, algorithm: &mut A) -> A::State {
        let read = if self.form == Form::of(algorithm) {
            algorithm.succeed_writer(self.state, micros(self.then));
            algorithm.read(self.state, micros(self.then))
        } else {
            None
        };
        let carried = || algorithm.state_with_usage(self.used, self.then);
        let Some(mut state) = read else {
            let mut state = carried();
            if self.ban > Nanos::ZERO {
                let _ = algorithm.try_ban(&mut state, self.then, self.ban); // it may have no bans
            }
            return state;
        };
        // Permits on loan and credits mean the same under any numbers.
        if !A::KEEPS && algorithm.usage(&state, self.then) < self.used {
            algorithm.stricter(&mut state, &carried());
        }
        state
    }
}

/// Stored forms count microseconds; the moment of reading matters only so far.
const fn micros(time: Time) -> UnixMicros {
    UnixMicros::new(time.as_nanos() / 1_000)
}

/// Writes the section of one limit in one shard; nothing without records.
#[derive(Debug)]
pub(super) struct SectionWriter<'a> {
    name: &'a str,
    out: &'a mut Vec<u8>,
    state: Vec<u8>,
    keys: u64,
}

impl<'a> SectionWriter<'a> {
    fn new(name: &'a str, out: &'a mut Vec<u8>) -> Self {
        Self {
            name,
            out,
            state: Vec::new(),
            keys: 0,
        }
    }

    pub(super) fn key<A: Listed>(
        &mut self,
        algorithm: &A,
        state: &A::State,
        key: &[u8],
        now: Time,
    ) {
        self.open(algorithm);
        self.out.push(KEY);
        put_bytes(key, self.out);
        self.put_state(algorithm, state, now);
        self.keys += 1;
    }

    pub(super) fn floor<A: Listed>(
        &mut self,
        algorithm: &A,
        state: &A::State,
        size: SizeClass,
        now: Time,
    ) {
        self.open(algorithm);
        self.out.extend([FLOOR, size as u8]);
        self.put_state(algorithm, state, now);
    }

    fn open<A: Listed>(&mut self, algorithm: &A) {
        if self.out.is_empty() {
            let form = Form::of(algorithm);
            self.out.push(SECTION);
            put_bytes(self.name.as_bytes(), self.out);
            self.out.extend([form.tag, form.lends]);
            self.out.extend(form.shape.to_le_bytes());
        }
    }

    fn put_state<A: Listed>(&mut self, algorithm: &A, state: &A::State, now: Time) {
        put_number(algorithm.usage(state, now).get(), self.out);
        let ban = match algorithm.look(state, now, Permits::ZERO).verdict {
            Verdict::Banned { retry_after } | Verdict::Ban { retry_after } => retry_after,
            _ => Nanos::ZERO,
        };
        put_number(ban.as_nanos(), self.out);
        self.state.clear();
        algorithm.write(state, micros(now), &mut self.state);
        put_bytes(&self.state, self.out);
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        let [low, ..] = number.to_le_bytes();
        out.push(low | 0x80);
        number >>= 7;
    }
    let [low, ..] = number.to_le_bytes();
    out.push(low);
}

/// Saving and restoring.
impl MemoryStore {
    /// Writes the states of all keys of `limits`, for [`restore`](Self::restore) in another
    /// process. Other threads may decide meanwhile: a shard is locked for some thousand keys at a
    /// time, and memory is taken for as many. Returns the number of keys.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn save<'l>(
        &self,
        limits: impl IntoIterator<Item = &'l Limit>,
        now: Time,
        to: &mut impl Write,
    ) -> io::Result<u64> {
        let (mut keys, mut out) = (0, Vec::new());
        to.write_all(&now.as_nanos().to_le_bytes())?;
        let limits: Vec<&Limit> = limits.into_iter().collect();
        let names = limits.iter().map(|it| (it.id, &*it.name)).collect();
        for shard in 0..self.shards.len() {
            for limit in &limits {
                let _ = self.lock(shard).known(limit, now); // by the numbers that it has now
            }
            let left = self.lock(shard).left_behind(&names).into_iter();
            let own = limits.iter().map(|it| (it.id, &*it.name));
            // Those first, because a key may move to its own meanwhile.
            for (id, name) in left.chain(own) {
                let slots = self
                    .lock(shard)
                    .tables(id.index())
                    .map_or(0, |it| it.slots());
                for span in spans(slots.div_ceil(PASS_SLOTS)) {
                    out.clear();
                    let mut section = SectionWriter::new(name, &mut out);
                    if let Some(tables) = self.lock(shard).tables(id.index()) {
                        tables.save(&span, now, &mut section);
                    }
                    keys += section.keys;
                    to.write_all(&out)?;
                }
            }
        }
        to.write_all(&[END])?;
        Ok(keys)
    }

    /// Adds the keys that [`save`](Self::save) wrote, as they stand at `now` on a clock that
    /// continues the one of then; an earlier `now` counts as the moment of saving. `limit_named`
    /// finds a limit. Under a limit that has changed, a key begins with its usage, as at a reload.
    /// If there is not room for all, those that used least are evicted, as ever.
    ///
    /// # Errors
    /// Those of `from`, and [`io::ErrorKind::InvalidData`] for bytes that `save` did not write. The
    /// keys before them have been added.
    pub fn restore<'l>(
        &self,
        from: &mut impl Read,
        now: Time,
        limit_named: impl Fn(&str) -> Option<&'l Limit>,
    ) -> io::Result<Restored> {
        let mut reader = SavedReader(from);
        let then = Time::from_nanos(u64::from_le_bytes(reader.array()?));
        let now = now.max(then);
        let mut restored = Restored::default();
        let mut section: Option<(Form, Option<&Limit>)> = None;
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let kind = reader.byte()?;
            match kind {
                SECTION => {
                    reader.bytes(&mut bytes)?;
                    let name = std::str::from_utf8(&bytes).map_err(|_| invalid("a name"))?;
                    let limit = limit_named(name);
                    if limit.is_none() {
                        restored.dropped.insert(name.to_owned());
                    }
                    section = Some((reader.form()?, limit));
                    continue;
                }
                KEY => reader.bytes(&mut key)?,
                FLOOR => {
                    key.clear();
                    key.push(reader.byte()?);
                }
                END => return Ok(restored),
                _ => return Err(invalid("a record")),
            }
            let (used, ban) = (reader.number()?, Nanos::from_nanos(reader.number()?));
            reader.bytes(&mut bytes)?;
            let (form, limit) = section.ok_or_else(|| invalid("a record before any limit"))?;
            let Some(limit) = limit else { continue };
            let saved = SavedState {
                form,
                then,
                used: Permits::new(used),
                ban,
                state: &bytes,
            };
            if kind == KEY {
                let charge = Charge::enforced(limit, Key::from_bytes(&key), Permits::ZERO);
                self.with(&charge, now, |shard, limit, ask| {
                    // Without room it is forgotten.
                    let _ = shard.with_room(limit, ask, |tables| tables.restore(ask, &saved));
                    shard.note_home(limit, ask);
                });
                restored.keys += 1;
            } else {
                let sizes = [SizeClass::Word, SizeClass::Short, SizeClass::Long];
                let size = sizes.into_iter().find(|size| *size as u8 == key[0]);
                let size = size.ok_or_else(|| invalid("a size of keys"))?;
                for shard in 0..self.shards.len() {
                    if let Some(tables) = self.lock(shard).tables_of(limit, now) {
                        tables.restore_floor(size, &saved, now);
                    }
                }
            }
        }
    }
}

/// Returns all hashes in `count` spans of the same width, or at least one.
fn spans(count: usize) -> impl Iterator<Item = HashSpan> {
    let count = count.max(1) as u128;
    let start = move |index: u128| (index << 64) / count;
    let hash = |bound: u128| u64::try_from(bound).unwrap_or(u64::MAX);
    (0..count).map(move |index| hash(start(index))..=hash(start(index + 1) - 1))
}

/// Reads what [`SectionWriter`] wrote.
struct SavedReader<'a, R>(&'a mut R);

impl<R: Read> SavedReader<'_, R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(invalid("a number"))
    }

    /// Reads a length and as many bytes; memory grows with the bytes that are there.
    fn bytes(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let length = self.number()?;
        if length > MAX_FIELD {
            return Err(invalid("a length"));
        }
        into.clear();
        while into.len() as u64 != length {
            let start = into.len();
            let most = usize::try_from(length).unwrap_or(usize::MAX);
            into.resize(most.min(start + READ_AT_ONCE), 0);
            self.0.read_exact(&mut into[start..])?;
        }
        Ok(())
    }

    fn form(&mut self) -> io::Result<Form> {
        Ok(Form {
            tag: self.byte()?,
            lends: self.byte()?,
            shape: u64::from_le_bytes(self.array()?),
        })
    }
}

fn invalid(what: &str) -> io::Error {
    let text = format!("{what} is not as this version writes it");
    io::Error::new(io::ErrorKind::InvalidData, text)
}
