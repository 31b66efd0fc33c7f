//! Geo: the country and the network of a client, by a database or by a header.
//!
//! ```text
//!   address ---- country_db ----> NO ---- table ----> continent EU
//!           \--- asn_db --------> AS3320
//!   header of a trusted proxy --> NO                  instead of country_db
//!   none of them knows ---------> ZZ (or `unknown`), continent ZZ, AS0
//! ```
//!
//! A request has a value of each in any case, so a key by country never lacks one. Private and
//! loopback addresses are unknown, because public databases have none; one of your own may.

mod country;
mod database;

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

pub use country::Country;
use country::parse_continent;
pub(crate) use database::{GeoDatabase, GeoValue};

use smallvec::SmallVec;

use crate::http::octets::{only, trim};
use crate::{Field, ValueError};

/// Maximum size of a database. A service holds it while it compiles it, and then up to 1.3 times
/// the part that is the tree.
pub(crate) const MAX_DATABASE_BYTES: usize = 128 << 20;
/// Age from which a database is reported as old. `MaxMind` publishes new ones twice a week.
const OLD_AFTER_SECONDS: u64 = 30 * 86_400;

/// Number of an autonomous system: the network that announces an address.
///
/// ```
/// use ratekeeper_policy::Asn;
/// assert_eq!(Asn::parse("as3320").unwrap(), Asn(3320));
/// assert_eq!(Asn(15_169).to_string(), "AS15169");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asn(pub u32);

impl Asn {
    /// The number of an unknown network; no network has it (RFC 7607).
    pub const UNKNOWN: Self = Self(0);

    /// Reads `AS3320` or `3320`.
    ///
    /// # Errors
    /// If it is no number of 32 bits.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let digits = match text.get(..2) {
            Some(prefix) if prefix.eq_ignore_ascii_case("AS") => &text[2..],
            _ => text,
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| digits.parse().ok()).flatten();
        number.map(Self).ok_or_else(|| {
            ValueError::new(
                format!("`{text}` is not the number of a network"),
                "write \"AS3320\" or 3320, up to 4294967295; \"AS0\" for unknown",
            )
        })
    }

    pub(crate) fn text(self) -> AsnText {
        let mut text = AsnText::new();
        let _ = write!(text, "{self}"); // writing to memory cannot fail
        text
    }
}

/// `AS3320`; the longest has 12 bytes.
pub(crate) type AsnText = SmallVec<[u8; 12]>;

/// Returns a value of `country`, `continent` or `asn` as requests have it: in upper case.
///
/// # Errors
/// If there is no such country, continent or number.
pub(crate) fn normal_place(field: &Field, value: &str) -> Result<AsnText, ValueError> {
    Ok(match field {
        Field::Asn => Asn::parse(value)?.text(),
        Field::Continent => AsnText::from_slice(parse_continent(value)?.as_bytes()),
        _ => AsnText::from_slice(Country::parse(value)?.code().as_bytes()),
    })
}

/// Formats the number as `AS3320`.
impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS{}", self.0)
    }
}

/// `[geo]`: where the country and the network of a client come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Geo {
    pub(crate) countries: Option<NamedDatabase<Country>>,
    pub(crate) networks: Option<NamedDatabase<Asn>>,
    pub(crate) header: Option<String>,
    /// `None` for [`Country::UNKNOWN`].
    pub(crate) unknown: Option<Country>,
}

/// A database, and the name of its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedDatabase<V> {
    pub(crate) name: String,
    pub(crate) database: Arc<GeoDatabase<V>>,
}

impl<V> NamedDatabase<V> {
    fn file(&self, field: &'static str) -> GeoFile<'_> {
        GeoFile {
            field,
            name: &self.name,
            built_unix_seconds: self.database.built_unix_seconds,
        }
    }
}

/// The file of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeoFile<'a> {
    /// The field that names it: `country_db` or `asn_db`.
    pub field: &'static str,
    /// Its name, as the policy writes it.
    pub name: &'a str,
    /// Seconds since 1970 at which it was made.
    pub built_unix_seconds: u64,
}

impl GeoFile<'_> {
    /// Returns its age in whole days.
    pub const fn days_old(&self, unix_seconds: u64) -> u64 {
        unix_seconds.saturating_sub(self.built_unix_seconds) / 86_400
    }

    /// Returns true if it is more than 30 days old: networks have moved since.
    pub const fn is_old(&self, unix_seconds: u64) -> bool {
        unix_seconds.saturating_sub(self.built_unix_seconds) > OLD_AFTER_SECONDS
    }
}

impl Geo {
    /// Returns the country of an address by the database; that of unknown addresses if it has
    /// none.
    pub fn country(&self, ip: Option<IpAddr>) -> Country {
        let found = self.countries.as_ref().zip(ip);
        let found = found.and_then(|(countries, ip)| countries.database.find(ip));
        found.unwrap_or(self.unknown())
    }

    /// Returns the network of an address; [`Asn::UNKNOWN`] if no database has it.
    pub fn network(&self, ip: Option<IpAddr>) -> Asn {
        let found = self.networks.as_ref().zip(ip);
        let found = found.and_then(|(networks, ip)| networks.database.find(ip));
        found.unwrap_or(Asn::UNKNOWN)
    }

    /// Returns the country of unknown addresses.
    pub fn unknown(&self) -> Country {
        self.unknown.unwrap_or(Country::UNKNOWN)
    }

    /// Returns the header that states the country, in lower case.
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Returns the country that the headers of a trusted proxy state. `None` if no header does:
    /// it is missing, comes twice, or holds something else.
    pub fn stated(&self, headers: &[(&str, &[u8])]) -> Option<Country> {
        let wanted = self.header.as_deref()?;
        let is_wanted = |(name, _): &&(&str, _)| name.eq_ignore_ascii_case(wanted);
        let (_, value) = only(headers.iter().filter(is_wanted))?;
        let code: [u8; 2] = trim(value).try_into().ok()?;
        Country::assigned(&code.map(|byte| byte.to_ascii_uppercase()))
    }

    /// Returns the files of its databases.
    pub fn files(&self) -> impl Iterator<Item = GeoFile<'_>> {
        let countries = self.countries.as_ref();
        let countries = countries.map(|named| named.file("country_db"));
        let networks = self.networks.as_ref();
        let networks = networks.map(|named| named.file("asn_db"));
        countries.into_iter().chain(networks)
    }
}

#[cfg(test)]
pub(crate) mod tests;
