//! Patterns: the values of one field of `match`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::Pattern;
use crate::model::matching::matcher::FieldValue;
use crate::model::matching::part_index::PartIndex;

/// Number of patterns that are compared in the time in which one is looked up.
const FEW: usize = 8;

/// The values of one field of `match`, read as a slice in the order of the file. A long list
/// costs a request no more than a short one, because it is indexed.
///
/// ```
/// use ratekeeper_policy::{Field, Pattern, Patterns};
/// let values = ["10.0.0.0/8", "!10.0.0.1"].map(|text| Pattern::parse(&Field::Ip, text).unwrap());
/// let patterns = Patterns::from(values.to_vec());
/// assert_eq!(patterns.len(), 2);
/// assert_eq!(patterns[1].to_string(), "!10.0.0.1");
/// ```
#[derive(Clone, Default)]
pub struct Patterns {
    all: Arc<[Pattern]>,
    /// The numbers of `all`; `None` for a few.
    index: Option<Arc<PartIndex>>,
    /// True if a request must have a value: some have no `!`.
    has_positive: bool,
}

impl Patterns {
    /// Indexes values. With `has_positive`, a request must have one of those without `!`, even if
    /// there are none: an empty list has no value that matches.
    pub(crate) fn new(all: Vec<Pattern>, has_positive: bool) -> Self {
        let index = (all.len() > FEW).then(|| Arc::new(PartIndex::new((0..).zip(&all))));
        Self {
            index,
            has_positive,
            all: all.into(),
        }
    }

    /// Returns true if no pattern with `!` matches, and one without `!` does or there are none.
    /// `matches` compares a pattern with a spelling, given its place, negation aside.
    pub(crate) fn accept(
        &self,
        spellings: &[FieldValue<'_>],
        matches: impl Fn(&Pattern, usize, FieldValue<'_>) -> bool,
    ) -> bool {
        let mut found = !self.has_positive;
        let excluded = (0..).zip(spellings).any(|(place, value)| {
            self.any_near(*value, |_, pattern| {
                if pattern.negated {
                    return matches(pattern, place, *value);
                }
                found = found || matches(pattern, place, *value);
                false
            })
        });
        found && !excluded
    }

    /// Calls `test` with patterns and their places, at least with all that match the value, until
    /// it returns true; returns true if it did.
    pub(crate) fn any_near(
        &self,
        value: FieldValue<'_>,
        mut test: impl FnMut(usize, &Pattern) -> bool,
    ) -> bool {
        let Some(index) = &self.index else {
            let mut all = self.all.iter().enumerate();
            return all.any(|(at, pattern)| test(at, pattern));
        };
        index.any_near(value, |list| {
            list.iter().any(|at| {
                let at = *at as usize;
                self.all.get(at).is_some_and(|pattern| test(at, pattern))
            })
        })
    }
}

impl From<Vec<Pattern>> for Patterns {
    fn from(all: Vec<Pattern>) -> Self {
        let has_positive = all.iter().any(|pattern| !pattern.negated);
        Self::new(all, has_positive)
    }
}

impl Deref for Patterns {
    type Target = [Pattern];
    fn deref(&self) -> &[Pattern] {
        &self.all
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.has_positive == other.has_positive && self.all == other.all
    }
}

impl Eq for Patterns {}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Facts, Field, Matcher, PathCase, RequestFacts};

    fn patterns(field: &Field, values: impl IntoIterator<Item = impl AsRef<str>>) -> Patterns {
        let each = values.into_iter();
        let each = each.map(|value| Pattern::parse(field, value.as_ref()).unwrap());
        each.collect::<Vec<_>>().into()
    }

    /// Returns the number of comparisons for a value.
    fn compared(patterns: &Patterns, value: FieldValue<'_>) -> usize {
        let mut number = 0;
        patterns.any_near(value, |_, _| {
            number += 1;
            false
        });
        number
    }

    #[test]
    fn a_long_list_is_not_compared_one_by_one() {
        const MANY: u32 = 100_000;
        let address = |n: u32| std::net::Ipv4Addr::from_bits(n * 256);
        let blocks = patterns(&Field::Ip, (0..MANY).map(|n| format!("{}/24", address(n))));
        let own = FieldValue::Address(address(77).into());
        assert_eq!(compared(&blocks, own), 1);
        assert_eq!(compared(&blocks, FieldValue::Address([255; 4].into())), 0);

        let hosts = (0..MANY).map(|n| format!("!*.h{n}.example"));
        let hosts = patterns(&Field::Host, hosts.chain(["a.*.b".into()]));
        assert_eq!(compared(&hosts, FieldValue::Text(b"www.h77.example")), 1);
        assert_eq!(compared(&hosts, FieldValue::Text(b"a.b.c")), 1);
        assert_eq!(compared(&hosts, FieldValue::Text(b"www.x.example")), 0);
    }

    #[test]
    fn globs_are_found_by_bytes_inside_of_them() {
        for of in [
            |n: u32| format!("*.t{n}.*"),
            |n: u32| format!("w*.t{n}.com"),
            |n: u32| format!("*t{n}.c*"),
            |n: u32| format!("www.t{n}.*m"),
        ] {
            let hosts = patterns(&Field::Host, (1_000..2_000).map(of));
            assert!((1..40).contains(&compared(&hosts, FieldValue::Text(b"www.t1234.com"))));
            assert!(compared(&hosts, FieldValue::Text(b"www.example.com")) < 40);
            let long = "www.t1234.com".repeat(1_000);
            let found = compared(&hosts, FieldValue::Text(long.as_bytes()));
            assert!(found < 40, "each once");
        }
    }

    fn routes<'m>(matcher: &'m Matcher, request: &RequestFacts<'_>) -> Vec<Option<&'m str>> {
        let mut routes = Vec::new();
        matcher.each_path(request, |_, route| routes.push(route));
        routes
    }

    #[test]
    fn the_route_is_the_first_pattern_that_matches() {
        let paths = (0..20).map(|n| format!("/a/{n}"));
        let patterns = patterns(
            &Field::Path,
            ["!/b".into(), "/b/*/c".into(), "/b/**".into()]
                .into_iter()
                .chain(paths)
                .chain(["/b/x/c".into()]),
        );
        let matcher = Matcher {
            fields: vec![(Field::Path, patterns)],
            ..Matcher::default()
        };
        for (path, route) in [
            ("/b/x/c", Some("/b/*/c")),
            ("/b/x", Some("/b/**")),
            ("/A/7/", Some("/a/7")),
            ("/c", None),
        ] {
            let facts = Facts {
                path,
                ..Facts::default()
            };
            let request = crate::model::matching::request::RequestFacts::new(&facts);
            assert_eq!(routes(&matcher, &request), [route], "{path}");
        }
    }

    const PATHS: [&str; 18] = [
        "/",
        "/a",
        "/A",
        "/b",
        "/a/b",
        "/a/*",
        "/a/**",
        "/{x}/b",
        "/**/b",
        "/a*",
        "!/a",
        "!/B",
        "!/a/*",
        "!/**/c",
        "/**/a/b",
        "/**/b/a/**",
        "/a/**/b/c",
        "!/**/b/b/**",
    ];
    const TEXTS: [&str; 17] = [
        "a", "b", "ab", "a*", "*b", "*", "a*b", "*a*", "!a", "!ab", "!*b", "!*aa*", "*abab*",
        "*baba*", "a*aaab", "a*bbaa*", "!*abba*",
    ];
    const BLOCKS: [&str; 10] = [
        "10.0.0.1",
        "10.0.0.0/31",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/32",
        "::1",
        "!10.0.0.2",
        "!10.0.0.0/30",
        "!2001:db8::/48",
    ];

    proptest! {
        /// Whatever is indexed, the answer is that of a comparison with every pattern.
        #[test]
        fn an_index_and_a_search_agree(
            paths in prop::collection::vec(prop::sample::select(&PATHS[..]), 9..20),
            texts in prop::collection::vec(prop::sample::select(&TEXTS[..]), 9..20),
            blocks in prop::collection::vec(prop::sample::select(&BLOCKS[..]), 9..20),
            path in "(/|a|A|b|c|%61|;x|\\.\\./){0,6}",
            values in prop::collection::vec("[ab]{0,3}|[ab]{8}", 0..3),
            ip in prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "11.1.1.1", "2001:db8::1", "::1"]),
        ) {
            let headers: Vec<_> = values.iter().map(|value| ("x", value.as_bytes())).collect();
            let facts = Facts {
                path: &path,
                ip: ip.parse().ok(),
                headers: &headers,
                ..Facts::default()
            };
            let request = crate::model::matching::request::RequestFacts::new(&facts);
            for (field, values) in [
                (Field::Path, paths),
                (Field::Header("x".into()), texts),
                (Field::Ip, blocks),
            ] {
                let indexed = patterns(&field, &values);
                let searched = Patterns { index: None, ..indexed.clone() };
                prop_assert!(indexed.index.is_some());
                let [indexed, searched] = [indexed, searched].map(|patterns| Matcher {
                    fields: vec![(field.clone(), patterns)],
                    path_case: PathCase::Insensitive,
                });
                prop_assert_eq!(indexed.holds(&request), searched.holds(&request), "{:?}", &values);
                prop_assert_eq!(indexed.exempts(&request), searched.exempts(&request), "{:?}", &values);
                let [found, expected] = [&indexed, &searched].map(|of| routes(of, &request));
                prop_assert_eq!(found, expected, "{:?}", &values);
            }
        }
    }
}
