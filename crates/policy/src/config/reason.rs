//! Reason: why something cannot be as it was written, and the edit that helps: often, a known word
//! that is spelt alike.

/// Maximum number of characters of a compared word: longer ones are no misspelt names.
const MAX_WORD: usize = 64;
/// Maximum number of known words that are compared.
const MAX_KNOWN: usize = 1_000;

/// Returns the reason of the first condition that is true, or `None`.
macro_rules! first_reason {
    ($($is_so:expr => $why:expr, $help:expr;)*) => {
        match () {
            $(() if $is_so => Some($crate::ValueError::new($why, $help)),)*
            () => None,
        }
    };
}
pub(crate) use first_reason;

/// Returns true for letters, digits, `-` and `_`: a text that may be a name.
pub(crate) fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(is_plain)
}

/// Beginnings that turn the meaning of a word around.
const NEGATIONS: [&str; 5] = ["un", "in", "non", "not", "dis"];

/// Returns the known word nearest to `word`, if it is near enough to be meant. `unpaid` is not
/// `paid`, however near.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_WORD {
        return None;
    }
    let word = word.to_lowercase().replace('_', "-");
    let length = word.chars().count();
    // A third of the letters may be wrong: `brust` is `burst`, `x` is nothing.
    let enough = |known: &str| length.max(known.len()) / 3;
    let is_negated = |word: &str| NEGATIONS.iter().any(|it| word.starts_with(it));
    let far = |known: &&'k str| {
        let close = known.len().abs_diff(length) <= enough(known);
        let distance = || strsim::damerau_levenshtein(&word, &known.replace('_', "-"));
        let is_same = is_negated(&word) == is_negated(known);
        let is_meant = |far: &usize| *far <= enough(known) && (is_same || *far < 2);
        close.then(distance).filter(is_meant)
    };
    let known = known.into_iter().take(MAX_KNOWN);
    known
        .filter_map(|known| Some((far(&known)?, known)))
        .min_by_key(|(far, _)| *far)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_third_of_the_letters_may_be_wrong() {
        let known = ["name", "match", "key", "limit", "missing_key", "bucket"];
        for (word, meant) in [
            ("brust", None),
            ("limti", Some("limit")),
            ("keys", Some("key")),
            ("missing-key", Some("missing_key")),
            ("Match", Some("match")),
            ("n\u{430}me", Some("name")),
            ("x", None),
            ("unlimit", None),
            ("non_limit", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word:?}");
        }
    }
}
