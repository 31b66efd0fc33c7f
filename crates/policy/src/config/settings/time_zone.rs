//! Time zone: reads `timezone`.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::config::{Findings, Table, codes, shown};

/// The time zone of calendar words.
#[derive(Clone, Debug)]
pub(in crate::config) enum ZoneSpec {
    /// Not stated.
    Unset,
    /// Stated, and refused: errors that depend on it are not reported.
    Refused,
    /// Stated, and known.
    Set(TimeZone),
}

/// Reads `timezone` from the database that is compiled in, so that a policy means the same on
/// every machine. The cost is that new rules come with a new release.
pub(in crate::config) fn zone(root: Table<'_>, out: &mut Findings<'_>) -> ZoneSpec {
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
    let names = names.iter().map(String::as_str);
    let other = "write a name of the IANA database, as in timezone = \"Europe/Oslo\" or \"UTC\"";
    let help = out.meant(name.value, names, "timezone = ", || other.to_owned());
    let message = format!("unknown time zone \"{}\"", shown(name.value));
    let label = "not in the IANA time zone database";
    out.error(codes::ZONE, name.at, message, label).help(help);
    ZoneSpec::Refused
}
