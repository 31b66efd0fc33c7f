//! Version: whether the server can hold limits.
//!
//! Counters are written with a time of expiry (`SET .. PXAT`), which Redis has since 6.2.

use ratekeeper_store::ServerInfo;

use super::Judgement;

/// The oldest Redis that can decide, and the oldest Valkey that is tested.
const OLDEST_REDIS: [u32; 2] = [6, 2];
const OLDEST_VALKEY: [u32; 2] = [7, 2];

/// Other products that report a version of Redis, with the field that identifies them.
const OTHERS: [(&str, &str); 3] = [
    ("dragonfly", "dragonfly_version"),
    ("garnet", "garnet_version"),
    ("valkey", "valkey_version"),
];

/// Returns the name of the product, and its version as it is written.
pub(super) fn product(info: &ServerInfo) -> Option<(&'static str, &str)> {
    for (name, field) in OTHERS {
        if let Some(version) = info.text(field) {
            return Some((name, version));
        }
    }
    let version = info.text("redis_version")?;
    // The first Valkey reports its own version in Redis's field.
    let valkey = info.text("server_name") == Some("valkey");
    Some((if valkey { "valkey" } else { "redis" }, version))
}

pub(super) fn judge(info: &ServerInfo) -> Judgement {
    const TRY: &str = "run Redis or Valkey: another server may decide differently";
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
    match read(text) {
        Some(version) if version >= oldest => Judgement::ok(format!("{name} {text}")),
        Some(_) => {
            let [major, minor] = oldest;
            Judgement::failure(
                format!("{name} {text} is older than {major}.{minor}, and cannot hold limits"),
                "run Redis 6.2 or newer, or Valkey 7.2 or newer",
            )
        }
        None => Judgement::warning(format!("{name} reports an unknown version, `{text}`"), TRY),
    }
}

/// Returns the first two numbers of a version such as `7.0.15`; a part that is no number is 0.
fn read(text: &str) -> Option<[u32; 2]> {
    let mut parts = text.split('.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        part[..end.unwrap_or(part.len())].parse().ok()
    });
    Some([parts.next()??, parts.next().flatten().unwrap_or(0)])
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
