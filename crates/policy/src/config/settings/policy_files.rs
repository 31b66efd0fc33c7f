//! Policy files: the files beside a policy that it names.
//!
//! ```text
//!   ip = "file:blocked.txt"       see `value_list`
//!   overrides = "overrides.csv"   see `overrides_file`
//!   error_pages = { 502 = "502.html" }   see `gateway`
//!   upstream_tls = { ca = "ca.pem" }     likewise; read so that a change is a reload
//!   [jwt] keys = "file:keys.pem"  see `jwt`
//!   [geo] country_db = "c.mmdb"   see `geo`; compiled, and not kept
//! ```
//!
//! This crate reads no file: the caller does, and hands the bytes over.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::database_file::{DatabaseFile, bytes};
use crate::config::fields::{ERRORS, POLICY};
use crate::config::{Findings, MAX_BYTES, Table, shown, syntax};
#[cfg(test)]
use crate::model::client::geo::GeoDatabase;
use crate::{Asn, Country};

/// Maximum size of a list in bytes: room for 100,000 blocks of IPv6.
pub const MAX_LIST_BYTES: usize = 4 << 20;
/// Maximum size of a file with keys of tokens, or with authorities, in bytes.
const MAX_KEYS_BYTES: usize = 1 << 20;
/// Maximum length of an error page, that of the body of a refusal: each client that does not read
/// keeps one.
const MAX_PAGE_BYTES: usize = 64 << 10;
/// Maximum number of lists that one policy names.
const MAX_LISTS: usize = 32;

/// The files that a policy names, each with its text, or the reason why it could not be read: the
/// lists of values (`"file:NAME"`), the overrides (`overrides = "NAME"`), the keys of tokens (`keys`
/// of `[jwt]`), error pages and authorities (`ca`) of the gateway, and the databases of `[geo]`,
/// which are compiled.
///
/// ```
/// use ratekeeper_core::Time;
/// use ratekeeper_policy::Facts;
/// use ratekeeper_policy::config::{Context, PolicyFiles, parse_file};
///
/// let text = r#"
/// version = 1
/// [[limit]]
/// name  = "blocked"
/// key   = ["ip"]
/// match = { ip = "file:blocked.txt" }
/// limit = "1/1m"
/// "#;
/// let files = PolicyFiles::read(text, |name, _most| match name {
///     "blocked.txt" => Ok("192.0.2.0/24 # scrapers\n".to_owned()),
///     _ => Err("no such file".to_owned()),
/// });
/// let policy = parse_file(text, &files, Context::default(), Time::ZERO).unwrap().policy;
/// let from = |ip: &str| Facts { ip: ip.parse().ok(), ..Facts::default() };
/// assert!(policy.rules[0].applies_to(&from("192.0.2.7")));
/// assert!(!policy.rules[0].applies_to(&from("198.51.100.7")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFiles {
    texts: BTreeMap<String, PolicyFile>,
    /// Name of the file of overrides.
    overrides: Option<String>,
    pub(super) countries: Option<DatabaseFile<Country>>,
    pub(super) networks: Option<DatabaseFile<Asn>>,
}

/// A value that names a list: `"file:NAME"`, or `"!file:NAME"`, which negates all of its values.
#[derive(Clone, Copy)]
pub(crate) struct ListName<'a> {
    pub(crate) negated: bool,
    pub(crate) name: &'a str,
}

impl<'a> ListName<'a> {
    /// Returns the list that a value names.
    pub(crate) fn of(value: &'a str) -> Option<Self> {
        let rest = value.strip_prefix('!');
        let name = rest.unwrap_or(value).strip_prefix("file:")?;
        let negated = rest.is_some();
        Some(Self { negated, name })
    }
}

/// Returns the name of a database that both have, if their contents differ.
fn differing<'a, V>(
    one: Option<&'a DatabaseFile<V>>,
    other: Option<&DatabaseFile<V>>,
) -> Option<&'a str> {
    let (one, other) = (one?, other?);
    let differ = one.name == other.name && one.database != other.database;
    differ.then_some(&*one.name)
}

#[derive(Clone, PartialEq, Eq)]
struct PolicyFile {
    /// Maximum size in bytes.
    most: usize,
    text: Result<Arc<str>, String>,
}

/// Leaves out the text, which may be a shared secret.
impl fmt::Debug for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.text.as_ref().map(|text| text.len());
        f.debug_tuple("PolicyFile").field(&bytes).finish()
    }
}

impl PolicyFile {
    /// Calls `read` with the name, as written, and the maximum size.
    fn read<B: Into<Vec<u8>>>(
        name: &str,
        most: usize,
        read: &mut impl FnMut(&str, usize) -> Result<B, String>,
    ) -> Self {
        let text = bytes(name, most, read).and_then(|bytes| {
            let text = String::from_utf8(bytes);
            text.map(Into::into)
                .map_err(|_| "it is not text in UTF-8".to_owned())
        });
        Self { most, text }
    }
}

impl PolicyFiles {
    /// Calls `read` with the name of each file in `text`, as written, and its maximum size in
    /// bytes: a longer file is refused, so one byte more is enough. Keeps the text that it returns,
    /// or its reason why there is none. At most 32 lists of 4 MiB are kept, overrides of 16 MiB, keys
    /// and authorities of 1 MiB, error pages of 64 KiB, and two databases, which may have 128 MiB
    /// each and are compiled.
    pub fn read<B: Into<Vec<u8>>>(
        text: &str,
        read: impl FnMut(&str, usize) -> Result<B, String>,
    ) -> Self {
        Self::default().read_changed(text, |_| false, read)
    }

    /// Returns the names of the files of both that have other contents in `other`.
    pub fn that_differ<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let both = self.texts.iter().filter(|(name, text)| {
            let other = other.texts.get(*name);
            other.is_some_and(|other| other != *text)
        });
        let texts = both.map(|(name, _)| &**name);
        texts
            .chain(differing(self.countries.as_ref(), other.countries.as_ref()))
            .chain(differing(self.networks.as_ref(), other.networks.as_ref()))
    }

    /// Reads the files of a changed text, as [`read`](Self::read) does. A database that these files
    /// have is not read if `is_same` returns true for its name, and is compiled only if its content
    /// has changed. `is_same` is called before a database is read.
    #[must_use]
    pub fn read_changed<B: Into<Vec<u8>>>(
        &self,
        text: &str,
        is_same: impl FnMut(&str) -> bool,
        read: impl FnMut(&str, usize) -> Result<B, String>,
    ) -> Self {
        let words = ["file:", "overrides", "_db", "error_pages", "upstream_tls"];
        if !words.iter().any(|word| text.contains(word)) {
            return Self::default(); // most policies: not parsed twice
        }
        // Errors of the text are reported when it is parsed.
        let findings = Findings::new(text);
        let Some(document) = syntax::document(text, &findings) else {
            return Self::default();
        };
        let root = Table::root(document.get_ref(), &POLICY, &findings);
        let mut texts = BTreeMap::new();
        each_value(document.get_ref(), |value| {
            if let Some(list) = ListName::of(value)
                && texts.len() < MAX_LISTS
            {
                texts.insert(list.name.to_owned(), MAX_LIST_BYTES);
            }
        });
        let overrides: Option<String> = root.owned("overrides");
        texts.extend(overrides.clone().map(|name| (name, MAX_BYTES)));
        texts.extend(error_pages(root).map(|name| (name.to_owned(), MAX_PAGE_BYTES)));
        let keys = keys_file(root).into_iter().chain(authorities(root));
        texts.extend(keys.map(|name| (name.to_owned(), MAX_KEYS_BYTES)));
        let geo = |field| root.table("geo")?.owned(field);
        let databases = ["country_db", "asn_db"].map(geo);
        self.fetched(texts, overrides, databases, is_same, read)
    }

    /// Reads the same files again, for a text that has not changed; see
    /// [`read_changed`](Self::read_changed).
    #[must_use]
    pub fn read_again<B: Into<Vec<u8>>>(
        &self,
        is_same: impl FnMut(&str) -> bool,
        read: impl FnMut(&str, usize) -> Result<B, String>,
    ) -> Self {
        let texts = self.texts.iter();
        let texts = texts.map(|(name, file)| (name.clone(), file.most));
        let countries = self.countries.as_ref().map(|file| &*file.name);
        let networks = self.networks.as_ref().map(|file| &*file.name);
        let (overrides, databases) = (self.overrides.clone(), [countries, networks]);
        self.fetched(texts.collect(), overrides, databases, is_same, read)
    }

    /// Reads texts, each with its maximum size, and the databases of countries and of networks.
    fn fetched<B: Into<Vec<u8>>>(
        &self,
        texts: BTreeMap<String, usize>,
        overrides: Option<String>,
        databases: [Option<&str>; 2],
        mut is_same: impl FnMut(&str) -> bool,
        mut read: impl FnMut(&str, usize) -> Result<B, String>,
    ) -> Self {
        let texts = texts.into_iter().map(|(name, most)| {
            let file = PolicyFile::read(&name, most, &mut read);
            (name, file)
        });
        let texts = texts.collect();
        let [countries, networks] = databases;
        let (before, again) = (self.countries.as_ref(), self.networks.as_ref());
        Self {
            texts,
            overrides,
            countries: countries
                .map(|name| DatabaseFile::read(name, before, &mut is_same, &mut read)),
            networks: networks.map(|name| DatabaseFile::read(name, again, &mut is_same, &mut read)),
        }
    }

    /// Returns the name of the file of overrides, as the policy writes it, and its text, or the
    /// reason why it could not be read; `None` if the policy names none.
    pub fn overrides(&self) -> Option<(&str, Result<&str, &str>)> {
        let name = self.overrides.as_deref()?;
        Some((name, self.text(name)))
    }

    /// Returns the same files, with another text of the file of overrides, if there is one.
    #[must_use]
    pub fn with_overrides(mut self, text: String) -> Self {
        let name = self.overrides.as_ref();
        if let Some(file) = name.and_then(|name| self.texts.get_mut(name)) {
            file.text = if text.len() > file.most {
                Err(format!("it is longer than {} bytes", file.most))
            } else {
                Ok(text.into())
            };
        }
        self
    }

    /// Returns the names of the files, as the policy writes them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let countries = self.countries.as_ref().map(|file| &*file.name);
        let networks = self.networks.as_ref().map(|file| &*file.name);
        let texts = self.texts.keys().map(String::as_str);
        texts.chain(countries).chain(networks)
    }

    #[cfg(test)]
    pub(crate) fn country_database(&self) -> Option<Arc<GeoDatabase<Country>>> {
        self.countries.as_ref()?.database.clone().ok()
    }

    /// Returns the text of a file, or the reason why there is none.
    pub(crate) fn text(&self, name: &str) -> Result<&str, &str> {
        match self.texts.get(name) {
            Some(file) => file.text.as_deref().map_err(String::as_str),
            None => Err("it is not read with this policy"),
        }
    }

    /// Returns the texts that could be read, each after its name; the hashes of databases.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let read = self.texts.iter().filter_map(|(name, file)| {
            let text: &str = file.text.as_ref().ok()?;
            Some([name.as_str(), text])
        });
        let countries = self.countries.iter().flat_map(|file| &file.database);
        let networks = self.networks.iter().flat_map(|file| &file.database);
        let databases = countries.map(|database| &*database.sha);
        let databases = databases.chain(networks.map(|database| &*database.sha));
        read.flatten().chain(databases)
    }

    /// Returns the text of a list, or the reason why there is none and what to write instead.
    pub(crate) fn list(&self, name: &str) -> Result<&str, (String, &'static str)> {
        let file = self.texts.get(name).map(|file| file.text.as_deref());
        let name = shown(name);
        Err(match file {
            Some(Ok(text)) => return Ok(text),
            Some(Err(reason)) => (
                format!("cannot read the list `{name}`: {reason}"),
                "write the path of a file with one value a line, relative to the policy file",
            ),
            None if self.texts.len() >= MAX_LISTS => (
                format!("the policy names more than {MAX_LISTS} lists"),
                "put the values of several lists into one",
            ),
            None => (
                format!("the list `{name}` is not read with this policy"),
                "open the policy as a file, or write the values into it: [\"one\", \"two\"]",
            ),
        })
    }
}

/// Returns the names of the error pages.
fn error_pages(root: Table<'_>) -> impl Iterator<Item = &str> {
    let listen = root.table("listen");
    let pages = listen.and_then(|listen| listen.table("proxy")?.names("error_pages"));
    let pages = pages.into_iter().flatten();
    let names = pages.filter_map(|(_, page)| page.text());
    names.map(|name| name.value).take(ERRORS.len())
}

/// Returns the name of the file with the authorities of upstreams.
fn authorities(root: Table<'_>) -> Option<&str> {
    let tls = root
        .table("listen")?
        .table("proxy")?
        .table("upstream_tls")?;
    tls.text("ca").map(|ca| ca.value)
}

/// Returns the name of the file with the keys.
fn keys_file(root: Table<'_>) -> Option<&str> {
    let table = root.table("jwt")?;
    table.text("keys")?.value.strip_prefix("file:")
}

/// Calls `visit` with each text in a `match`, or in the prices of a `cost`, wherever they stand.
fn each_value(root: &DeTable<'_>, mut visit: impl FnMut(&str)) {
    let mut tables = VecDeque::from([(root, false)]);
    while let Some((table, is_matched)) = tables.pop_front() {
        for (name, node) in table {
            let is_matched = is_matched || matches!(&**name.get_ref(), "match" | "cost");
            let values = match node.get_ref() {
                DeValue::Array(values) => &values[..],
                _ => std::slice::from_ref(node),
            };
            for value in values {
                match value.get_ref() {
                    DeValue::Table(inner) => tables.push_back((inner, is_matched)),
                    DeValue::String(text) if is_matched => visit(text),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_wherever_a_match_stands() {
        for text in [
            "[[limit]]\nmatch = { header.a = \"file:a\" }",
            "[[limit]]\npriority = { match = { path = \"!file:a\" } }",
            "[[limit]]\ncost = [{ path = \"file:a\", is = 2 }]",
            "[[limit]]\ncost = { reserve = [{ path = \"file:a\", is = 2 }] }",
            "[[exempt]]\nmatch = { ip = [\"file:a\"] }",
            "[[listen.proxy.route]]\nmatch = { host = \"file:a\" }",
            "[listen.proxy]\nadaptive_concurrency.priority.match = { header.a = \"file:a\" }",
            "[[listen.proxy.route]]\nadaptive_concurrency.priority.match = { ip = \"file:a\" }",
        ] {
            let files = PolicyFiles::read(text, |_, _| Ok(String::new()));
            assert_eq!(files.names().collect::<Vec<_>>(), ["a"], "{text}");
        }
    }

    #[test]
    fn each_list_is_read_once_and_only_so_many() {
        let names = (0..40)
            .map(|n| format!("\"file:{n}\", \"!file:{n}\""))
            .collect::<Vec<_>>();
        let text = format!("[[exempt]]\nmatch = {{ attr.a = [{}] }}", names.join(", "));
        let mut read = 0;
        PolicyFiles::read(&text, |_, _| {
            read += 1;
            Ok(String::new())
        });
        assert_eq!(read, MAX_LISTS);
        let none = |name: &str, _| -> Result<String, String> { panic!("{name} is no list") };
        PolicyFiles::read("password = \"file:secret\"", none);
    }
}
