//! Value list: values of `match` in a file beside the policy.
//!
//! ```text
//!   policy                        blocked.txt
//!   ip = "file:blocked.txt"       # updated every night
//!                                 192.0.2.0/24
//!                                 198.51.100.7     # scraper
//! ```
//!
//! An empty list is valid: it has no value that matches.

use super::policy_files::ListName;
use crate::config::fields::MAX_MATCH_VALUES;
use crate::config::{PolicyFiles, Text, codes, error, shown};
use crate::{Field, Pattern, ValueError};

/// Maximum number of wrong lines of one list that are reported.
const MAX_WRONG: usize = 5;

impl ListName<'_> {
    /// Appends the values of the list to those of a field; reports an error at `at` if there is no
    /// such list, and its wrong lines.
    pub(crate) fn read(
        self,
        files: &PolicyFiles,
        field_name: &str,
        field: &Field,
        at: &Text<'_>,
        patterns: &mut Vec<Pattern>,
    ) {
        let text = match files.list(self.name) {
            Ok(text) => text,
            Err((reason, help)) => {
                error(codes::LIST, at.at, reason, "not readable here").help(help);
                return;
            }
        };
        // Editors begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut wrong = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let value = without_comment(line);
            if value.is_empty() {
                continue;
            }
            let is_full = patterns.len() >= MAX_MATCH_VALUES;
            let pattern = if is_full {
                let reason = format!("`{field_name}` has more than {MAX_MATCH_VALUES} values");
                let help = "match by blocks, or by patterns with `*`";
                Err(ValueError::new(reason, help))
            } else {
                self.pattern(field, value)
            };
            let ValueError { reason, help } = match pattern {
                Ok(pattern) => {
                    patterns.push(pattern);
                    continue;
                }
                Err(error) => error,
            };
            let message = format!("{}, line {number}: {reason}", shown(self.name));
            let label = format!("not a list of values of `{field_name}`");
            error(codes::LIST, at.at, message, label).help(help);
            wrong += 1;
            if wrong == MAX_WRONG || is_full {
                return;
            }
        }
    }

    /// Reads the value of a line.
    fn pattern(self, field: &Field, value: &str) -> Result<Pattern, ValueError> {
        if value.starts_with('!') {
            return Err(ValueError::new(
                format!("`{}` begins with `!` in a list", shown(value)),
                format!(
                    "write the list as \"!file:{}\" to negate all of its values",
                    self.name
                ),
            ));
        }
        let sign = if self.negated { "!" } else { "" };
        Pattern::parse(field, &format!("{sign}{value}"))
    }
}

/// Returns a line up to its comment: a `#` at its beginning or behind a space.
fn without_comment(line: &str) -> &str {
    let mut signs = line.match_indices('#');
    let comment = signs.find(|(at, _)| line[..*at].ends_with([' ', '\t']) || *at == 0);
    line[..comment.map_or(line.len(), |(at, _)| at)].trim()
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Time;

    use super::*;
    use crate::config::{Context, MAX_LIST_BYTES, parse_file};
    use crate::{Facts, Policy};

    /// Returns a policy of one limit with this `match`, or the messages.
    fn policy(
        fields: &str,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Policy, String> {
        let text = format!(
            "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1m\"\nmatch = {{ {fields} }}"
        );
        let files = PolicyFiles::read(&text, |name, _| read(name));
        match parse_file(&text, &files, Context::default(), Time::ZERO) {
            Ok(loaded) => Ok(loaded.policy),
            Err(errors) => {
                let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
                Err(messages.join("\n"))
            }
        }
    }

    fn blocked(name: &str) -> Result<String, String> {
        match name {
            "blocked.txt" => {
                Ok("\u{feff}# nightly\n192.0.2.0/24\r\n\n  2001:db8::1 # one\n".into())
            }
            "empty.txt" => Ok("# none today\n".into()),
            "keys" => Ok("\u{feff}a#b\nc d\nx*\n".into()),
            _ => Err("no such file".into()),
        }
    }

    #[test]
    fn the_lines_of_a_list_are_values() {
        for (fields, ip, key, expected) in [
            ("ip = \"file:blocked.txt\"", "192.0.2.7", "", true),
            ("ip = \"file:blocked.txt\"", "2001:db8::1", "", true),
            ("ip = \"file:blocked.txt\"", "198.51.100.1", "", false),
            (
                "ip = [\"file:blocked.txt\", \"198.51.100.1\"]",
                "198.51.100.1",
                "",
                true,
            ),
            ("ip = \"!file:blocked.txt\"", "192.0.2.7", "", false),
            ("ip = \"!file:blocked.txt\"", "198.51.100.1", "", true),
            (
                "ip = [\"192.0.0.0/8\", \"!file:blocked.txt\"]",
                "192.0.3.1",
                "",
                true,
            ),
            ("header.x-key = \"file:keys\"", "::1", "a#b", true),
            ("header.x-key = \"file:keys\"", "::1", "c d", true),
            ("header.x-key = \"file:keys\"", "::1", "xyz", true),
            ("header.x-key = \"file:keys\"", "::1", "a", false),
            // An empty list has no value that matches, and excludes none.
            ("ip = \"file:empty.txt\"", "192.0.2.7", "", false),
            ("ip = \"!file:empty.txt\"", "192.0.2.7", "", true),
        ] {
            let policy = policy(fields, blocked).unwrap();
            let facts = Facts {
                ip: ip.parse().ok(),
                headers: &[("x-key", key.as_bytes())],
                ..Facts::default()
            };
            assert_eq!(
                policy.rules[0].applies_to(&facts),
                expected,
                "{fields} {ip} {key}"
            );
        }
    }

    #[test]
    fn a_changed_list_is_another_policy() {
        let with = |text: &str| policy("ip = \"file:a\"", |_| Ok(text.into())).unwrap().sha;
        assert_ne!(with("192.0.2.1"), with("192.0.2.2"));
        assert_eq!(with("192.0.2.1"), with("192.0.2.1"));
    }

    #[test]
    fn wrong_lists_are_refused_with_their_lines() {
        let lines = |number: u32| {
            (0..number).map(|n| format!("10.{}.{}.{}\n", n >> 16, n >> 8 & 255, n & 255))
        };
        let many = lines(100_001).collect::<String>();
        let long = "#".repeat(MAX_LIST_BYTES + 1);
        for (list, expected) in [
            (
                Ok("192.0.2.1\n\n10.0.0.300\n"),
                "a.txt, line 3: `10.0.0.300` is neither an address",
            ),
            (
                Ok("!192.0.2.1"),
                "a.txt, line 1: `!192.0.2.1` begins with `!` in a list",
            ),
            (Ok(&many), "line 100001: `ip` has more than 100000 values"),
            (
                Ok(&long),
                "cannot read the list `a.txt`: it is longer than 4194304 bytes",
            ),
            (
                Err("no such file"),
                "cannot read the list `a.txt`: no such file",
            ),
        ] {
            let read = |_: &str| list.map(str::to_owned).map_err(str::to_owned);
            let refused = policy("ip = \"file:a.txt\"", read).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
        let whole = policy("ip = \"file:a\"", |_| Ok(lines(100_000).collect())).unwrap();
        assert_eq!(whole.rules[0].matcher.fields[0].1.len(), MAX_MATCH_VALUES);
        let wrong = policy("ip = \"file:a\"", |_| Ok("x\n".repeat(9))).unwrap_err();
        assert_eq!(wrong.lines().count(), MAX_WRONG);
    }
}
