//! Any text is a policy or a list of findings, and the findings can be shown.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ratekeeper_policy::config::{Colour, Context, parse, render};

fuzz_target!(|text: &str| {
    let findings = match parse(text, Context::default()) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            errors
        }
    };
    for finding in &findings {
        assert!(text.get(finding.start..finding.end).is_some(), "{finding:?}");
        assert!(finding.line >= 1 && finding.column >= 1, "{finding:?}");
    }
    let page = render("policy.toml", text, &findings, Colour::Never);
    assert_eq!(page.is_empty(), findings.is_empty());
});
