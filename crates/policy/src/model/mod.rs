//! The policy as it decides: no file, no diagnostic and no field of the language is known here.

pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod matching;
pub(crate) mod policy;
pub(crate) mod rules;
pub(crate) mod settings;
