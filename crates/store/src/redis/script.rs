//! Scripts: the twins that a call needs, composed into one text.
//!
//! ```text
//!   limits of the call --> tags {g, w} --> decide.lua + gcra.lua + window.lua --> SHA-1
//!   requests of one charge each, one short twin  -->  short.lua + gcra/short.lua --> SHA-1
//! ```
//!
//! A script holds only the twins it needs, because the store runs all of its text on every call.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::RwLock;

/// Placeholder for the twins.
const PLACE: &str = "--@twins\n";
const DECIDE: &str = include_str!("decide.lua");
const TIME: &str = include_str!("time.lua");
/// Placeholders for the parts of a short twin: before the keys, and for each. The second parts them.
const ONCE: &str = "--@once\n";
const EACH: &str = "--@each\n";
const SHORT: &str = include_str!("short.lua");

/// A script, and the hash by which servers know it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    /// SHA-1 of the text, in hexadecimal.
    pub(super) hash: String,
}

impl Script {
    fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            hash: redis::Script::new(text).get_hash().into(),
        }
    }

    /// Returns the script that tests whether states can be written: a server that is full, or
    /// may not write, answers but does not decide.
    pub(super) fn ping() -> Self {
        Self::new(include_str!("ping.lua"))
    }
}

/// The scripts in use: one for each set of cores that occurred in one call.
#[derive(Debug)]
pub(super) struct Scripts {
    /// By the tags of the cores, in order.
    decide: RwLock<BTreeMap<Vec<u8>, Arc<Script>>>,
    /// By the source of the short twin.
    short: RwLock<BTreeMap<&'static str, Arc<Script>>>,
    pub(super) by_hand: Arc<Script>,
    pub(super) load: Arc<Script>,
    pub(super) swap: Arc<Script>,
    pub(super) ping: Arc<Script>,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            decide: RwLock::default(),
            short: RwLock::default(),
            by_hand: Arc::new(Script::new(include_str!("by_hand.lua"))),
            load: Arc::new(Script::new(include_str!("load.lua"))),
            swap: Arc::new(Script::new(include_str!("swap.lua"))),
            ping: Arc::new(Script::ping()),
        }
    }

    /// Returns the script of a short twin.
    pub(super) fn short(&self, source: &'static str) -> Arc<Script> {
        kept(&self.short, source, || {
            let (once, each) = source.split_once(EACH).unwrap_or(("", source));
            SHORT.replace(ONCE, once).replace(EACH, each)
        })
    }

    /// Returns the script of these cores, by tag and source.
    pub(super) fn decide(&self, cores: &BTreeMap<u8, &'static str>) -> Arc<Script> {
        let tags = cores.keys().copied().collect();
        kept(&self.decide, tags, || compose(cores))
    }
}

/// Returns a script of some, which is made by its text when it is first needed.
fn kept<K: Ord>(
    scripts: &RwLock<BTreeMap<K, Arc<Script>>>,
    key: K,
    text: impl FnOnce() -> String,
) -> Arc<Script> {
    if let Some(script) = scripts.read().get(&key) {
        return Arc::clone(script);
    }
    let script = Arc::new(Script::new(&text()));
    scripts.write().insert(key, Arc::clone(&script));
    script
}

fn compose(cores: &BTreeMap<u8, &'static str>) -> String {
    let mut twins = String::new();
    if cores.keys().any(|&tag| tag != b'g') {
        twins.push_str(TIME); // GCRA counts in ticks and needs none of it
    }
    for source in cores.values() {
        let _ = writeln!(twins, "do\n{source}end"); // a scope: the names inside stay there
    }
    DECIDE.replace(PLACE, &twins)
}
