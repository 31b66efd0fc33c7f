//! Extras: `soft` and `elastic`, compiled to a second limit that is asked when the first denies.
//!
//! ```text
//!   limit = "100/1m"   soft    = { extra = "10%" }                    messages+soft     10/1m
//!   limit = "100/1m"   elastic = { up_to = "200/1m", while = .. }     messages+elastic  100/1m
//! ```
//!
//! The second limit has the algorithm and the period of the first, and counters of its own. So the
//! bound of both is the sum of two bounds. An elastic limit follows a signal:
//!
//! ```text
//!   load                                                the machine
//!   upstream.latency        upstream.errors             `upstream` of [listen.proxy]
//!   upstream.ROUTE.latency  upstream.ROUTE.errors       that of a route
//!   any other name                                      pushed to the admin listener
//! ```

use std::sync::Arc;

use ratekeeper_core::{Denials, Nanos};

use super::draft::{Extra, ExtraShare};
use crate::config::document::scalar::{Scalar, percentage};
use crate::config::fields::MAX_PERCENT;
use crate::config::variants::{VariantReader, extra_quantity, variant};
use crate::config::{
    At, Draft, Quantity, Table, Text, ValueError, codes, error, first_reason, is_excluded, refuse,
};
use crate::model::rules::signal::{
    Gate, LOAD, PPM_OF_PERCENT, Signal, UpstreamMeasure, upstream_signal,
};
use crate::{ProxySettings, Role, Rule, Settings, Variants};

/// Maximum number of signals of one policy: names are compared one by one when they are set.
const MAX_SIGNALS: usize = 100;
/// `below` of a latency. Requests that wait are known to have waited 10 s at most.
const LATENCY: Scalar = Scalar::Span {
    least: Nanos::from_millis(1),
    most: Nanos::from_secs(10),
};
/// `below` of another signal.
const LEVEL: Scalar = Scalar::Percent { most: MAX_PERCENT };

/// Reads `soft` or `elastic` of a limit; `None` if it has neither, or it is reported as wrong.
pub(crate) fn soft_or_elastic(
    draft: &mut Draft<'_>,
    signals: &mut SignalReader<'_>,
    reader: &VariantReader<'_>,
) -> Option<()> {
    let table = draft.table;
    let word = if table.has("soft") { "soft" } else { "elastic" };
    let written = table.table(word).filter(|_| !is_excluded(table, word))?;
    let what = format!("cannot be {word}");
    draft.unless(&what, codes::EXTRA, written.at(), refused(draft))?;
    let (role, share) = match word {
        "soft" => (Role::Soft, soft(written)?),
        _ => elastic(draft, written, signals)?,
    };
    let extra = extra(draft, word, role, share, reader)?;
    draft.extra = Some(Box::new(extra));
    Some(())
}

/// Reports a limit that cannot have an extra.
fn refused(draft: &Draft<'_>) -> Option<ValueError> {
    first_reason! {
        !draft.table.has("limit") => "needs a number in a period",
            "write the limit as limit = \"100/1m\"";
        draft.denials == Denials::Counted => "cannot be combined with `count_denied`",
            "write count_denied = false in this limit";
        draft.rule.correction.is_some() => "cannot be combined with an estimate",
            "write cost = \"attr:tokens\" without `reserve`";
    }
}

/// `soft = { extra = "10%" }` or `soft = { extra = 10 }`
fn soft(table: Table<'_>) -> Option<At<'_, ExtraShare>> {
    let percent = || table.percent("extra").map(ExtraShare::Percent);
    let share = table.number("extra").map(ExtraShare::Permits);
    Some(At::new(share.or_else(percent)?, table.place("extra")))
}

/// `elastic = { up_to = "200/1m", while = { signal = "load", below = "70%" } }`
fn elastic<'a>(
    draft: &Draft<'a>,
    table: Table<'a>,
    signals: &mut SignalReader<'_>,
) -> Option<(Role, At<'a, ExtraShare>)> {
    let gate = table.table("while")?;
    let gate = signals.gate(gate);
    let up_to = table.text("up_to")?;
    let base = draft.table.text("limit")?;
    let most = match (up_to.value.split_once('/'), base.value.split_once('/')) {
        (Some((most, period)), Some((number, own))) if period == own => {
            let numbers = most.parse().ok().zip(number.parse().ok());
            let larger = numbers.filter(|(most, number): &(u64, u64)| most > number);
            larger.map(|(most, _)| most)
        }
        _ => None,
    };
    let Some(most) = most else {
        let message = format!("{draft} cannot be elastic up to \"{up_to}\"");
        let label = format!("must be more than \"{base}\", in the same period");
        let doubled = base.value.split_once('/').and_then(|(number, period)| {
            let number: u64 = number.parse().ok()?;
            Some(format!("{}/{period}", number.checked_mul(2)?))
        });
        let doubled = doubled.as_deref().unwrap_or("200/1m");
        error(codes::EXTRA, up_to.at, message, label)
            .related(base.at)
            .help(format!("write for example up_to = \"{doubled}\""));
        return None;
    };
    Some((
        Role::Elastic(gate?),
        At::new(ExtraShare::UpTo(most), up_to.at),
    ))
}

/// Compiles the extra of a limit.
pub(super) fn extra<'a>(
    draft: &Draft<'a>,
    suffix: &str,
    role: Role,
    share: At<'a, ExtraShare>,
    reader: &VariantReader<'_>,
) -> Option<Extra<'a>> {
    let base = draft.table.text("limit")?;
    let quantity = extra_quantity(draft, base.value, share, reader)?;
    Some(Extra {
        rule: beside(&draft.rule, suffix, role, &quantity),
        share,
    })
}

/// Returns a rule beside another, with a quantity and counters of its own. It has the requests and
/// the keys of the other, and no alert: that of the other sees every request.
pub(super) fn beside(own: &Rule, suffix: &str, role: Role, quantity: &Quantity) -> Rule {
    let name = format!("{}+{suffix}", own.limit.name);
    Rule {
        variants: Variants::default(),
        role,
        otherwise: Vec::new(),
        replaces: Vec::new(),
        alert: None,
        ..own.with_numbers(&variant(&own.limit, name, quantity))
    }
}

/// Reads signals, and holds those that were found.
pub(crate) struct SignalReader<'p> {
    proxy: Option<&'p ProxySettings>,
    pub(crate) found: Vec<Arc<Signal>>,
}

impl<'p> SignalReader<'p> {
    pub(crate) fn new(settings: &'p Settings) -> Self {
        Self {
            proxy: settings.listen.proxy.as_ref(),
            found: Vec::new(),
        }
    }

    /// Reads `{ signal = "load", below = "70%" }`. Returns `None` after a finding.
    fn gate(&mut self, table: Table<'_>) -> Option<Gate> {
        let name = table.text("signal")?;
        let below = table.text("below")?;
        let signal = self.signal(&name);
        let is_latency = upstream_signal(name.value)
            .is_some_and(|(_, measure)| measure == UpstreamMeasure::Latency);
        let (kind, example) = if is_latency {
            (LATENCY, "\"200ms\"")
        } else {
            (LEVEL, "\"70%\"")
        };
        if !kind.accepts(below.value) {
            let message = format!("\"{below}\" is not a valid `below`");
            let meant = kind.meant(below.value, example);
            let meant = meant.map_or(example.to_owned(), |meant| format!("\"{meant}\""));
            error(codes::EXTRA, below.at, message, kind.expected())
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
    fn signal(&mut self, name: &Text<'_>) -> Option<Arc<Signal>> {
        if let Some(known) = self.found.iter().find(|known| known.name() == name.value) {
            return Some(Arc::clone(known));
        }
        if let Some(reason) = self.unknown(name) {
            let message = format!("no signal is called `{name}`");
            refuse(codes::SIGNAL, name.at, message, reason);
            return None;
        }
        if self.found.len() == MAX_SIGNALS {
            let message = format!("the policy has more than {MAX_SIGNALS} signals");
            error(codes::TOO_MANY, name.at, message, "one more than allowed")
                .help("let several limits share a signal");
            return None;
        }
        let new = Arc::new(Signal::new(name.value));
        self.found.push(Arc::clone(&new));
        Some(new)
    }

    /// Returns why no signal has the name.
    fn unknown(&self, text: &Text<'_>) -> Option<ValueError> {
        let name = text.value;
        let of_upstream = upstream_signal(name).map(|(route, _)| route);
        let route = of_upstream.unwrap_or_default();
        let measure = name.rsplit('.').next().unwrap_or_default();
        let routes = || {
            let proxy = self.proxy.into_iter();
            proxy.flat_map(|proxy| &proxy.routes).map(|it| &*it.name)
        };
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = (1..=40).contains(&name.len()) && name.bytes().all(plain);
        first_reason! {
            of_upstream.is_none() && name.starts_with("upstream.") =>
                "`latency` and `errors` of an upstream are measured",
                "write signal = \"upstream.latency\"";
            of_upstream.is_none() && !is_name => "expected 1 to 40 of a-z, 0-9 and -",
                format!("write signal = \"{LOAD}\" for the load of this machine");
            of_upstream.is_some() && self.proxy.is_none() =>
                "only the proxy listener measures upstreams, and the policy has none",
                "write [listen.proxy] with upstream = \"http://127.0.0.1:3000\", or push a level of \
                 your own by PUT /v1/signals/upstream, and write signal = \"upstream\"";
            !route.is_empty() && !routes().any(|known| known == route) =>
                "no route of [listen.proxy] has this name",
                match text.at.findings.nearest(route, routes()) {
                    Some(near) => format!("did you mean signal = \"upstream.{near}.{measure}\"?"),
                    None => format!(
                        "write signal = \"upstream.{measure}\" for `upstream` of [listen.proxy]"
                    ),
                };
        }
    }
}

fn micros(latency: Nanos) -> Option<u32> {
    u32::try_from(latency.as_nanos() / 1_000).ok()
}
