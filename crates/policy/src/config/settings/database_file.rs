//! Database file: a database of `[geo]`, compiled once for each content.

use std::sync::Arc;

use crate::config::sha;
use crate::model::client::geo::{GeoDatabase, GeoValue, MAX_DATABASE_BYTES};

/// A database of `[geo]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseFile<V> {
    pub(crate) name: String,
    pub(crate) database: Result<Arc<GeoDatabase<V>>, String>,
}

impl<V: GeoValue> DatabaseFile<V> {
    /// Reads the file unless `is_same` returns true for its name, and compiles it if its content
    /// is not that of `before`.
    pub(crate) fn read<B: Into<Vec<u8>>>(
        name: &str,
        before: Option<&Self>,
        is_same: &mut impl FnMut(&str) -> bool,
        read: &mut impl FnMut(&str, usize) -> Result<B, String>,
    ) -> Self {
        let is_same = is_same(name);
        if let Some(before) = before
            && before.database.is_ok()
            && before.name == name
            && is_same
        {
            return before.clone();
        }
        let before = before.and_then(|before| before.database.as_ref().ok());
        let database = bytes(name, MAX_DATABASE_BYTES, read).and_then(|bytes| {
            let sha = sha([&bytes]);
            match before.filter(|before| before.sha == sha) {
                Some(before) => Ok(Arc::clone(before)),
                None => GeoDatabase::compile(&bytes, sha).map(Arc::new),
            }
        });
        Self {
            name: name.to_owned(),
            database,
        }
    }
}

/// Returns the content of a file, or why there is none.
pub(super) fn bytes<B: Into<Vec<u8>>>(
    name: &str,
    most: usize,
    read: &mut impl FnMut(&str, usize) -> Result<B, String>,
) -> Result<Vec<u8>, String> {
    let bytes = read(name, most)?.into();
    if bytes.len() > most {
        return Err(format!("it is longer than {most} bytes"));
    }
    Ok(bytes)
}
