//! SVG: offered against admitted over time, as a picture that stands alone.
//!
//! ```text
//!   title
//!   [ panel ] [ panel ]     one for each limit; the same axes everywhere,
//!   [ panel ] [ panel ]     so that heights can be compared
//! ```

use plotters::prelude::*;
use ratekeeper_core::{Nanos, Time};

use crate::axis::{Scale, moments, unit};
use crate::plot::{Columns, whole};
use crate::report::Report;

/// Contents of one panel.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// Name of the limit.
    pub title: &'a str,
    /// Result of the workload in words.
    pub subtitle: &'a str,
    /// Result of the workload.
    pub report: &'a Report,
}

/// Number of points of a curve.
const POINTS: u64 = 160;
/// Size of one of several panels, and of a single one, in pixels.
const SMALL: (u32, u32) = (440, 260);
const LARGE: (u32, u32) = (840, 410);
/// Number of panels side by side.
const ACROSS: usize = 2;
/// Pixels for each label of the time axis.
const LABEL: u32 = 70;
/// Length of each axis.
const UNITS: u32 = 10_000;
/// Height of the title.
const HEAD: u32 = 30;

/// Colours that stay apart for the colour-blind (M. Okabe, K. Ito, "Color universal
/// design", 2008).
const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const ORANGE: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws the panels under one title.
///
/// # Panics
/// Never: writing to memory does not fail.
pub fn svg(title: &str, panels: &[Panel<'_>]) -> String {
    let (width, height) = if panels.len() > 1 { SMALL } else { LARGE };
    let across = panels.len().clamp(1, ACROSS);
    let down = panels.len().div_ceil(ACROSS).max(1);
    let times = |pixels: u32, count: usize| pixels * u32::try_from(count).unwrap_or(1);
    let size = (times(width, across), HEAD + times(height, down));
    let mut out = String::new();
    let mut draw = || {
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(title, ("sans-serif", 18))?;
        let end = panels.iter().map(|panel| panel.report.end).max();
        let end = end.unwrap_or(Time::ZERO);
        let columns = panels
            .iter()
            .map(|panel| Columns::of(panel.report, end, POINTS));
        let columns: Vec<Columns> = columns.collect();
        let scale = Scale::of(columns.iter().flat_map(Columns::rates));
        let areas = root.split_evenly((down, across));
        for (area, (panel, columns)) in areas.iter().zip(panels.iter().zip(&columns)) {
            draw_panel(area, panel, columns, &scale)?;
        }
        root.present()
    };
    let drawn: Drawn = draw();
    drawn.expect("writing to memory does not fail");
    out
}

/// Draws steps: admitted as an area, offered as a line above all.
fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    panel: &Panel<'_>,
    columns: &Columns,
    scale: &Scale,
) -> Drawn {
    let span = columns.span().max(Nanos::from_nanos(1));
    let across =
        |moment: Nanos| whole(moment.as_secs_f64() / span.as_secs_f64() * f64::from(UNITS));
    let up = |rate: f64| whole(scale.height(rate) * f64::from(UNITS));
    let moments = moments(span, u64::from(area.dim_in_pixel().0 / LABEL)).into_iter();
    let times: Vec<(u32, String)> = moments.map(|(at, text)| (across(at), text)).collect();
    let rates = scale.ticks().into_iter();
    let rates: Vec<(u32, String)> = rates.map(|rate| (up(rate), scale.label(rate))).collect();
    let places = |labels: &[(u32, String)]| labels.iter().map(|label| label.0).collect();
    let mut chart = ChartBuilder::on(area)
        .caption(
            format!("{}: {}", panel.title, panel.subtitle),
            ("sans-serif", 15),
        )
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(60)
        .build_cartesian_2d(
            (0..UNITS).with_key_points(places(&times)),
            (0..UNITS).with_key_points(places(&rates)),
        )?;
    let label = |labels: &[(u32, String)], at: &u32| {
        let label = labels.iter().find(|label| label.0 == *at);
        label.map_or(String::new(), |label| label.1.clone())
    };
    let logarithmic = if scale.is_log { ", logarithmic" } else { "" };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 14))
        .x_desc(format!("time ({})", unit(span).0))
        .y_desc(format!("requests / {}{logarithmic}", scale.unit()))
        .x_label_formatter(&|x| label(&times, x))
        .y_label_formatter(&|y| label(&rates, y))
        .draw()?;
    let count = u32::try_from(columns.bins.len()).unwrap_or(1).max(1);
    let steps = |rate: fn((f64, f64)) -> f64| {
        let steps = (0..count).zip(columns.rates()).flat_map(|(index, rates)| {
            let ends = [index, index + 1].map(|column| UNITS * column / count); // down: a pixel
            ends.map(|x| (x, up(rate(rates))))
        });
        steps.collect::<Vec<_>>()
    };
    let offered = LineSeries::new(steps(|rates| rates.0), ORANGE.stroke_width(2));
    let admitted = AreaSeries::new(steps(|rates| rates.1), 0, BLUE.mix(0.35));
    let key =
        |(x, y), color: &RGBColor| Rectangle::new([(x, y - 4), (x + 14, y + 4)], color.filled());
    chart
        .draw_series(offered)?
        .label("offered")
        .legend(move |at| key(at, &ORANGE));
    chart
        .draw_series(admitted.border_style(BLUE))?
        .label("admitted")
        .legend(move |at| key(at, &BLUE));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(("sans-serif", 14))
        .background_style(WHITE.mix(0.6))
        .draw()
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Gcra;

    use super::*;
    use crate::{Bench, Workload, play};

    #[test]
    fn a_picture_names_its_axes_and_curves() {
        let gcra = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
        let report = play(
            &mut Bench::new(gcra.into()),
            &Workload::eight_phases(),
            None,
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
                "\n100\n",
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
