//! Octets: parts of the bytes of a field.

/// Splits at the first separator.
pub(crate) fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Returns the only item; `None` for none, and for several.
pub(crate) fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

/// Removes spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the values of all headers of that name, trimmed; empty ones are left out.
pub(crate) fn values_of<'a>(
    headers: &'a [(&'a str, &'a [u8])],
    name: &str,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .iter()
        .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, value)| trim(value))
        .filter(|value| !value.is_empty())
}

/// Returns true for a character that some applications remove at the ends of a value: white space,
/// control characters, and some that take no space.
pub(crate) fn is_blank(letter: char) -> bool {
    let takes_none = matches!(letter, '\u{200b}' | '\u{200e}' | '\u{feff}');
    letter.is_whitespace() || letter.is_control() || takes_none
}
