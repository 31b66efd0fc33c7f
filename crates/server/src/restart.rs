//! Restart: the settings that a running service cannot change.

use ratekeeper_policy::{Listen, ProxySettings, Settings};

/// Returns the settings that a running service cannot change.
pub(crate) fn waits_for_restart(
    before: &Settings,
    now: &Settings,
) -> impl Iterator<Item = &'static str> {
    let (listen, proxy) = (&before.listen, &now.listen.proxy);
    let fixed = |proxy: &Option<ProxySettings>| {
        let proxy = proxy.as_ref();
        proxy.map(|proxy| (proxy.address.clone(), proxy.tls.is_empty()))
    };
    let is_elsewhere = fixed(&listen.proxy) != fixed(proxy);
    let others = Listen {
        proxy: proxy.clone(),
        ..listen.clone()
    };
    let state = before.state != now.state || before.state_every != now.state_every;
    [
        (others != now.listen, "[listen]"),
        (is_elsewhere, "the address or TLS of [listen.proxy]"),
        (
            before.memory_budget != now.memory_budget,
            "the memory budget",
        ),
        (state, "the folder of the state"),
        (before.redis != now.redis, "[store.redis]"),
        (before.alerts != now.alerts, "[alerts]"),
        (before.otlp != now.otlp, "[otlp]"),
    ]
    .into_iter()
    .filter_map(|(changed, what)| changed.then_some(what))
}
