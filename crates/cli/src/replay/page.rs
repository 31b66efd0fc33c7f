//! Page: the report of a replay as one HTML file, without a script and without the network.

use std::fmt::Write as _;

use ratekeeper_replay::report::{ReplayReport, ReplayedLimit};

use super::choose::Choice;
use super::table::escaped;
use super::text::{about_log, sentence, share, worst_keys};
use crate::words;

const STYLE: &str = "\
:root{color-scheme:light dark;--bad:#b3261e;--ok:#8a9aa9;--line:#8886}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}\
.wide{overflow-x:auto}table{border-collapse:collapse}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);white-space:nowrap}\
.number{text-align:right}svg{width:100%;height:auto}\
.bad{fill:var(--bad)}.ok{fill:var(--ok)}text{fill:currentColor;font-size:11px}\
.lead{font-size:1.15rem}\
@media (prefers-color-scheme:dark){:root{--bad:#ff8a80}}\
@media print{body{max-width:none}section{break-inside:avoid}}";

/// Width and height of a plot, in units of its own.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 160.0;
/// Space for the labels of a plot.
const LEFT: f64 = 60.0;
const BELOW: f64 = 18.0;

/// Returns the page.
pub(crate) fn page(policy: &str, report: &ReplayReport, choice: Option<&Choice>) -> String {
    let mut html = String::new();
    let title = format!("Replay of {}", escaped(policy));
    let all = &report.all;
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>{title}</title><style>{STYLE}</style></head>\
         <body><main><h1>{title}</h1><p class=\"lead\">{} of {} requests refused; {} of {} clients \
         hit.</p>{}",
        share(all.refused, all.requests),
        words::count(all.requests),
        share(all.clients_hit, all.clients),
        words::count(all.clients),
        bars("Requests of each hour, and the refused ones", &all.hours)
    );
    if let Some(choice) = choice {
        self::choice(choice, &mut html);
    }
    for limit in &report.limits {
        self::limit(limit, &mut html);
    }
    html.push_str("<section><h2>The log</h2><ul>");
    for line in about_log(report).iter().chain(&report.notes) {
        let _ = write!(html, "<li>{}</li>", escaped(line));
    }
    html.push_str("</ul></section></main></body></html>\n");
    html
}

fn limit(limit: &ReplayedLimit, html: &mut String) {
    let first = limit.first_refused.as_ref();
    let first = first.map_or(String::new(), |at| format!(" The first refusal: {at}."));
    let _ = write!(
        html,
        "<section><h2>{}: {}</h2><p>It {}.{first}</p>",
        escaped(&limit.name),
        escaped(&limit.limit),
        sentence(limit)
    );
    if limit.counts.refused > 0 {
        let label = "Requests of this limit, and the refused ones";
        html.push_str(&bars(label, &limit.counts.hours));
        worst_keys(limit).write_html(html);
    }
    html.push_str("</section>");
}

/// Draws the requests of each hour, and the refused ones among them.
fn bars(label: &str, hours: &[(String, u64, u64)]) -> String {
    let most = hours.iter().map(|hour| hour.1).max().unwrap_or(0).max(1);
    let mut svg = frame(label);
    let width = WIDTH / hours.len().max(1) as f64;
    for (index, (start, requests, refused)) in hours.iter().enumerate() {
        let x = LEFT + width * index as f64;
        for (class, count) in [("ok", *requests), ("bad", *refused)] {
            let height = HEIGHT * count as f64 / most as f64;
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{height:.1}\"><title>{start}: {requests} requests, {refused} refused\
                 </title></rect>",
                HEIGHT - height,
                (width * 0.9).max(0.5)
            );
        }
    }
    let ends = [hours.first(), hours.last()].map(|hour| hour.map_or("", |hour| &*hour.0));
    labels(&words::count(most), ends, &mut svg);
    svg
}

fn frame(label: &str) -> String {
    let (width, height) = (LEFT + WIDTH + 10.0, HEIGHT + BELOW);
    format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">")
}

/// Writes the labels of a plot, and ends it.
fn labels(top: &str, [left, right]: [&str; 2], svg: &mut String) {
    let (x, y) = (LEFT + WIDTH, HEIGHT + BELOW - 4.0);
    let _ = write!(
        svg,
        "<text x=\"0\" y=\"11\">{top}</text><text x=\"{LEFT}\" y=\"{y}\">{left}</text>\
         <text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{right}</text></svg>"
    );
}

/// Draws the clients hit over the logarithm of the number, with a table of the marked numbers.
fn choice(choice: &Choice, html: &mut String) {
    let _ = write!(
        html,
        "<section><h2>Which number for {}?</h2><p>{}.</p>",
        escaped(&choice.limit),
        escaped(&choice.sentence())
    );
    let points = &choice.points;
    if let (Some((first, _)), Some((last, _))) = (points.first_key_value(), points.last_key_value())
    {
        let width = (*last as f64 / *first as f64).ln().max(f64::MIN_POSITIVE);
        let hits = points.values().map(|(_, hit)| *hit);
        let most = hits.max().unwrap_or(0).max(1);
        let mut svg = frame("Clients hit by each number");
        svg.push_str(
            "<polyline fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" points=\"",
        );
        for (number, (_, hit)) in points {
            let x = LEFT + WIDTH * (*number as f64 / *first as f64).ln() / width;
            let y = HEIGHT * (1.0 - *hit as f64 / most as f64);
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        svg.push_str("\"/>");
        let top = format!("{} clients", words::count(most));
        let ends = [first, last].map(|number| words::count(*number));
        labels(&top, ends.each_ref().map(String::as_str), &mut svg);
        html.push_str(&svg);
    }
    choice.table().write_html(html);
    html.push_str("</section>");
}
