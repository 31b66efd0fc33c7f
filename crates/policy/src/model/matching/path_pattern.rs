//! Path pattern: segments with `*`, `**` and `{name}`.
//!
//! ```text
//!   /users/{id}      one segment        /users/7          not /users or /users/7/x
//!   /users/*         the same
//!   /v*/users        part of a segment  /v1/users, /v/users
//!   /api/**          any segments,      /api, /api/a/b
//!                    also none
//!   /**/edit         ... anywhere       /edit, /a/b/edit
//! ```
//!
//! A slash at the end makes no difference, in the pattern or in the path.
//!
//! The pattern is cut at `**` into runs of segments. The first run must begin the path, the last
//! must end it, and each run between them is matched at its first place: as in a glob, nothing is
//! tried twice.

use std::hash::Hasher;

use smallvec::SmallVec;

use crate::http::path::{self, PathCase};
use crate::model::matching::common_part::{CommonPart, MAX_SEGMENTS};
use crate::{Glob, GlobPiece, ValueError};

/// A compiled path pattern. It is compared with normal paths only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PathPattern {
    /// No wildcard: the whole path.
    Exact(Box<[u8]>),
    /// Runs of segments, separated by `**`.
    Runs(Box<[Box<[Segment]>]>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Segment {
    Literal(Box<[u8]>),
    /// `*` or `{name}`: any segment that is not empty.
    Any,
    /// A segment with `*` as a part.
    Part(Glob),
}

impl PathPattern {
    /// Compiles the pattern of `text`, to be compared with paths that have the same case.
    pub(crate) fn parse(text: &str, case: PathCase) -> Result<Self, ValueError> {
        let Some(body) = text.strip_prefix('/') else {
            return Err(ValueError::new(
                format!("path `{text}` does not begin with `/`"),
                match text.split_once("://") {
                    Some(_) => "write the path alone, and the host as `host = \"..\"`".into(),
                    None => format!("write \"{}\"", with_a_slash(text)),
                },
            ));
        };
        let mut runs = vec![Vec::new()];
        let last = body.matches('/').count();
        for (index, segment) in body.split('/').enumerate() {
            if index < last || !segment.is_empty() {
                check(text, segment)?;
            }
            if segment == "**" {
                runs.push(Vec::new());
            } else if segment.is_empty() && last > 0 {
                // The slash at the end.
            } else if let Some(run) = runs.last_mut() {
                run.push(Segment::parse(segment, case)?);
            }
        }
        if let [run] = runs.as_slice()
            && let Some(exact) = literal(run)
        {
            return Ok(Self::Exact(exact));
        }
        Ok(Self::Runs(runs.into_iter().map(Into::into).collect()))
    }

    /// Returns the part that all paths that match have in common, and writes its bytes to
    /// `hasher`; `None` if the segments before the first `**` are all wildcards.
    pub(crate) fn common_part(&self, hasher: &mut impl Hasher) -> Option<CommonPart> {
        let runs = match self {
            Self::Exact(path) => {
                hasher.write(path);
                return Some(CommonPart::Text(GlobPiece::Whole));
            }
            Self::Runs(runs) => runs,
        };
        let first = runs.first()?;
        let (mut fixed, mut at) = (0, 0);
        let looked_at = first.get(..MAX_SEGMENTS).unwrap_or(first);
        for run in looked_at.chunk_by(|a, b| a.literal().is_some() && b.literal().is_some()) {
            let literals: Vec<&[u8]> = run.iter().filter_map(Segment::literal).collect();
            if !literals.is_empty() {
                fixed |= ((1u32 << run.len()) - 1) << at;
                hasher.write(&literals.join(&b'/'));
            }
            at += run.len();
        }
        let fixed = u16::try_from(fixed).ok()?;
        (fixed != 0).then_some(CommonPart::Segments(fixed))
    }

    /// Returns the pattern with a zero for each wildcard: the texts between are in every path that
    /// matches.
    pub(crate) fn with_zeros(&self) -> Vec<u8> {
        let runs = match self {
            Self::Exact(path) => return path.to_vec(),
            Self::Runs(runs) => runs,
        };
        let mut text = Vec::new();
        for run in runs {
            for segment in run {
                text.push(b'/');
                match segment {
                    Segment::Literal(literal) => text.extend_from_slice(literal),
                    Segment::Any => text.push(0),
                    Segment::Part(glob) => text.extend(glob.with_zeros()),
                }
            }
            text.push(0);
        }
        text
    }

    /// Returns true if a normal path matches.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let runs = match self {
            Self::Exact(exact) => return **exact == *path,
            Self::Runs(runs) => runs,
        };
        let Some((first, runs)) = runs.split_first() else {
            return false;
        };
        let Some(rest) = skip_run(first, Some(path)) else {
            return false;
        };
        let Some((last, middle)) = runs.split_last() else {
            return rest.is_none();
        };
        // The segments of the last run are not available to those before it.
        let Some(ends) = count(rest).checked_sub(last.len()) else {
            return false;
        };
        let (mut rest, mut free) = (rest, ends);
        for run in middle {
            loop {
                if free < run.len() {
                    return false;
                }
                if let Some(after) = skip_run(run, rest) {
                    rest = after;
                    free -= run.len();
                    break;
                }
                rest = skip(rest);
                free -= 1;
            }
        }
        for _ in 0..free {
            rest = skip(rest);
        }
        skip_run(last, rest) == Some(None)
    }
}

/// The rest of a path, beginning with `/`; `None` at its end.
type PathRest<'a> = Option<&'a [u8]>;

/// Returns the rest behind the segments of `run`, if they match.
fn skip_run<'a>(run: &[Segment], mut rest: PathRest<'a>) -> Option<PathRest<'a>> {
    for segment in run {
        rest = segment.skip(rest?)?;
    }
    Some(rest)
}

fn skip(rest: PathRest<'_>) -> PathRest<'_> {
    rest.and_then(|rest| take(rest).1)
}

/// Cuts the first segment off.
fn take(rest: &[u8]) -> (&[u8], PathRest<'_>) {
    let body = rest.get(1..).unwrap_or_default();
    match body.iter().position(|byte| *byte == b'/') {
        Some(end) => (&body[..end], Some(&body[end..])),
        None => (body, None),
    }
}

/// Returns the number of remaining segments.
fn count(rest: PathRest<'_>) -> usize {
    rest.map_or(0, |rest| rest.split(|byte| *byte == b'/').count() - 1)
}

impl Segment {
    fn parse(text: &str, case: PathCase) -> Result<Self, ValueError> {
        if text == "*" || is_name(text) {
            return Ok(Self::Any);
        }
        if text.contains(['{', '}']) {
            return Err(ValueError::new(
                format!("`{text}` is not a path segment: a `{{name}}` fills a whole segment"),
                "write `{id}` between two slashes, `*` for a part of a segment, or a list of paths",
            ));
        }
        let canonical = |text: &str| canonical(text, case);
        Ok(if text.contains('*') {
            Self::Part(Glob::from_pieces(text.split('*').map(canonical).collect()))
        } else {
            Self::Literal(canonical(text))
        })
    }

    fn literal(&self) -> Option<&[u8]> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Any | Self::Part(_) => None,
        }
    }

    /// Returns the rest behind the first segment, if that matches. The end of a literal is not
    /// searched: it is where the text ends.
    fn skip<'a>(&self, rest: &'a [u8]) -> Option<PathRest<'a>> {
        let Some(text) = self.literal() else {
            let (segment, after) = take(rest);
            return self.matches(segment).then_some(after);
        };
        let after = rest.get(1..)?.strip_prefix(text)?;
        match after.first() {
            None => Some(None),
            Some(b'/') => Some(Some(after)),
            Some(_) => None,
        }
    }

    fn matches(&self, segment: &[u8]) -> bool {
        match self {
            Self::Literal(text) => **text == *segment,
            Self::Any => !segment.is_empty(),
            Self::Part(glob) => glob.matches(segment),
        }
    }
}

/// Returns true for `{name}`: letters, digits, `_` and `-`.
fn is_name(segment: &str) -> bool {
    let name = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
    name.is_some_and(|name| {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        !name.is_empty() && name.bytes().all(is_word)
    })
}

/// Returns the path that was probably meant by a text without a slash before it: any path for `*`,
/// and the path alone behind the sign of nginx, `~ /api`, or a word, `not /health`.
fn with_a_slash(text: &str) -> String {
    match (text, text.split_once(" /")) {
        ("*" | "**", _) => "/**".into(),
        (_, Some(("not", path))) => format!("!/{path}"),
        (_, Some((_, path))) => format!("/{path}"),
        _ => format!("/{text}"),
    }
}

/// Refuses a segment that can never match.
fn check(text: &str, segment: &str) -> Result<(), ValueError> {
    let (what, help) = if segment == "." || segment == ".." || segment.is_empty() {
        let normal = path::normalise(text);
        let normal = String::from_utf8_lossy(normal.as_bytes());
        let what = "paths are compared without empty segments and dots";
        (what, format!("write \"{normal}\""))
    } else if segment.contains(';') {
        let what = "parameters after `;` are removed before paths are compared";
        (what, "leave out the `;` and the text after it".to_owned())
    } else if let Some((before, _)) = text.split_once('?') {
        let help = format!("write \"{before}\", and the query as `query.NAME = \"..\"`");
        ("the query is not part of the path", help)
    } else if let Some((before, _)) = text.split_once('#') {
        let what = "clients send no `#` and nothing after it";
        (what, format!("write \"{before}\""))
    } else if segment != "**" && segment.contains("**") {
        return Err(ValueError::new(
            format!("`**` in `{segment}` is only a part of a segment"),
            "write `**` between two slashes for any segments, or `*` for a part of one",
        ));
    } else {
        return Ok(());
    };
    let reason = format!("path `{text}` can never match: {what}");
    Err(ValueError::new(reason, help))
}

fn canonical(text: &str, case: PathCase) -> Box<[u8]> {
    let mut out = SmallVec::new();
    path::canonical(text.as_bytes(), &mut out);
    if case == PathCase::Insensitive {
        out.make_ascii_lowercase();
    }
    out.into_boxed_slice()
}

/// Returns the path that these segments spell, if none is a wildcard.
fn literal(run: &[Segment]) -> Option<Box<[u8]>> {
    let mut path = Vec::new();
    for segment in run {
        let Segment::Literal(text) = segment else {
            return None;
        };
        path.push(b'/');
        path.extend_from_slice(text);
    }
    Some(path.into())
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use proptest::prelude::*;

    use super::*;
    use crate::model::matching::common_part::FirstSegments;

    /// The definition, exponential.
    fn reference(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            (["**", rest @ ..], _) => {
                reference(rest, path) || !path.is_empty() && reference(pattern, &path[1..])
            }
            ([p, pattern @ ..], [s, path @ ..]) => {
                Segment::parse(p, PathCase::Sensitive)
                    .unwrap()
                    .matches(s.as_bytes())
                    && reference(pattern, path)
            }
            _ => false,
        }
    }

    #[test]
    fn segments_and_wildcards_match() {
        for (pattern, yes, no) in [
            ("/", &["/"][..], &["/a"][..]),
            ("/login", &["/login"], &["/Login", "/login/x", "/"]),
            ("/login/", &["/login"], &["/login/x"]),
            ("/users/{id}", &["/users/7"], &["/users", "/users/7/x"]),
            ("/users/{id}/", &["/users/7"], &["/users", "/users/7/x"]),
            ("/users/*", &["/users/7"], &["/users", "/users/7/x"]),
            ("/{a}/{b}", &["/x/y"], &["/x", "/x/y/z"]),
            (
                "/v*/users",
                &["/v1/users", "/v/users"],
                &["/1/users", "/v1/x/users"],
            ),
            ("/*.php", &["/a.php", "/.php"], &["/a/b.php", "/a.phpx"]),
            ("/**", &["/", "/a", "/a/b"], &[]),
            ("/api/**", &["/api", "/api/a/b"], &["/apix", "/x/api"]),
            (
                "/**/edit",
                &["/edit", "/a/edit", "/a/b/edit"],
                &["/edit/x", "/editx"],
            ),
            (
                "/a/**/b",
                &["/a/b", "/a/x/b", "/a/b/b", "/a/b/x/b"],
                &["/a", "/b", "/a/b/x"],
            ),
            ("/**/x/**/x", &["/x/x", "/a/x/b/x"], &["/x", "/a/x/b"]),
            ("/**/", &["/", "/a"], &[]),
            ("/a/**/", &["/a", "/a/b"], &["/b"]),
            ("/**/a/**", &["/a", "/x/a", "/a/y", "/x/a/y"], &["/", "/x"]),
            (
                "/**/a/b/**/c",
                &["/a/b/c", "/a/a/b/c"],
                &["/a/b", "/a/x/b/c"],
            ),
            ("/%6cogin", &["/login"], &[]),
            ("/caf\u{e9}", &["/caf%C3%A9"], &[]),
            ("/a b", &["/a%20b"], &[]),
            ("/50%", &["/50%25"], &[]),
            ("/a%2A", &["/a*"], &["/ab"]),
            ("/a%2A*", &["/a*b"], &["/ab"]),
        ] {
            let compiled = PathPattern::parse(pattern, PathCase::Sensitive).unwrap();
            for path in yes.iter().chain(no) {
                assert_eq!(path::normalise(path).as_bytes(), path.as_bytes());
            }
            for path in yes {
                assert!(compiled.matches(path.as_bytes()), "{pattern} {path}");
            }
            for path in no {
                assert!(!compiled.matches(path.as_bytes()), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn an_escaped_slash_of_a_pattern_is_part_of_its_segment() {
        let parse = |text| PathPattern::parse(text, PathCase::Sensitive).unwrap();
        assert!(parse("/a%2fb").matches(b"/a%2Fb"));
        assert!(!parse("/a%2fb").matches(b"/a/b"));
        assert!(parse("/{id}").matches(b"/a%2Fb"));
    }

    #[test]
    fn a_folded_pattern_is_compared_with_folded_paths() {
        for (pattern, path) in [
            ("/Login", "/login"),
            ("/V*/Users/{Id}", "/v1/users/7"),
            ("/a%2Fb", "/a%2fb"),
        ] {
            let compiled = PathPattern::parse(pattern, PathCase::Insensitive).unwrap();
            assert!(compiled.matches(path.as_bytes()), "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_can_never_match_are_refused() {
        for (pattern, reason, help) in [
            ("login", "does not begin with `/`", "write \"/login\""),
            ("", "does not begin with `/`", "write \"/\""),
            (
                "http://h/login",
                "does not begin with `/`",
                "the path alone",
            ),
            ("//login", "can never match", "write \"/login\""),
            ("/a//b", "can never match", "write \"/a/b\""),
            ("/a/../b", "can never match", "write \"/b\""),
            ("/a/.", "can never match", "write \"/a\""),
            ("/a;v=1", "parameters", "leave out"),
            ("/a?b=1", "query", "write \"/a\", and"),
            ("/a#b", "`#`", "write \"/a\""),
            ("*", "does not begin with `/`", "write \"/**\""),
            ("~ /api", "does not begin with `/`", "write \"/api\""),
            (
                "not /health",
                "does not begin with `/`",
                "write \"!/health\"",
            ),
            ("/a**", "`**` in `a**`", "between two slashes"),
            ("/***", "`**` in `***`", "between two slashes"),
            ("/v{n}", "fills a whole segment", "`*`"),
            ("/{}", "fills a whole segment", "`{id}`"),
            ("/{a", "fills a whole segment", "`{id}`"),
            ("/{*rest}", "fills a whole segment", "`{id}`"),
        ] {
            let error = PathPattern::parse(pattern, PathCase::Sensitive).unwrap_err();
            assert!(error.reason.contains(reason), "{pattern}: {error}");
            assert!(error.help.contains(help), "{pattern}: {error}");
        }
    }

    #[test]
    fn many_double_stars_cost_no_more_than_both_lengths() {
        let pattern = "/**/a/a".repeat(40) + "/b";
        let path = "/a".repeat(4096);
        assert!(
            !PathPattern::parse(&pattern, PathCase::Sensitive)
                .unwrap()
                .matches(path.as_bytes())
        );
    }

    #[test]
    fn the_index_receives_the_part_that_all_matches_share() {
        let whole = Some(CommonPart::Text(GlobPiece::Whole));
        let segments = |bits| Some(CommonPart::Segments(bits));
        for (pattern, expected) in [
            ("/a/b", whole),
            ("/", whole),
            ("/a/**", segments(0b1)),
            ("/a/{id}/b", segments(0b101)),
            ("/a/**/b", segments(0b1)),
            ("/*/a", segments(0b10)),
            ("/a*/b", segments(0b10)),
            ("/**", None),
            ("/**/a", None),
            ("/{a}/*", None),
        ] {
            let compiled = PathPattern::parse(pattern, PathCase::Sensitive).unwrap();
            let mut hasher = foldhash::fast::RandomState::default().build_hasher();
            assert_eq!(compiled.common_part(&mut hasher), expected, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn patterns_agree_with_the_definition(
            pattern in prop::collection::vec(prop::sample::select(
                vec!["**", "**", "*", "a", "b", "a*", "{x}"]), 1..6),
            path in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 1..7),
            slash in prop::bool::ANY,
        ) {
            let mut path = path;
            if slash {
                path.push("");
            }
            let compiled = PathPattern::parse(&format!("/{}", pattern.join("/")), PathCase::Sensitive).unwrap();
            let text = format!("/{}", path.join("/"));
            prop_assert_eq!(compiled.matches(text.as_bytes()), reference(&pattern, &path));
        }

        #[test]
        fn every_match_has_the_common_part(
            pattern in "/(\\*\\*|\\*|a|b|a\\*)(/(\\*\\*|\\*|a|b)){0,3}",
            path in "/[ab]{0,2}(/[ab]{0,2}){0,3}",
        ) {
            let compiled = PathPattern::parse(&pattern, PathCase::Sensitive).unwrap();
            let path = path.as_bytes();
            let hasher = foldhash::fast::RandomState::default();
            let (mut wanted, mut found) = (hasher.build_hasher(), hasher.build_hasher());
            if compiled.matches(path) && let Some(part) = compiled.common_part(&mut wanted) {
                let first = FirstSegments::new(path, part.depth());
                prop_assert!(part.of_path(&first, &mut found));
                prop_assert_eq!(wanted.finish(), found.finish());
            }
        }

        #[test]
        fn every_match_has_the_texts_between_zeros(
            pattern in "/(\\*\\*|\\*|a|b|a\\*|\\*a|a\\*b)(/(\\*\\*|\\*|a|b|\\*b\\*)){0,3}",
            path in "/[ab]{1,2}(/[ab]{1,2}){0,3}",
        ) {
            let compiled = PathPattern::parse(&pattern, PathCase::Sensitive).unwrap();
            if compiled.matches(path.as_bytes()) {
                let texts = String::from_utf8(compiled.with_zeros()).unwrap();
                prop_assert!(texts.split('\0').all(|text| path.contains(text)), "{:?}", texts);
            }
        }

        #[test]
        fn any_text_is_compiled_or_refused(text in "\\PC{0,20}", path in "\\PC{0,20}") {
            if let Ok(pattern) = PathPattern::parse(&text, PathCase::Sensitive) {
                pattern.matches(path::normalise(&path).as_bytes());
                prop_assert!(PathPattern::parse(&text, PathCase::Insensitive).is_ok());
            }
        }
    }
}
