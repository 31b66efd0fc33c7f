//! Routes: the other receivers of the gateway, and the limits that send requests to them.
//!
//! ```text
//!   [[listen.proxy.route]]  name = "spare"  upstream = "http://127.0.0.1:4000"
//!   [[limit]]               name = "server"  on_limit = "route:spare"
//!
//!   request --> server: allows --> upstream
//!                    \'- denies --> spare
//! ```

use std::collections::HashSet;

use ratekeeper_core::Algorithm as _;

use crate::config::limit::priority::priority;
use crate::config::limit::requests::{name, requests};
use crate::config::{
    Draft, PolicyFiles, Spot, Table, ValueError, codes, error, first_reason, invalid, is_excluded,
    shown, warning,
};
use crate::{
    AdaptiveBounds, Facts, Field, Matcher, PathCase, Pattern, Route, Settings, UpstreamUrl,
};

/// Reads `[[listen.proxy.route]]`; `usual` has the values of a route without its own.
pub(super) fn routes(proxy: Table<'_>, usual: &Route, files: &PolicyFiles) -> Vec<Route> {
    let mut seen = HashSet::new();
    let mut routes: Vec<Route> = Vec::new();
    for table in proxy.tables("route") {
        let named = table.text("name").filter(|text| name(text, "route"));
        let upstream = upstream(table);
        let has_match = table.has("match");
        let matcher = has_match.then(|| requests(table, files).matcher);
        let adaptive_concurrency = if table.has("adaptive_concurrency") {
            adaptive_concurrency(table, files) // `None` for "off"
        } else {
            usual.adaptive_concurrency.clone()
        };
        let max_body = table.size("max_body");
        let (Some(named), Some(upstream)) = (named, upstream) else {
            continue;
        };
        if !seen.insert(named.value.to_owned()) {
            let message = format!("two routes are called `{}`", named.value);
            error(codes::GATEWAY, named.at, message, "the name must be unique")
                .help("give each route a name of its own");
            continue;
        }
        let takes_all = |route: &&Route| {
            let both = route.matcher.as_ref().zip(matcher.as_ref());
            both.is_some_and(|(first, next)| {
                let is_any = !first.fields.is_empty() && first.matches_all();
                is_any || has_paths_of(first, next)
            })
        };
        if let Some(first) = routes.iter().find(takes_all) {
            let message = format!("no request reaches the route `{}`", named.value);
            let label = format!(
                "route `{}` above it matches all of its requests",
                first.name
            );
            warning(codes::ROUTE, table.place("match"), message, label)
                .help("move it up: the first route that matches receives the request");
        }
        routes.push(Route {
            name: named.value.into(),
            matcher,
            upstream,
            max_body: max_body.or(usual.max_body),
            adaptive_concurrency,
        });
    }
    routes
}

/// Returns true if `first` is for paths alone, and for all of `next`. Paths with `**` in `next` are
/// not compared.
fn has_paths_of(first: &Matcher, next: &Matcher) -> bool {
    let [(Field::Path, own)] = &first.fields[..] else {
        return false;
    };
    let is_taken = |it: &Pattern| {
        let path = it.text();
        let of_path = Facts {
            path,
            ..Facts::default()
        };
        !it.negated && !path.contains("**") && first.matches(&of_path)
    };
    let mut fields = next.fields.iter();
    first.path_case == next.path_case
        && own.iter().all(|it| !it.negated)
        && fields.any(|(field, paths)| *field == Field::Path && paths.iter().all(is_taken))
}

/// Reads `upstream`; `None` if an address is refused.
pub(super) fn upstream(table: Table<'_>) -> Option<Vec<UpstreamUrl>> {
    let written = table.texts("upstream");
    let label = "expected http://HOST:PORT, https://, h2c:// or unix:/PATH";
    let mut urls: Vec<UpstreamUrl> = Vec::with_capacity(written.len());
    for text in &written {
        match text.value.parse() {
            Ok(url) => urls.push(url),
            Err(error) => invalid(codes::GATEWAY, text.at, error, label),
        }
    }
    (urls.len() == written.len() && !urls.is_empty()).then_some(urls)
}

/// Reads `adaptive_concurrency`.
pub(super) fn adaptive_concurrency(
    table: Table<'_>,
    files: &PolicyFiles,
) -> Option<AdaptiveBounds> {
    let bounds = table.table("adaptive_concurrency")?;
    let (min, max) = (bounds.number("min")?, bounds.number("max")?);
    if min > max {
        let message = format!("min {min} is larger than max {max}");
        let label = "no number is within these bounds";
        error(codes::GATEWAY, bounds.at(), message, label)
            .help("write for example adaptive_concurrency = { min = 10, max = 500 }");
        return None;
    }
    let first = bounds.table("priority");
    Some(AdaptiveBounds {
        min,
        max,
        priority: first.and_then(|it| priority(it, PathCase::default(), files)),
    })
}

/// Reads `on_limit` of a limit; `None` if it has none, or it is reported as wrong.
pub(crate) fn on_limit(draft: &mut Draft<'_>, settings: &Settings) -> Option<()> {
    let written = draft.table.text("on_limit");
    let text = written.filter(|_| !is_excluded(draft.table, "on_limit"))?;
    let Some(route) = text.value.strip_prefix("route:") else {
        let message = format!("\"{text}\" is not the name of a route");
        error(codes::ROUTE, text.at, message, "expected \"route:NAME\"")
            .help(format!("write on_limit = \"route:{text}\""));
        return None;
    };
    let proxy = settings.listen.proxy.iter();
    let known = proxy.flat_map(|proxy| &proxy.routes).map(|it| &*it.name);
    let known: Vec<&str> = known.collect();
    let reason = refused(draft, route, &known, text.at);
    let what = format!("cannot send requests to the route `{}`", shown(route));
    draft.unless(&what, codes::ROUTE, text.at, reason)?;
    draft.rule.on_limit = Some(route.into());
    Some(())
}

/// Warns of routes without `match` that no limit sends requests to.
pub(crate) fn unnamed(root: Table<'_>, drafts: &[Draft<'_>]) {
    let written = root.table("listen").and_then(|it| it.table("proxy"));
    for table in written.into_iter().flat_map(|it| it.tables("route")) {
        let Some(name) = table.text("name").filter(|_| !table.has("match")) else {
            continue;
        };
        let sends = |draft: &Draft<'_>| draft.rule.on_limit.as_deref() == Some(name.value);
        if !drafts.iter().any(sends) {
            let message = format!("no request reaches the route `{name}`");
            let label = "it has no `match`, and no limit names it in `on_limit`";
            let help = "write the requests that it is for: match = { path = \"/api/**\" }";
            warning(codes::ROUTE, name.at, message, label).help(help);
        }
    }
}

/// Returns why a limit cannot send requests to a route.
fn refused(draft: &Draft<'_>, route: &str, known: &[&str], at: Spot<'_>) -> Option<ValueError> {
    let algorithm = draft.rule.limit.algorithm.name();
    let other = || match known {
        [] => format!(
            "write [[listen.proxy.route]] with name = \"{}\" and upstream = \
             \"http://127.0.0.1:4000\"",
            shown(route)
        ),
        known => format!("write one of: {}", known.join(", ")),
    };
    first_reason! {
        draft.is_asked() =>
            "another limit asks it by `otherwise`, and decides what a refusal does",
            "leave out `on_limit`";
        draft.rule.is_for_descriptors() =>
            "the limit is for descriptors, and the gateway has none",
            "match requests, by path or host";
        algorithm == "smooth bursty" =>
            format!("a {algorithm} limit lets requests wait, and denies none"),
            "write limit = \"100/1m\", a bucket, or algorithm = \"sliding-window-log\"";
        !known.contains(&route) => "no route has this name",
            match at.findings.nearest(route, known.iter().copied()) {
                Some(near) => format!("did you mean on_limit = \"route:{near}\"?"),
                None => other(),
            };
    }
}
