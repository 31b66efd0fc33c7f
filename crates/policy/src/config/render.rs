//! Render: findings in the style of a compiler.
//!
//! ```text
//!   error[RK0103]: unknown field `brust` in limit `partner-api`
//!     --> ratekeeper.toml:14:1
//!      |
//!   14 | brust = 40
//!      | ^^^^^ not a field of a limit (known: name, match, ...)
//!      |
//!      = help: the burst of a bucket is its `size`: ...
//!      = docs: ratekeeper help RK0103
//! ```
//!
//! Only the lines that a finding points at are given to the renderer, so that the cost of many
//! findings in a large file does not grow with the file.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::diagnostic::{floor, line_start};
use super::settings::secrets;
use super::{Diagnostic, Severity};

/// Maximum width of a rendered line in columns; longer lines are cut around the carets.
const WIDTH: usize = 140;

/// Colour of rendered findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// With ANSI escapes.
    Always,
    /// Plain text.
    Never,
}

/// Renders findings about `text`, the content of `file`, with an empty line between them.
///
/// ```
/// use ratekeeper_policy::config::{Colour, Context, parse, render};
/// let text = "version = 1\ntimzone = \"UTC\"\n";
/// let findings = parse(text, Context::default()).unwrap_err();
/// let page = render("ratekeeper.toml", text, &findings, Colour::Never);
/// assert!(page.starts_with("error[RK0103]: unknown field `timzone` in the policy"));
/// assert!(page.contains("--> ratekeeper.toml:2:1"));
/// ```
pub fn render(file: &str, text: &str, findings: &[Diagnostic], colour: Colour) -> String {
    let renderer = match colour {
        Colour::Always => Renderer::styled(),
        Colour::Never => Renderer::plain(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii).term_width(WIDTH);
    let each = findings
        .iter()
        .map(|finding| one(file, text, finding, &renderer) + "\n");
    each.collect::<Vec<_>>().join("\n")
}

/// Renders findings for a log, where many of one kind add no information: the first of each code,
/// and the number of the others. One text for each code.
pub fn brief(file: &str, text: &str, findings: &[Diagnostic], colour: Colour) -> Vec<String> {
    let mut codes: Vec<&str> = Vec::new();
    for finding in findings {
        if !codes.contains(&finding.code) {
            codes.push(finding.code);
        }
    }
    let of_code = |code: &&str| {
        let mut same = findings.iter().filter(|finding| finding.code == *code);
        let first: Vec<_> = same.by_ref().take(1).cloned().collect();
        let page = render(file, text, &first, colour);
        match same.count() {
            0 => page,
            more => format!(
                "{page}  = and {more} more {code}: `ratekeeper validate {file}` shows all\n"
            ),
        }
    };
    codes.iter().map(of_code).collect()
}

fn one(file: &str, text: &str, finding: &Diagnostic, renderer: &Renderer) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    // A caller's finding may hold any position.
    let within = |at: Range<usize>| floor(text, at.start)..floor(text, at.end.max(at.start));
    let span = within(finding.start..finding.end);
    let related = finding.related.clone().map(within);
    let all = related.clone().unwrap_or(span.clone());
    let (first, last) = (span.start.min(all.start), span.end.max(all.end));
    let from = line_start(text, first);
    let to = text[last..]
        .find('\n')
        .map_or(text.len(), |newline| last + newline);
    let shift = |at: Range<usize>| at.start - from..at.end - from;

    let lines_before = text[..from].matches('\n').count();
    let lines = secrets::masked(&text[from..to]).replace('\r', " "); // the renderer would draw it
    let mut snippet = Snippet::source(&lines)
        .path(file)
        .line_start(lines_before + 1)
        .annotation(
            AnnotationKind::Primary
                .span(shift(span))
                .label(&finding.label),
        );
    if let Some(related) = related {
        snippet = snippet.annotation(AnnotationKind::Visible.span(shift(related)));
    }
    let mut report = level
        .primary_title(&finding.message)
        .id(finding.code)
        .element(snippet);
    if let Some(help) = &finding.help {
        report = report.element(Level::HELP.message(help));
    }
    let docs = format!("ratekeeper help {}", finding.code);
    report = report.element(Level::NOTE.with_name("docs").message(docs));
    let page = renderer.render(&[report]);
    let lines: Vec<_> = page.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Context, parse};

    #[test]
    fn colour_adds_escapes_and_nothing_else() {
        let text = "version = 1\nheaders = \"all\\u001b[2J\"\n";
        let findings = parse(text, Context::default()).unwrap_err();
        let plain = render("a.toml", text, &findings, Colour::Never);
        let coloured = render("a.toml", text, &findings, Colour::Always);
        let mut parts = coloured.split('\u{1b}');
        let mut stripped = parts.next().unwrap().to_owned();
        for part in parts {
            stripped.push_str(part.split_once('m').unwrap().1);
        }
        let trimmed: Vec<_> = stripped.lines().map(str::trim_end).collect();
        assert_eq!(trimmed, plain.lines().collect::<Vec<_>>());
        assert!(coloured.len() > plain.len());
    }

    #[test]
    fn findings_of_another_text_are_shown_without_a_panic() {
        let findings = parse("version = 1\ntimezone = \"Mars\"\n", Context::default()).unwrap_err();
        for text in ["", "\u{e6}\u{f8}", "version = 1\ntimezone = \u{e6}"] {
            assert!(render("a.toml", text, &findings, Colour::Never).contains("RK0210"));
        }
    }
}
