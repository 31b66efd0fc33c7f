//! Glob: text with `*`, any run of bytes or none.
//!
//! ```text
//!   ab*cd*ef      head `ab`, then each middle piece at its first place, tail `ef`
//!   ab x cd x ef
//! ```
//!
//! The first place of a piece leaves the longest rest for the following pieces, so nothing is
//! ever tried twice: the work is bounded by the product of the two lengths, never exponential.

/// A compiled glob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Glob {
    /// Text up to the first `*`; the whole text if there is none.
    head: Box<[u8]>,
    /// Pieces between two `*`; never empty.
    middle: Box<[Box<[u8]>]>,
    /// Text after the last `*`; `None` if there is no `*`.
    tail: Option<Box<[u8]>>,
}

/// A piece of a text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum GlobPiece {
    /// All of it.
    Whole,
    /// This number of first bytes.
    First(usize),
    /// This number of last bytes.
    Last(usize),
}

impl GlobPiece {
    /// Returns this piece of `text`; `None` if it is too short.
    #[inline]
    pub(crate) fn of(self, text: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Whole => Some(text),
            Self::First(length) => text.get(..length),
            Self::Last(length) => text.get(text.len().checked_sub(length)?..),
        }
    }
}

impl Glob {
    pub(crate) fn new(text: &[u8]) -> Self {
        Self::from_pieces(text.split(|byte| *byte == b'*').map(Into::into).collect())
    }

    /// Creates a glob from the texts before, between and after its stars; `pieces` is not empty.
    pub(crate) fn from_pieces(mut pieces: Vec<Box<[u8]>>) -> Self {
        let tail = if pieces.len() > 1 { pieces.pop() } else { None };
        Self {
            head: pieces.remove(0),
            middle: pieces
                .into_iter()
                .filter(|piece| !piece.is_empty())
                .collect(),
            tail,
        }
    }

    /// Returns the fixed beginning or end of every text that matches; `None` if neither is fixed.
    pub(crate) fn fixed(&self) -> Option<(GlobPiece, &[u8])> {
        match &self.tail {
            None => Some((GlobPiece::Whole, &self.head)),
            Some(_) if !self.head.is_empty() => {
                Some((GlobPiece::First(self.head.len()), &self.head))
            }
            Some(tail) if !tail.is_empty() => Some((GlobPiece::Last(tail.len()), tail)),
            Some(_) => None,
        }
    }

    /// Returns the pattern with a zero for each `*`.
    pub(crate) fn with_zeros(&self) -> Vec<u8> {
        let pieces = std::iter::once(&self.head).chain(&self.middle);
        let pieces: Vec<&[u8]> = pieces.chain(&self.tail).map(|piece| &**piece).collect();
        pieces.join(&0)
    }

    /// Returns the number of bytes that are not `*`.
    pub(crate) fn length(&self) -> usize {
        let middle: usize = self.middle.iter().map(|piece| piece.len()).sum();
        self.head.len() + middle + self.tail.as_ref().map_or(0, |tail| tail.len())
    }

    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        let Some(tail) = &self.tail else {
            return *self.head == *value;
        };
        let rest = value.strip_prefix(&*self.head);
        let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(&**tail)) else {
            return false;
        };
        for piece in &self.middle {
            let Some(at) = rest.windows(piece.len()).position(|w| *w == **piece) else {
                return false;
            };
            rest = &rest[at + piece.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, exponential.
    fn reference(pattern: &[u8], value: &[u8]) -> bool {
        match (pattern, value) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                reference(rest, value) || !value.is_empty() && reference(pattern, &value[1..])
            }
            ([a, pattern @ ..], [b, value @ ..]) => a == b && reference(pattern, value),
            _ => false,
        }
    }

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, value, expected) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a**b", "ab", true),
            ("*b*", "abc", true),
            ("*b*b*", "abc", false),
            ("ab*cd*ef", "abXcdYef", true),
            ("ab*cd*ef", "abcdef", true),
            ("ab*cd*ef", "abef", false),
            ("*aab", "aaaab", true),
            ("*.example.com", "example.com", false),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            assert_eq!(
                glob.matches(value.as_bytes()),
                expected,
                "{pattern} {value}"
            );
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_both_lengths() {
        let pattern = "*a".repeat(200) + "b";
        let value = "a".repeat(8192);
        assert!(!Glob::new(pattern.as_bytes()).matches(value.as_bytes()));
    }

    proptest! {
        #[test]
        fn globs_agree_with_the_definition(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            let (pattern, value) = (pattern.as_bytes(), value.as_bytes());
            prop_assert_eq!(Glob::new(pattern).matches(value), reference(pattern, value));
        }
    }
}
