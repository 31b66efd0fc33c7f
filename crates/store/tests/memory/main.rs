//! The memory store: its bytes, its conformance, many threads, a full memory, a saved one.

mod bytes;
mod conformance;
mod full;
mod saved;
mod threads;
