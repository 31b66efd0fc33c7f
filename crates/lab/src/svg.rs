//! SVG: offered against admitted over time, as a picture that stands alone.
//!
//! ```text
//!   title
//!   [ panel ] [ panel ]     one for each limit; the same axes everywhere,
//!   [ panel ] [ panel ]     so that heights can be compared
//!   legend
//! ```

use std::fmt::Write as _;

use ratekeeper_core::{Nanos, Time};

use crate::axis::{Scale, moments, unit};
use crate::plot::Columns;
use crate::report::Report;

/// Contents of one panel.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// Name of the limit.
    pub title: &'a str,
    /// Second line: the result.
    pub subtitle: &'a str,
    /// Result of the workload.
    pub report: &'a Report,
}

/// Number of points of a curve.
const POINTS: u64 = 160;
/// Size of one of several panels, and of a single one, in pixels.
const SMALL: DrawingSize = DrawingSize {
    width: 360.0,
    height: 170.0,
    labels: 6,
};
const LARGE: DrawingSize = DrawingSize {
    width: 760.0,
    height: 320.0,
    labels: 12,
};
/// Number of panels side by side.
const ACROSS: usize = 2;
/// Pixels around the drawing area of a panel.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const ABOVE: f64 = 46.0;
const BELOW: f64 = 44.0;
/// Height of the title, and of the legend.
const HEAD: f64 = 58.0;

/// Colours that stay apart for the colour-blind (M. Okabe, K. Ito, "Color universal
/// design", 2008).
const BLUE: &str = "#0072b2";
const ORANGE: &str = "#d55e00";

/// Size of a drawing area.
#[derive(Clone, Copy, Debug)]
struct DrawingSize {
    width: f64,
    height: f64,
    /// Maximum number of labels on the time axis.
    labels: u64,
}

/// Draws the panels under one title.
pub fn svg(title: &str, panels: &[Panel<'_>]) -> String {
    let size = if panels.len() > 1 { SMALL } else { LARGE };
    let across = panels.len().clamp(1, ACROSS);
    let down = panels.len().div_ceil(ACROSS).max(1);
    let (cell_width, cell_height) = (LEFT + size.width + RIGHT, ABOVE + size.height + BELOW);
    let (width, height) = (float(across) * cell_width, HEAD + float(down) * cell_height);
    let end = panels.iter().map(|panel| panel.report.end).max();
    let end = end.unwrap_or(Time::ZERO);
    let columns: Vec<Columns> = panels
        .iter()
        .map(|panel| Columns::of(panel.report, end, POINTS))
        .collect();
    let scale = Scale::of(columns.iter().flat_map(Columns::rates));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" \
         role=\"img\">\n<title>{0}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"17\" font-weight=\"bold\">{0}</text>\n",
        escaped(title)
    );
    legend(&mut out, &scale);
    for (index, (panel, columns)) in panels.iter().zip(&columns).enumerate() {
        let x = float(index % ACROSS) * cell_width + LEFT;
        let y = float(index / ACROSS) * cell_height + HEAD + ABOVE;
        put(
            &mut out,
            format_args!("<g transform=\"translate({x} {y})\">\n"),
        );
        axes(&mut out, size, &scale, columns);
        curves(&mut out, size, &scale, columns);
        let (title, subtitle) = (escaped(panel.title), escaped(panel.subtitle));
        put(
            &mut out,
            format_args!(
                "<text y=\"-22\" font-size=\"14\" font-weight=\"bold\">{title}</text>\n\
                 <text y=\"-7\" fill=\"#555555\">{subtitle}</text>\n</g>\n"
            ),
        );
    }
    out + "</svg>\n"
}

fn legend(out: &mut String, scale: &Scale) {
    let logarithmic = if scale.is_log { ", logarithmic" } else { "" };
    let note = format!("requests per {}{logarithmic}, against time", scale.unit());
    put(
        out,
        format_args!(
            "<rect x=\"16\" y=\"38\" width=\"22\" height=\"10\" fill=\"{BLUE}\" \
             fill-opacity=\"0.35\" stroke=\"{BLUE}\"/>\n<text x=\"44\" y=\"48\">admitted</text>\n\
             <path d=\"M110 43h22\" stroke=\"{ORANGE}\" stroke-width=\"2\" \
             stroke-dasharray=\"5 3\"/>\n<text x=\"138\" y=\"48\">offered</text>\n\
             <text x=\"200\" y=\"48\" fill=\"#555555\">{note}</text>\n"
        ),
    );
}

/// Draws grid, numbers and names of both axes.
fn axes(out: &mut String, size: DrawingSize, scale: &Scale, columns: &Columns) {
    let DrawingSize { width, height, .. } = size;
    for tick in scale.ticks() {
        let y = height * (1.0 - scale.height(tick));
        let text = scale.label(tick);
        put(
            out,
            format_args!(
                "<path d=\"M0 {y:.1}H{width}\" stroke=\"#dddddd\"/>\n\
                 <text x=\"-7\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                y + 4.0
            ),
        );
    }
    let span = span_of(columns);
    for (moment, text) in moments(span, size.labels) {
        let x = width * share(moment, span);
        put(
            out,
            format_args!(
                "<path d=\"M{x:.1} {height}v5\" stroke=\"#333333\"/>\n\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>\n",
                height + 18.0
            ),
        );
    }
    put(
        out,
        format_args!(
            "<path d=\"M0 0V{height}H{width}\" fill=\"none\" stroke=\"#333333\"/>\n\
             <text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">time ({})</text>\n\
             <text transform=\"translate(-46 {:.1}) rotate(-90)\" \
             text-anchor=\"middle\">requests / {}</text>\n",
            width / 2.0,
            height + 34.0,
            unit(span).0,
            height / 2.0,
            scale.unit()
        ),
    );
}

/// Draws steps: admitted as an area, offered as a dashed line above all.
fn curves(out: &mut String, size: DrawingSize, scale: &Scale, columns: &Columns) {
    let DrawingSize { width, height, .. } = size;
    let step = width / float(columns.bins.len().max(1));
    let steps = |rate: fn((f64, f64)) -> f64| {
        let mut path = String::new();
        for (index, rates) in columns.rates().enumerate() {
            let y = height * (1.0 - scale.height(rate(rates)));
            put(
                &mut path,
                format_args!("V{y:.1}H{:.1}", step * float(index + 1)),
            );
        }
        path
    };
    let (offered, admitted) = (steps(|rates| rates.0), steps(|rates| rates.1));
    put(
        out,
        format_args!(
            "<path d=\"M0 {height}{admitted}V{height}Z\" fill=\"{BLUE}\" fill-opacity=\"0.35\" \
             stroke=\"{BLUE}\"/>\n<path d=\"M0 {height}{offered}\" fill=\"none\" \
             stroke=\"{ORANGE}\" stroke-width=\"1.6\" stroke-dasharray=\"5 3\"/>\n"
        ),
    );
}

/// Returns the length of all columns together.
fn span_of(columns: &Columns) -> Nanos {
    let nanos = columns
        .width
        .as_nanos()
        .saturating_mul(columns.bins.len() as u64);
    Nanos::from_nanos(nanos.max(1))
}

fn share(moment: Nanos, span: Nanos) -> f64 {
    moment.as_secs_f64() / span.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts of panels and points")]
fn float(count: usize) -> f64 {
    count as f64
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to a string does not fail");
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Gcra;

    use super::*;
    use crate::{Bench, VirtualTime, Workload, play};

    #[test]
    fn a_picture_names_its_axes_and_curves() {
        let gcra = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
        let report = play(
            &mut Bench::new(gcra.into()),
            &Workload::eight_phases(),
            &mut VirtualTime,
        );
        let panel = Panel {
            title: "a < b & \"c\"",
            subtitle: "all",
            report: &report,
        };
        for panels in [vec![panel], vec![panel; 5]] {
            let picture = svg("phases", &panels);
            for text in [
                "time (s)",
                "requests / s",
                "offered",
                "admitted",
                ">100<",
                "</svg>",
            ] {
                assert!(picture.contains(text), "{text}");
            }
            assert!(picture.contains("a &lt; b &amp; &quot;c&quot;"));
            assert!(!picture.contains("NaN") && !picture.contains("inf"));
            assert!(picture.is_ascii());
        }
    }
}
