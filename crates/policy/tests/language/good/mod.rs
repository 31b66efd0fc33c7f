//! Good policies: the policy holds the values of the text.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod fields;
mod founding;
mod quantities;

use ratekeeper_core::{Origin, Quota};
use ratekeeper_policy::Policy;
use ratekeeper_policy::config::{Colour, Context, parse, render};

/// Returns the policy of a valid text.
fn policy(text: &str) -> Policy {
    policy_at(text, Origin::UNIX)
}

fn policy_at(text: &str, origin: Origin) -> Policy {
    match parse(text, Context::from(origin)) {
        Ok(loaded) => loaded.policy,
        Err(errors) => panic!("{}", render("good.toml", text, &errors, Colour::Never)),
    }
}

/// Returns the policy of one limit by address, with `lines` in it.
fn one(lines: &str) -> Policy {
    let limit = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n";
    policy(&format!(
        "version = 1\ntimezone = \"UTC\"\n{limit}{lines}\n"
    ))
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}
