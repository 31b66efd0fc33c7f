//! Staged: a fault as Prometheus sees it, from scrapes of a service before and after.
//!
//! ```text
//!   before | before .. | after, and the same change each minute ..  --> the alert fires
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The values of a scrape by series, and the names of metrics that are gauges.
#[derive(Default)]
pub(crate) struct Scrape {
    samples: BTreeMap<String, String>,
    gauges: Vec<String>,
    /// Time of the scrape, on the clock of the service.
    unix_seconds: f64,
}

impl Scrape {
    /// What Prometheus has of a service that does not answer.
    pub(crate) fn failed() -> Self {
        Self {
            samples: BTreeMap::from([("up".into(), "0".into())]),
            gauges: vec!["up".into()],
            unix_seconds: 0.0,
        }
    }

    pub(crate) fn read(text: &str) -> Self {
        let mut scrape = Self::failed();
        scrape.samples.insert("up".into(), "1".into());
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

    /// Sets the time of the scrape.
    pub(crate) fn at(self, unix_seconds: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let unix_seconds = unix_seconds as f64;
        Self {
            unix_seconds,
            ..self
        }
    }

    /// Returns the samples of two services.
    pub(crate) fn beside(mut self, other: Self) -> Self {
        for (series, value) in other.samples {
            let (metric, labels) = series.split_once('{').unwrap_or((&series, "}"));
            let comma = if labels == "}" { "" } else { "," };
            let series = format!("{metric}{{instance=\"b\"{comma}{labels}");
            self.samples.insert(series, value);
        }
        self
    }

    /// Returns true if a series whose name begins so has this value.
    pub(crate) fn has(&self, series: &str, wanted: &str) -> bool {
        let mut each = self.samples.iter();
        each.any(|(name, value)| name.starts_with(series) && value == wanted)
    }

    /// Returns true if a series whose name begins so is above zero.
    pub(crate) fn is_above_zero(&self, series: &str) -> bool {
        let mut each = self.samples.iter();
        each.any(|(name, value)| {
            name.starts_with(series) && value.parse::<f64>().is_ok_and(|value| value > 0.0)
        })
    }
}

/// What happens after the fault.
#[derive(Clone, Copy)]
pub(crate) enum Course {
    /// `before` for five minutes, then the change to `after` in each of 60 minutes.
    GoesOn,
    /// The change to `before` in each of 60 minutes, as usual, then that to `after`.
    Departs,
    /// `before` and `after` in turn.
    Flaps,
    /// The change to `after` in each of 60 minutes, then nothing for a day.
    Ends,
}

/// Writes a test of `promtool test rules`.
pub(crate) fn staged(
    (name, course): (&str, Course),
    (before, after): (&Scrape, &Scrape),
    fires: &str,
) -> String {
    let mut text = format!("  - name: {name}\n    interval: 1m\n    input_series:\n");
    for (series, last) in &after.samples {
        let (metric, labels) = series.split_once('{').unwrap_or((series, "}"));
        let own = labels.trim_end_matches('}');
        let mut labels = vec![r#"job="ratekeeper""#];
        labels.extend(Some(own).filter(|own| !own.is_empty()));
        if !own.contains("instance=") {
            labels.push(r#"instance="a""#);
        }
        let labels = labels.join(",");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let first = before
            .samples
            .get(series)
            .map_or(0.0, |first| number(first));
        let mut last = number(last);
        if metric.ends_with("_timestamp_seconds") {
            last -= after.unix_seconds; // the clock of the rules begins at 0
        }
        let step = last - first;
        let is_gauge = after.gauges.iter().any(|gauge| gauge == metric);
        let values = match course {
            Course::GoesOn if is_gauge => format!("{first}x4 {last}x60"),
            Course::GoesOn => format!("{first}x4 {first}+{step:.9}x60"),
            Course::Departs if is_gauge => format!("{first}x59 {last}x60"),
            Course::Departs => {
                let usual = 60.0 * first;
                format!("0+{first:.9}x59 {usual:.9}+{step:.9}x60")
            }
            Course::Flaps => format!("{first} {last} ").repeat(30),
            Course::Ends if is_gauge => format!("{last}x1510"),
            Course::Ends => format!(
                "{first}+{step:.9}x60 {:.9}x1450",
                60.0_f64.mul_add(step, first)
            ),
        };
        let series = format!("{metric}{{{labels}}}");
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
    let at = match course {
        Course::GoesOn | Course::Flaps => "50m",
        Course::Departs => "80m",
        Course::Ends => "1d40m",
    };
    let query = format!(r#"group by (alertname) (ALERTS{{alertstate="firing"{only}}})"#);
    let queried = format!("      - expr: {query}\n        eval_time: {at}\n");
    text + "    promql_expr_test:\n" + &queried + &format!("        exp_samples: [{expected}]\n")
}
