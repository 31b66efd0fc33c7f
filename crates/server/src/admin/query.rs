//! Query: the parameters of a call, `limit=NAME&key=VALUE&key=VALUE`.

use ratekeeper_policy::{Policy, Rule};

use crate::doors::problem::{NO_SUCH_LIMIT, Problem, WRONG_QUERY, near_spelling, shown};
use crate::percent::percent_decoded;

/// Default number of entries of a list.
pub(super) const DEFAULT_TOP: usize = 20;
/// Maximum number of entries of a list.
const MAX_TOP: usize = 1000;
/// Parameters that may come several times.
const REPEATED: [&str; 3] = ["key", "value", "number"];

/// The parameters of a call, with decoded values.
pub(super) struct Query<'q>(Vec<(&'q str, String)>);

impl<'q> Query<'q> {
    /// Reads the parameters of a call that knows those in `known`.
    pub(super) fn read(query: &'q str, known: &[&str]) -> Result<Self, Problem> {
        let mut read: Vec<(&str, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
                let (name, known) = (shown(name), known.join(" or "));
                let detail = format!("`{name}` is not a known parameter; expected {known}");
                return Err(wrong(detail));
            }
            if !REPEATED.contains(&name) && read.iter().any(|(other, _)| *other == name) {
                return Err(wrong(format!("`{name}` comes twice")));
            }
            read.push((name, decoded(&value.replace('+', " "))?));
        }
        Ok(Self(read))
    }

    /// Returns the value of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.texts(name).first().copied()
    }

    /// Returns the values of a parameter that may come several times.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(other, _)| *other == name);
        named.map(|(_, value)| &**value).collect()
    }

    /// Reads the value of a parameter; `expected` says what it may be.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        parse(value).map(Some).ok_or_else(|| {
            let value = shown(value).escape_debug().to_string();
            wrong(format!("`{name}={value}` must be {expected}"))
        })
    }

    /// Reads the number of entries to list, which is [`DEFAULT_TOP`] if it is not given.
    pub(super) fn top(&self, name: &str) -> Result<usize, Problem> {
        let within = |text: &str| text.parse().ok().filter(|top| (1..=MAX_TOP).contains(top));
        let expected = format!("a number from 1 to {MAX_TOP}");
        let top = self.parsed(name, &expected, within)?;
        Ok(top.unwrap_or(DEFAULT_TOP))
    }

    /// Returns the rule of the limit that the call must name.
    pub(super) fn rule<'p>(&self, policy: &'p Policy) -> Result<&'p Rule, Problem> {
        let missing = || wrong("the limit is missing; add `?limit=NAME`".into());
        find(policy, self.text("limit").ok_or_else(missing)?)
    }
}

fn wrong(detail: String) -> Problem {
    Problem::new(WRONG_QUERY, detail)
}

/// Returns the rule of a limit.
pub(super) fn find<'a>(policy: &'a Policy, name: &str) -> Result<&'a Rule, Problem> {
    policy.rule(name).ok_or_else(|| {
        let names = policy.rules.iter().map(|rule| &*rule.limit.name);
        let near = near_spelling(name, names);
        let detail = format!("`{}` is not in the policy{near}", shown(name));
        Problem::new(NO_SUCH_LIMIT, detail)
    })
}

/// Returns percent-encoded text of a query or path.
pub(super) fn decoded(text: &str) -> Result<String, Problem> {
    percent_decoded(text).ok_or_else(|| {
        let detail = format!("`{}` is not percent-encoded text", shown(text));
        wrong(detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_comes_once_unless_it_has_several_values() {
        let read = |query| Query::read(query, &["limit", "key"]).map_err(|problem| problem.detail);
        let query = read("limit=login&key=a+b&key=%63").expect("known parameters");
        assert_eq!(query.text("limit"), Some("login"));
        assert_eq!(query.texts("key"), ["a b", "c"]);
        assert_eq!(
            read("limit=a&limit=b").err().as_deref(),
            Some("`limit` comes twice")
        );
        let unknown = "`by` is not a known parameter; expected `limit` or `key`";
        assert_eq!(read("by=a").err().as_deref(), Some(unknown));
    }
}
