//! Alert: one rule for Prometheus.

use std::fmt::Write as _;

/// Urgency of an alert.
#[derive(Clone, Copy, Debug)]
pub(super) enum Severity {
    /// Limits do not hold, or will not after a restart: act now.
    Critical,
    /// Something is wrong: act today.
    Warning,
    /// The limits work as they should, and an operator may want to know what they do.
    Info,
}

/// An alert; its section of the runbook has the same name.
#[derive(Clone, Debug)]
pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// Time for which the expression must hold.
    pub(super) hold: Option<&'static str>,
    pub(super) expression: String,
    pub(super) summary: &'static str,
}

/// Makes a list of alerts. Each has its urgency, its name, the time for which its expression must
/// hold, if it does not fire at once, its expression, and what it says.
macro_rules! alerts {
    ($($severity:ident $name:literal $(after $hold:literal)?: $expression:literal, $summary:literal;)*) => {
        vec![$(Alert {
            name: $name,
            severity: Severity::$severity,
            hold: [$($hold)?].first().copied(),
            expression: format!($expression),
            summary: $summary,
        }),*]
    };
}
pub(super) use alerts;

impl Alert {
    /// Returns its rule; an expression of several lines is folded.
    pub(super) fn rule(&self) -> String {
        let Self {
            name,
            severity,
            hold,
            expression,
            summary,
        } = self;
        let expression = if expression.contains('\n') {
            let lines = expression.lines().map(|line| format!("\n          {line}"));
            format!(">-{}", lines.collect::<String>())
        } else {
            expression.clone()
        };
        let hold = hold.map(|hold| format!("        for: {hold}\n"));
        let severity = format!("{severity:?}").to_lowercase();
        let anchor = name.to_lowercase();
        let mut rule = format!("      - alert: {name}\n        expr: {expression}\n");
        rule += &hold.unwrap_or_default();
        let _ = write!(
            rule,
            "        labels: {{ severity: {severity} }}\n        annotations: {{ summary: \"{summary}\", \
         runbook: \"docs/guide/runbook.md#{anchor}\" }}\n"
        ); // a string takes everything
        rule
    }
}
