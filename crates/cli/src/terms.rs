//! Terms: the words of the field, read from their page of the guide.
//!
//! ```text
//!   ## leaky bucket                  its name here
//!   also: shaping, limit_req         other names of it
//!   One request each ..              its meaning
//!   ```toml .. ```                   how it is written in a policy, if it is
//!   More: [A queue](page.md#part)    where to read on
//! ```

use crate::words;

/// The page, as the guide shows it.
const PAGE: &str = include_str!("terms.md");

/// A word of the field, and its meaning here.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) name: &'static str,
    also: Vec<&'static str>,
    /// Definition, in lines.
    pub(crate) text: &'static str,
    /// Fields of a `[[limit]]`, or whole tables of a policy.
    pub(crate) policy: Option<&'static str>,
    /// Path relative to the page of the terms, with its part after `#`.
    pub(crate) page: &'static str,
}

impl Term {
    fn read(section: &'static str) -> Option<Self> {
        let (name, rest) = section.split_once('\n')?;
        let (rest, more) = rest.split_once("\nMore: [")?;
        let (_, page) = more.split_once("](")?;
        let (page, _) = page.split_once(')')?;
        let (also, rest) = match rest.trim_start().strip_prefix("also: ") {
            Some(rest) => rest.split_once('\n')?,
            None => ("", rest),
        };
        let (text, policy) = match rest.split_once("```toml\n") {
            Some((text, policy)) => (text, Some(policy.split_once("\n```")?.0)),
            None => (rest, None),
        };
        Some(Self {
            name: name.trim(),
            also: also.split(", ").filter(|name| !name.is_empty()).collect(),
            text: text.trim(),
            policy,
            page,
        })
    }

    /// Returns its name, and its other names.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.also.iter().copied())
    }
}

/// Returns all terms, in the order of the page.
pub(crate) fn all() -> impl Iterator<Item = Term> {
    PAGE.split("\n## ").skip(1).filter_map(Term::read)
}

/// Returns the term with this name; case, plural, hyphens and underscores are ignored, and, if no
/// name is the same, a last word `algorithm` and the missing spaces of `camelCase`.
pub(crate) fn find(name: &str) -> Option<Term> {
    let named = |wanted: &str| all().find(|term| term.names().any(|name| plain(name) == wanted));
    named(&plain(name)).or_else(|| {
        let letters = name
            .chars()
            .flat_map(|c| [c.is_uppercase().then_some(' '), Some(c)]);
        let apart = plain(&letters.flatten().collect::<String>());
        named(apart.strip_suffix(" algorithm").unwrap_or(&apart))
    })
}

/// Returns the name with the spelling nearest to `name`, if any is near.
pub(crate) fn near(name: &str) -> Option<&'static str> {
    let wanted = plain(name);
    let names: Vec<(String, &str)> = all()
        .flat_map(|term| term.names().collect::<Vec<_>>())
        .map(|name| (plain(name), name))
        .collect();
    let near = words::near(&wanted, names.iter().map(|(plain, _)| &**plain))?;
    let found = names.iter().find(|(plain, _)| plain == near);
    found.map(|(_, name)| *name)
}

/// Removes differences in spelling: case, plural, hyphens, underscores and spaces.
fn plain(name: &str) -> String {
    let name = name.trim().to_lowercase().replace(['-', '_'], " ");
    let words = name.split_whitespace().map(|word| {
        let one = word.strip_suffix('s');
        one.filter(|one| one.len() > 2).unwrap_or(word)
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use ratekeeper_policy::config::{Context, parse};

    use super::*;

    #[test]
    fn every_section_of_the_page_is_a_term_and_no_name_has_two() {
        assert_eq!(all().count(), PAGE.matches("\n## ").count());
        let mut owners = HashMap::new();
        for term in all() {
            assert!(!term.text.is_empty(), "{}", term.name);
            assert!(term.text.lines().count() <= 3, "{}", term.name);
            for name in term.names() {
                assert_eq!(find(name).unwrap().name, term.name, "{name}");
                let first = owners.insert(name, term.name);
                assert_eq!(first, None, "{name}");
            }
        }
    }

    /// Completes a block to a policy: without a limit, it holds fields of one, or tables beside
    /// one.
    fn whole(policy: &str) -> String {
        let head = "version = 1\ntimezone = \"UTC\"\n";
        let fields =
            |key: &str, fields: &str| format!("\n[[limit]]\nname = \"default\"\n{key}{fields}\n");
        if policy.contains("[[limit]]") {
            return format!("{head}{policy}");
        }
        if policy.starts_with('[') {
            return format!(
                "{head}{policy}\n{}",
                fields("key = [\"ip\"]\n", "limit = \"5/1m\"")
            );
        }
        let key = if policy.contains("key ") {
            ""
        } else {
            "key = [\"ip\"]\n"
        };
        let limits = ["limit ", "bucket ", "concurrency ", "spacing ", "balance "];
        assert!(
            limits.iter().any(|limit| policy.contains(limit)),
            "{policy}"
        );
        format!("{head}{}", fields(key, policy))
    }

    #[test]
    fn every_policy_text_is_valid_and_every_page_is_there() {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
        for term in all() {
            if let Some(policy) = term.policy {
                let text = whole(policy);
                let loaded = parse(&text, Context::default());
                let errors = loaded.err();
                assert_eq!(errors, None, "{}\n{text}", term.name);
            }
            let (file, part) = term.page.split_once('#').unwrap_or((term.page, ""));
            let page = std::fs::read_to_string(guide.join(file));
            let page = page.unwrap_or_else(|why| panic!("{}: {file}: {why}", term.name));
            let headings = page.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| {
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                let kept = heading
                    .chars()
                    .filter(|c| c.is_alphanumeric() || " -".contains(*c));
                kept.collect::<String>().replace(' ', "-")
            });
            let found = part.is_empty() || anchors.any(|anchor| anchor == part);
            assert!(found, "{}: {} has no part {part}", term.name, file);
        }
    }

    /// Headings and terms of the texts that the policy language was made for, Guava's classes, and
    /// the words of other products.
    const ASKED: &[&str] = &[
        // classic algorithms
        "FixedWindowCounter",
        "SlidingWindowLog",
        "TokenBucketLazyRefill",
        "Leaky Bucket",
        "Token Bucket",
        "Fixed Window Counter",
        "Sliding Window Log",
        "Sliding Window",
        "Sliding Window Counter",
        "RateLimiter",
        "driver",
        "lazy refill",
        // notes from practice
        "rolling log",
        "ZSet",
        "sorted set",
        "minimum difference",
        "semaphore",
        "sticky",
        "next free ticket",
        "TokenBucket",
        "warm up",
        "Smooth ratelimiter",
        "Nginx based rate limiting",
        "synchronization issues",
        "sticky sessions",
        "blocked actions are added",
        "strict",
        // Guava
        "SmoothRateLimiter",
        "SmoothBursty",
        "SmoothWarmingUp",
        "storedPermits",
        "tryAcquire",
        "canAcquire",
        "reserveEarliestAvailable",
        "maxBurstSeconds",
        "coldFactor",
        "coolDownIntervalMicros",
        "nextFreeTicketMicros",
        "maxPermits",
        "acquire",
        // hybrid
        "linear reaction time",
        "fixed window quota resets",
        "hybrid quota-linear algorithm",
        "linear",
        "exponential",
        "quota reset",
        "GCRA",
        "quota-linear",
        // a distributed limiter
        "Distributed API Rate Limiter",
        "User-Level Rate Limiting",
        "Server-Level Rate Limiting",
        "Geography-Based Rate Limiting",
        "client-side strategies",
        "exponential backoff",
        "jitter",
        "thundering herd",
        "self-imposed throttling",
        "polling",
        "race condition",
        "redis",
        "Sliding window logs algorithm",
        "Leaky bucket algorithm",
        "sub-buckets",
        "distributed rate limiter",
        "sticky session",
        "centralized data store",
        "middleware",
        "Kong",
        "Azure API Management",
        "AWS API Gateway",
        "reverse proxy",
        "gateway",
        "adaptive_concurrency",
        "refillTime",
        "refillAmount",
        "lastUpdate",
        "start empty",
        "hard throttling",
        "soft throttling",
        "elastic throttling",
        "retry",
        "HTTP status code",
        "circuit breaking",
        "cascading failures",
        "traffic shaping",
        "traffic policing",
        "monitoring",
        "analytics",
        "dashboard",
        "alerts",
        "brute force attacks",
        "types of throttling",
        "deadlines",
        "denial of service",
        "resource starvation",
        "idempotency",
        "throttling",
        "back-pressure",
        "in-memory cache",
        "plans",
        "429",
        "Retry-After",
        "get-then-set",
        "lock",
        // other products
        "limit_req",
        "burst nodelay",
        "nodelay",
        "limit_conn",
        "sliding",
        "fixed",
        "log",
        "intervally",
        "bulkhead",
        "circuit breaker",
        "backoff",
        "queue",
        "warmup",
        "soft",
        "elastic",
        "smooth bursty",
        "cost",
        "burst",
        "whitelist",
        "dry run",
        "ban",
        "country",
        "hours",
    ];

    #[test]
    fn every_term_resolves() {
        let lost: Vec<_> = ASKED.iter().filter(|term| find(term).is_none()).collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert_eq!(near("leaky buket"), Some("leaky bucket"));
        assert_eq!(near("zebra crossing"), None);
    }
}
