//! Descriptor: a list of entries, as the rate limit protocol of Envoy asks about it.
//!
//! ```text
//!   domain `edge`   plan=pro   user=ada            one descriptor, two entries
//!                   |          |
//!      match = { domain = "edge", descriptor.plan = "pro" }
//!      key   = ["descriptor:user"]                 its limit names both of them
//! ```
//!
//! A limit is for descriptors that have exactly the entries it names, in its `match` or in its
//! `key`, in any order: a client that sends `user` and also `user, path` means two things, and
//! gives each a limit. A limit that names a domain and no entry is for all descriptors of that
//! domain.
//!
//! The second entry of one key goes by the name `key#2`, the third by `key#3`.

use std::fmt;

use ratekeeper_core::{Error, Nanos, Permits, Quota};

/// Maximum number of entries of a descriptor that limits can name; one with more has only the
/// limits of its domain.
pub(crate) const MAX_ENTRIES: usize = 64;

/// One descriptor of a call.
///
/// ```
/// use ratekeeper_policy::Descriptor;
/// let descriptor = Descriptor {
///     domain: "edge",
///     entries: &[("user", "ada"), ("generic_key", "a"), ("generic_key", "b")],
///     instead: None,
/// };
/// assert_eq!(descriptor.value("user"), Some("ada"));
/// assert_eq!(descriptor.value("generic_key#2"), Some("b"));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor<'a> {
    /// Domain with the limits that apply.
    pub domain: &'a str,
    /// Keys and values, in the order received.
    pub entries: &'a [(&'a str, &'a str)],
    /// Numbers from the caller, which replace those of every limit that applies.
    pub instead: Option<Numbers>,
}

impl<'a> Descriptor<'a> {
    /// Returns the value of an entry, by its name: `user`, `generic_key#2`. It may be empty.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        let (key, number) = split(name);
        self.nth(key, number)
    }

    fn nth(&self, key: &str, number: usize) -> Option<&'a str> {
        let mut named = self.entries.iter().filter(|(k, _)| *k == key);
        named.nth(number - 1).map(|(_, value)| *value)
    }
}

/// Name of an entry in a limit: `user`; `generic_key#2` for the second of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryName {
    key: Box<str>,
    number: usize,
}

impl EntryName {
    /// Reads a name: the text before `#2`, `#3`, ... is the key.
    pub fn new(name: &str) -> Self {
        let (key, number) = split(name);
        Self {
            key: key.into(),
            number,
        }
    }

    /// Returns the key of the entry.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the position among the entries of that key, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns its value in a descriptor.
    #[inline]
    pub(crate) fn of<'a>(&self, descriptor: &Descriptor<'a>) -> Option<&'a str> {
        descriptor.nth(&self.key, self.number)
    }
}

/// Formats the name as written: `generic_key#2`.
impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            1 => f.write_str(&self.key),
            number => write!(f, "{}#{number}", self.key),
        }
    }
}

/// `generic_key#2` is the second `generic_key`; `a#x`, `a#1` and `a#02` are keys themselves.
fn split(name: &str) -> (&str, usize) {
    let numbered = name.rsplit_once('#').and_then(|(key, number)| {
        let digits = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        let number = number.parse().ok().filter(|number| *number >= 2)?;
        (digits && !key.is_empty()).then_some((key, number))
    });
    numbered.unwrap_or((name, 1))
}

/// Permits and span from the caller, which replace those of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numbers {
    permits: Permits,
    per: Nanos,
}

impl Numbers {
    /// Creates the numbers `permits` in every `per`; zero permits refuse every request.
    ///
    /// # Errors
    /// [`Error::NoSpan`] for an empty span, [`Error::WindowTooLong`] for one of more than 73
    /// years.
    pub fn new(permits: Permits, per: Nanos) -> Result<Self, Error> {
        let quota = Quota::new(permits.max(Permits::ONE), per)?;
        ratekeeper_core::Window::fixed(quota, Nanos::ZERO)?;
        Ok(Self { permits, per })
    }

    /// Zero permits in every `per`, at most 73 years.
    pub(crate) const fn none(per: Nanos) -> Self {
        Self {
            permits: Permits::ZERO,
            per,
        }
    }

    /// Returns the permits.
    pub fn permits(self) -> Permits {
        self.permits
    }

    /// Returns the span.
    pub fn per(self) -> Nanos {
        self.per
    }

    /// Returns the quota; `None` if there are no permits.
    pub fn quota(self) -> Option<Quota> {
        Quota::new(self.permits, self.per).ok()
    }
}

/// Formats the numbers as in a policy: `10/1m`.
impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.permits, self.per)
    }
}
