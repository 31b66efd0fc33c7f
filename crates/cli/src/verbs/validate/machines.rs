//! Findings for machines: workflow commands of GitHub, and SARIF.

use ratekeeper_policy::config::Diagnostic;
use serde_json::{Value, json};

use super::Checked;

/// Returns all findings, each with the policy that has it.
pub(super) fn all(checked: &[Checked]) -> impl Iterator<Item = (&Checked, &Diagnostic)> {
    let each = checked.iter();
    each.flat_map(|one| one.findings.iter().map(move |finding| (one, finding)))
}

/// Returns a workflow command; `%`, line ends and, in properties, `:` and `,` are escaped.
pub(super) fn github(file: &str, finding: &Diagnostic) -> String {
    let kind = finding.severity;
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    format!(
        "::{kind} file={},line={},col={},title={}::{}",
        property(file),
        finding.line,
        finding.column,
        property(finding.code),
        data(&message(finding, "\n"))
    )
}

/// Returns one run of SARIF 2.1.0 (OASIS, 2020).
pub(super) fn sarif(checked: &[Checked]) -> Value {
    let mut codes: Vec<&str> = all(checked).map(|(_, finding)| finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let rules = codes
        .iter()
        .map(|code| json!({ "id": code, "help": { "text": format!("ratekeeper help {code}") } }));
    let results = all(checked).map(|(one, finding)| {
        let region = json!({
            "startLine": finding.line,
            "startColumn": finding.column,
            "charOffset": characters(&one.source.text, 0, finding.start),
            "charLength": characters(&one.source.text, finding.start, finding.end),
        });
        json!({
            "ruleId": finding.code,
            "level": finding.severity,
            "message": { "text": message(finding, "; ") },
            "locations": [{ "physicalLocation": {
                "artifactLocation": { "uri": one.source.name },
                "region": region,
            } }],
        })
    });
    json!({
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "ratekeeper",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

/// Returns the message of a finding, and its help behind `sign`.
fn message(finding: &Diagnostic, sign: &str) -> String {
    let help = finding.help.iter();
    let help = help.map(|help| format!("{sign}help: {help}"));
    finding.message.clone() + &help.collect::<String>()
}

/// Returns the number of characters of `text` between two bytes.
fn characters(text: &str, start: usize, end: usize) -> usize {
    text.get(start..end).map_or(0, |part| part.chars().count())
}

/// Escapes the text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}
