//! Look-alikes: characters that look like ASCII, and compare as something else.
//!
//! ```text
//!   n[U+0430]me    Cyrillic a        5[U+2044]1m    a fraction slash
//!   [U+FF15]/1m    a full-width 5    09:00[U+2013]17:00    an en dash
//! ```
//!
//! A reader cannot see the difference, so findings name the code point. The Unicode Consortium's
//! confusables (UTS 39) have thousands; these are the ones that keyboards, word processors and web
//! pages put into a policy.

use std::ops::Range;

/// Cyrillic and Greek letters, and the ASCII letters that they look like.
const LETTERS: [(char, char); 22] = [
    ('\u{430}', 'a'),
    ('\u{435}', 'e'),
    ('\u{43e}', 'o'),
    ('\u{440}', 'p'),
    ('\u{441}', 'c'),
    ('\u{443}', 'y'),
    ('\u{445}', 'x'),
    ('\u{455}', 's'),
    ('\u{456}', 'i'),
    ('\u{458}', 'j'),
    ('\u{410}', 'A'),
    ('\u{412}', 'B'),
    ('\u{415}', 'E'),
    ('\u{41a}', 'K'),
    ('\u{41c}', 'M'),
    ('\u{41d}', 'H'),
    ('\u{41e}', 'O'),
    ('\u{420}', 'P'),
    ('\u{421}', 'C'),
    ('\u{422}', 'T'),
    ('\u{3bf}', 'o'),
    ('\u{3bd}', 'v'),
];

/// Returns the ASCII character that `c` looks like; a character without width looks like none,
/// which is `'\0'`.
fn ascii(c: char) -> Option<char> {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0),
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => Some(' '),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        '\u{2044}' | '\u{2215}' => Some('/'),
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => {
            Some('\0')
        }
        _ => {
            let letter = LETTERS.iter().find(|(letter, _)| *letter == c);
            letter.map(|(_, ascii)| *ascii)
        }
    }
}

/// Returns the text in the ASCII characters that it looks like; `None` if it has no look-alikes,
/// or other characters beyond ASCII as well: then it is a text in another language.
pub(super) fn in_ascii(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let each = text
        .chars()
        .map(|c| if c.is_ascii() { Some(c) } else { ascii(c) });
    let all: String = each.collect::<Option<_>>()?;
    Some(all.replace('\0', ""))
}

/// Returns the first look-alike of `text` within `at` that stands beside an ASCII letter or digit.
pub(super) fn look_alike(text: &str, at: &Range<usize>) -> Option<char> {
    let part = text.get(at.clone()).filter(|part| !part.is_ascii())?;
    let beside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    part.char_indices().find_map(|(index, c)| {
        let index = at.start + index;
        let is_odd = !c.is_ascii() && ascii(c).is_some();
        let near = is_odd
            && (beside(text[..index].chars().next_back())
                || beside(text[index + c.len_utf8()..].chars().next()));
        near.then_some(c)
    })
}

/// Returns the first look-alike in a word that has ASCII letters as well, and nothing else that is
/// not ASCII: `l[U+043E]gin`, but no word of another language.
pub(super) fn odd_letter(text: &str) -> Option<char> {
    let in_word = |c: char| c.is_alphanumeric() || ascii(c) == Some('\0');
    let mut words = text.split(|c| !in_word(c));
    let odd = words.find(|word| {
        let has_letters = word.chars().any(|c| c.is_ascii_alphabetic());
        has_letters && in_ascii(word).is_some()
    });
    odd.and_then(|word| word.chars().find(|c| !c.is_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_become_ascii_and_other_languages_do_not() {
        for (text, expected) in [
            ("n\u{430}me", Some("name")),
            ("5\u{2044}1m", Some("5/1m")),
            ("\u{ff15}/1m", Some("5/1m")),
            ("09:00\u{2013}17:00", Some("09:00-17:00")),
            ("i\u{200b}p", Some("ip")),
            ("name", None),
            ("/caf\u{e9}", None),
            ("/\u{43f}\u{440}\u{438}\u{432}\u{435}\u{442}", None),
        ] {
            assert_eq!(in_ascii(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_look_alike_is_found_beside_ascii_alone() {
        let found = |text: &str| look_alike(text, &(0..text.len()));
        assert_eq!(found("i\u{440}"), Some('\u{440}'));
        assert_eq!(found("/\u{43e}\u{440}\u{430}"), None);
        assert_eq!(found("/caf\u{e9}"), None);
        assert_eq!(look_alike("a\u{43e}b", &(1..3)), Some('\u{43e}'));
    }

    #[test]
    fn a_word_of_another_language_is_not_odd() {
        assert_eq!(odd_letter("/l\u{43e}gin"), Some('\u{43e}'));
        assert_eq!(odd_letter("/log\u{200b}in"), Some('\u{200b}'));
        for text in [
            "/login",
            "/caf\u{e9}",
            "/a/\u{43e}\u{440}\u{430}",
            "/3\u{445}-\u{441}",
        ] {
            assert_eq!(odd_letter(text), None, "{text}");
        }
    }
}
