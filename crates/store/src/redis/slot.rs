//! Slot: which part of a cluster a key belongs to.
//!
//! ```text
//!   rk:{ada}:per-user   -->  CRC-16 of "ada"  mod 16,384      between the first { and the
//!   rk:ada              -->  CRC-16 of it all mod 16,384      first } after it, if not empty
//! ```
//!
//! Source: Redis cluster specification, "hash tags"; CRC-16/XMODEM.

/// Number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key.
pub(super) fn slot_of(name: &[u8]) -> u16 {
    crc16(tag_of(name)) % SLOTS
}

fn tag_of(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|&byte| byte == b'{') else {
        return name;
    };
    let rest = &name[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(close) if close > 0 => &rest[..close],
        _ => name,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fall_where_the_specification_says() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (name, tag) in [
            (&b"{user1000}.following"[..], &b"user1000"[..]),
            (b"foo{}{bar}", b"foo{}{bar}"),
            (b"foo{{bar}}zap", b"{bar"),
            (b"foo{bar}{zap}", b"bar"),
            (b"rk", b"rk"),
            (b"rk:{open", b"rk:{open"),
        ] {
            assert_eq!(tag_of(name), tag);
        }
    }
}
