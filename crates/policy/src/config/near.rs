//! Near spellings: which known word someone meant.

/// The known word nearest to `word`, if it is near enough to be meant.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase().replace('_', "-");
    let far = |known: &&str| strsim::damerau_levenshtein(&word, &known.replace('_', "-"));
    let (distance, nearest) = known
        .into_iter()
        .map(|known| (far(&known), known))
        .min_by_key(|(far, _)| *far)?;
    // A third of the letters may be wrong: `brust` is `burst`, `x` is nothing.
    (distance * 3 <= nearest.chars().count().max(word.chars().count())).then_some(nearest)
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
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word:?}");
        }
    }
}
