//! Signals: reads `while` of elastic limits.
//!
//! ```text
//!   load                                                the machine
//!   upstream.latency        upstream.errors             `upstream` of [listen.proxy]
//!   upstream.ROUTE.latency  upstream.ROUTE.errors       that of a route
//!   any other name                                      pushed to the admin listener
//! ```

use std::sync::Arc;

use ratekeeper_core::Nanos;

use crate::config::document::scalar::{Mismatch, Scalar, percentage};
use crate::config::fields::MAX_PERCENT;
use crate::config::{At, Findings, Table, codes, shown};
use crate::model::rules::signal::{
    Gate, LOAD, PPM_OF_PERCENT, Signal, UpstreamMeasure, upstream_signal,
};
use crate::{ProxySettings, Settings};

/// Maximum number of signals of one policy: names are compared one by one when they are set.
const MAX_SIGNALS: usize = 100;
/// `below` of a latency. Requests that wait are known to have waited 10 s at most.
const LATENCY: Scalar = Scalar::Span {
    least: Nanos::from_millis(1),
    most: Nanos::from_secs(10),
};
/// `below` of another signal.
const LEVEL: Scalar = Scalar::Percent { most: MAX_PERCENT };

/// Reads signals, and holds those that were found.
pub(super) struct SignalReader<'p> {
    proxy: Option<&'p ProxySettings>,
    pub(in crate::config) found: Vec<Arc<Signal>>,
}

impl<'p> SignalReader<'p> {
    pub(in crate::config) fn new(settings: &'p Settings) -> Self {
        Self {
            proxy: settings.listen.proxy.as_ref(),
            found: Vec::new(),
        }
    }

    /// Reads `{ signal = "load", below = "70%" }`. Returns `None` after a finding.
    pub(super) fn gate(&mut self, table: Table<'_>, out: &mut Findings<'_>) -> Option<Gate> {
        let name = table.text("signal")?;
        let below = table.text("below")?;
        let signal = self.signal(&name, out);
        let is_latency = upstream_signal(name.value)
            .is_some_and(|(_, measure)| measure == UpstreamMeasure::Latency);
        let (kind, example) = if is_latency {
            (LATENCY, "\"200ms\"")
        } else {
            (LEVEL, "\"70%\"")
        };
        if !kind.accepts(below.value) {
            let message = format!("\"{}\" is not a valid `below`", shown(below.value));
            let Mismatch { label, meant } = kind.mismatch(below.value, example);
            let meant = meant.map_or(example.to_owned(), |meant| format!("\"{meant}\""));
            out.error(codes::EXTRA, below.at, message, label)
                .help(format!("write for example below = {meant}"));
            return None;
        }
        let level = match kind {
            Scalar::Span { .. } => below.value.parse().ok().and_then(micros),
            _ => percentage(below.value).map(|percent| percent * PPM_OF_PERCENT),
        };
        Some(Gate {
            signal: signal?,
            below: level?,
            text: below.value.into(),
        })
    }

    /// Returns the signal of that name; reports a name that no signal can have.
    fn signal(&mut self, name: &At<&str>, out: &mut Findings<'_>) -> Option<Arc<Signal>> {
        if let Some(known) = self.found.iter().find(|known| known.name() == name.value) {
            return Some(Arc::clone(known));
        }
        if let Some((label, help)) = self.unknown(name.value, out) {
            let message = format!("no signal is called `{}`", shown(name.value));
            out.error(codes::SIGNAL, name.at.clone(), message, label)
                .help(help);
            return None;
        }
        if self.found.len() == MAX_SIGNALS {
            let message = format!("the policy has more than {MAX_SIGNALS} signals");
            let at = name.at.clone();
            out.error(codes::TOO_MANY, at, message, "one more than allowed")
                .help("let several limits share a signal");
            return None;
        }
        let new = Arc::new(Signal::new(name.value));
        self.found.push(Arc::clone(&new));
        Some(new)
    }

    /// Returns why no signal has the name, and what to write instead.
    fn unknown(&self, name: &str, out: &Findings<'_>) -> Option<(&'static str, String)> {
        let Some((route, _)) = upstream_signal(name) else {
            let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            if name.starts_with("upstream.") {
                let label = "`latency` and `errors` of an upstream are measured";
                return Some((label, "write signal = \"upstream.latency\"".into()));
            }
            let is_name = (1..=40).contains(&name.len()) && name.bytes().all(plain);
            let label = "expected 1 to 40 of a-z, 0-9 and -";
            let help = format!("write signal = \"{LOAD}\" for the load of this machine");
            return (!is_name).then_some((label, help));
        };
        let Some(proxy) = self.proxy else {
            let label = "only the proxy listener measures upstreams, and the policy has none";
            let help = "write [listen.proxy] with upstream = \"http://127.0.0.1:3000\", or push a \
                        level of your own by PUT /v1/signals/upstream, and write signal = \"upstream\"";
            return Some((label, help.into()));
        };
        let routes = || proxy.routes.iter().map(|it| &*it.name);
        if route.is_empty() || routes().any(|known| known == route) {
            return None;
        }
        let measure = name.rsplit('.').next().unwrap_or_default();
        let help = match out.nearest(route, routes()) {
            Some(near) => format!("did you mean signal = \"upstream.{near}.{measure}\"?"),
            None => {
                format!("write signal = \"upstream.{measure}\" for `upstream` of [listen.proxy]")
            }
        };
        Some(("no route of [listen.proxy] has this name", help))
    }
}

fn micros(latency: Nanos) -> Option<u32> {
    u32::try_from(latency.as_nanos() / 1_000).ok()
}
