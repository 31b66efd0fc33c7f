//! Time zone: reads `timezone`, and knows the abbreviations that people write in its place.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::codes;
use super::diagnostic::{Findings, shown};
use super::read::Table;
use super::shape::NameHint;

/// Abbreviations that are no zones, because their hours depend on the country or the season, and
/// a zone with them.
const ABBREVIATIONS: &[NameHint] = &[
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("MDT", "America/Denver"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("BST", "Europe/London"),
    ("IST", "Asia/Kolkata"),
    ("CEST", "Europe/Berlin"),
    ("EEST", "Europe/Helsinki"),
    ("MSK", "Europe/Moscow"),
    ("JST", "Asia/Tokyo"),
    ("SGT", "Asia/Singapore"),
    ("AEST", "Australia/Sydney"),
    ("Z", "UTC"),
    ("+00:00", "UTC"),
];

/// The time zone of calendar words.
#[derive(Clone, Debug)]
pub(super) enum ZoneSpec {
    /// Not stated.
    Unset,
    /// Stated, and refused: errors that depend on it are not reported.
    Refused,
    /// Stated, and known.
    Set(TimeZone),
}

/// Reads `timezone` from the database that is compiled in, so that a policy means the same on
/// every machine. The cost is that new rules come with a new release.
pub(super) fn zone(root: Table<'_>, out: &mut Findings<'_>) -> ZoneSpec {
    let Some(name) = root.text("timezone") else {
        return if root.has("timezone") {
            ZoneSpec::Refused
        } else {
            ZoneSpec::Unset
        };
    };
    let zones = TimeZoneDatabase::bundled();
    if let Ok(zone) = zones.get(name.value) {
        return ZoneSpec::Set(zone);
    }
    let names: Vec<_> = zones.available().map(|zone| zone.to_string()).collect();
    let short = name.value.trim().to_ascii_uppercase();
    let short = ABBREVIATIONS.iter().find(|(known, _)| *known == short);
    let near = || out.nearest(name.value, names.iter().map(String::as_str));
    let help = match (short, near()) {
        (Some((_, zone)), _) => format!("write for example timezone = \"{zone}\""),
        (None, Some(near)) => format!("did you mean timezone = \"{near}\"?"),
        (None, None) => {
            "write a name of the IANA database, as in timezone = \"Europe/Oslo\" or \"UTC\"".into()
        }
    };
    let message = format!("unknown time zone \"{}\"", shown(name.value));
    out.error(
        codes::ZONE,
        name.at,
        message,
        "not in the IANA time zone database",
    )
    .help(help);
    ZoneSpec::Refused
}
