//! Version: whether the server can hold limits.
//!
//! Counters are written with a time of expiry (`SET .. PXAT`), which Redis has since 6.2.

use std::fmt;

use ratekeeper_store::ServerInfo;

use super::Judgement;

/// The oldest Redis that can decide, and the oldest Valkey that is tested.
const OLDEST_REDIS: Version = Version([6, 2, 0]);
const OLDEST_VALKEY: Version = Version([7, 2, 0]);

/// Other products that report a version of Redis, with the field that identifies them.
const OTHERS: [(&str, &str); 2] = [
    ("dragonfly", "dragonfly_version"),
    ("garnet", "garnet_version"),
];

/// A version such as `7.0.15`; a part that is not a number counts as 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version([u32; 3]);

impl Version {
    fn read(text: &str) -> Option<Self> {
        let mut version = [0; 3];
        let parts = text.split('.').map(|part| {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            part[..digits].parse().ok()
        });
        for (index, (place, part)) in version.iter_mut().zip(parts).enumerate() {
            match part {
                Some(number) => *place = number,
                None if index == 0 => return None,
                None => break,
            }
        }
        Some(Self(version))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, _] = self.0;
        write!(f, "{major}.{minor}")
    }
}

/// Returns the name of the product, and its version as it is written.
pub(super) fn product(info: &ServerInfo) -> Option<(&'static str, &str)> {
    for (name, field) in OTHERS {
        if let Some(version) = info.text(field) {
            return Some((name, version));
        }
    }
    if let Some(version) = info.text("valkey_version") {
        return Some(("valkey", version));
    }
    let version = info.text("redis_version")?;
    // The first Valkey reports its own version in Redis's field.
    let valkey = info.text("server_name") == Some("valkey");
    Some((if valkey { "valkey" } else { "redis" }, version))
}

pub(super) fn judge(info: &ServerInfo) -> Judgement {
    const UPGRADE: &str = "run Redis 6.2 or newer, or Valkey 7.2 or newer";
    const TRY: &str =
        "run `ratekeeper doctor --conformance URL` to see whether it decides as Redis does";
    let Some((name, text)) = product(info) else {
        return Judgement::warning("the server does not report its product", TRY);
    };
    let oldest = match name {
        "redis" => OLDEST_REDIS,
        "valkey" => OLDEST_VALKEY,
        other => {
            let message = format!("{other} {text} is neither Redis nor Valkey");
            return Judgement::warning(message, TRY);
        }
    };
    match Version::read(text) {
        Some(version) if version >= oldest => Judgement::ok(format!("{name} {text}")),
        Some(_) => {
            let message = format!("{name} {text} is older than {oldest}, and cannot hold limits");
            Judgement::failure(message, UPGRADE)
        }
        None => Judgement::warning(format!("{name} reports an unknown version, `{text}`"), TRY),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade::{self, Failure, Ok, Warning};
    use super::*;

    #[test]
    fn versions_are_distinguished() {
        let rows: [(&str, Grade, &str); 13] = [
            ("redis_version:7.0.15", Ok, "redis 7.0.15"),
            ("redis_version:6.2.0", Ok, "redis 6.2.0"),
            ("redis_version:8.4-rc1", Ok, "redis 8.4-rc1"),
            ("redis_version:255.255.255", Ok, "redis 255.255.255"),
            ("redis_version:6.0.16", Failure, "older than 6.2"),
            ("redis_version:5", Failure, "older than 6.2"),
            ("redis_version:4.0.9", Failure, "redis 4.0.9 is older"),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1",
                Ok,
                "valkey 8.0.1",
            ),
            (
                "redis_version:7.2.5\nserver_name:valkey",
                Ok,
                "valkey 7.2.5",
            ),
            (
                "redis_version:7.2.4\nvalkey_version:7.0.0",
                Failure,
                "older than 7.2",
            ),
            (
                "redis_version:7.4.0\ndragonfly_version:df-v1.30",
                Warning,
                "neither Redis nor Valkey",
            ),
            ("redis_version:latest", Warning, "`latest`"),
            ("", Warning, "does not report"),
        ];
        for (info, grade, words) in rows {
            let judged = judge(&ServerInfo::read(info));
            assert_eq!(judged.grade, grade, "{info}");
            assert!(judged.message.contains(words), "{info}: {}", judged.message);
            assert_eq!(judged.hint.is_some(), grade != Ok, "{info}");
        }
    }
}
