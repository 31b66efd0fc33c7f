//! Escapes: `\xC3`, `\"`, `\\` and `\t`, by which nginx and Apache write bytes of a request.

use std::borrow::Cow;

/// Returns the text as the client sent it. A byte that is no UTF-8 becomes a replacement character.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.split_once('\\') else {
        return text.into();
    };
    let mut bytes = before.as_bytes().to_vec();
    let mut parts = rest.split('\\');
    while let Some(part) = parts.next() {
        let hex = part.strip_prefix('x').and_then(|digits| digits.get(..2));
        let (byte, length) = match (part.as_bytes().first(), hex) {
            (_, Some(digits)) => (u8::from_str_radix(digits, 16).ok(), 3),
            (Some(b'"'), _) => (Some(b'"'), 1),
            (Some(b't'), _) => (Some(b'\t'), 1),
            (Some(b'n'), _) => (Some(b'\n'), 1),
            (Some(b'r'), _) => (Some(b'\r'), 1),
            // The part behind the second backslash is plain text.
            (None, _) => {
                bytes.push(b'\\');
                bytes.extend(parts.next().unwrap_or_default().as_bytes());
                continue;
            }
            _ => (None, 0),
        };
        bytes.push(byte.unwrap_or(b'\\'));
        bytes.extend(&part.as_bytes()[byte.map_or(0, |_| length)..]);
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_once() {
        for (text, expected) in [
            ("plain", "plain"),
            (r"caf\xC3\xA9", "caf\u{e9}"),
            (r"\x5C\x22x", "\\\"x"),
            (r#"a \" \\ \\x41 \t"#, "a \" \\ \\x41 \t"),
            (r"\\\x41\\", r"\A\"),
            (r"\xZZ \q \x4", r"\xZZ \q \x4"),
            (r"\", r"\"),
            ("\\x\u{e9}", "\\x\u{e9}"),
            (r"\xff", "\u{fffd}"),
        ] {
            assert_eq!(unescaped(text), expected, "{text}");
        }
    }
}
