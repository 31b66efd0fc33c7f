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
    severity: Severity,
    /// Time for which the expression must hold.
    hold: Option<&'static str>,
    expression: String,
    summary: &'static str,
}

impl Alert {
    /// Creates an alert that fires as soon as its expression has a value.
    pub(super) fn new(
        severity: Severity,
        name: &'static str,
        expression: impl Into<String>,
        summary: &'static str,
    ) -> Self {
        Self {
            name,
            severity,
            hold: None,
            expression: expression.into(),
            summary,
        }
    }

    /// The same, once the expression has had one for so long.
    pub(super) fn after(self, hold: &'static str) -> Self {
        let hold = Some(hold);
        Self { hold, ..self }
    }

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
