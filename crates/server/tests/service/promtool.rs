//! Promtool: Prometheus's own judgement of scrapes, and of the rules that ship.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) fn monitoring(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring");
    folder.join(file).canonicalize().expect("it ships")
}

/// Runs `promtool` with `input`; returns its words and its success, `None` if it is not installed.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn promtool(arguments: &[&str], input: &str) -> Option<(String, bool)> {
    let started = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        assert!(
            std::env::var_os("CI").is_none(),
            "promtool is not installed"
        );
        eprintln!("skipped: promtool is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words).into_owned();
    Some((words, output.status.success()))
}

pub(crate) fn prove(arguments: &[&str], input: &str) {
    if let Some((words, success)) = promtool(arguments, input) {
        assert!(success, "promtool {arguments:?}: {words}\n{input}");
    }
}

/// The values of a scrape by series, and the names of metrics that are gauges.
#[derive(Default)]
pub(crate) struct Scrape {
    samples: BTreeMap<String, String>,
    gauges: Vec<String>,
}

impl Scrape {
    pub(crate) fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some(name) = line
                .strip_prefix("# TYPE ")
                .and_then(|described| described.strip_suffix(" gauge"))
            {
                scrape.gauges.push(name.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a sample");
                scrape.samples.insert(series.to_owned(), value.to_owned());
            }
        }
        scrape
    }
}

/// Writes a test of `promtool test rules`: `before` for five minutes, then the change to `after`
/// in each minute.
pub(crate) fn staged(name: &str, (before, after): (&Scrape, &Scrape), fires: &str) -> String {
    let mut text = format!("  - name: {name}\n    interval: 1m\n    input_series:\n");
    for (series, last) in &after.samples {
        let (metric, labels) = series.split_once('{').unwrap_or((series, "}"));
        let comma = if labels == "}" { "" } else { "," };
        let first = before.samples.get(series).map_or("0", String::as_str);
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let values = if after.gauges.iter().any(|gauge| gauge == metric) {
            format!("{first}x4 {last}x60")
        } else {
            let step = number(last) - number(first);
            format!("{first}x4 {first}+{step:.9}x60")
        };
        let series = format!(r#"{metric}{{job="ratekeeper",instance="a"{comma}{labels}"#);
        let _ = writeln!(text, "      - {{ series: '{series}', values: '{values}' }}"); // a string takes everything
    }
    let expected = match fires {
        "" => String::new(),
        fires => format!(r#"{{ labels: '{{alertname="{fires}"}}', value: 1 }}"#),
    };
    let only = match fires {
        "" => String::new(),
        fires => format!(r#",alertname="{fires}""#),
    };
    let query = format!(r#"count by (alertname) (ALERTS{{alertstate="firing"{only}}})"#);
    let queried = format!("      - expr: {query}\n        eval_time: 50m\n");
    text + "    promql_expr_test:\n" + &queried + &format!("        exp_samples: [{expected}]\n")
}
