//! Reload: a new policy text becomes the policy in force, or changes nothing.
//!
//! ```text
//!   signal, request, file --> read --> same text as last time? --> nothing
//!                                  --> errors? --> old policy stays, findings reported
//!                                  --> installed at once, for the next request of every key
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::Weak;

use ratekeeper::Clock;
use ratekeeper_core::{Origin, Time};
use ratekeeper_policy::config::{self, Colour, Context, Diagnostic};
use ratekeeper_policy::{Listen, Policy, ProxySettings, Rule, RuleMode, Settings};

use super::SeenFile;
use super::envoy_files::compile;
use super::policy_file::writable_by_all;
use super::policy_text::PolicyText;
use crate::addresses;
use crate::context::ServiceContext;
use crate::observe::metrics::ConfigSource;
use crate::{Config, Event, StartError, Trigger};

/// The policy a service starts with.
#[derive(Debug, Default)]
pub(crate) struct FirstPolicy {
    pub(crate) policy: Policy,
    /// Lints, rendered.
    pub(crate) notices: Vec<String>,
}

/// The result of a reload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reloaded {
    /// The text is the one in force.
    Unchanged { version: u32 },
    /// A new policy is in force.
    Applied { from: u32, to: u32 },
}

/// Why a reload changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rejected {
    /// Text for people.
    pub(crate) report: String,
    /// Findings for programs; empty if the file could not be read.
    pub(crate) findings: Vec<Diagnostic>,
    /// The version that stays.
    pub(crate) version: u32,
}

/// Reads the policy of a service that starts.
pub(crate) fn load_first(
    config: &Config,
    clock: &impl Clock,
) -> Result<(FirstPolicy, SeenFile), StartError> {
    let Some(path) = config.policy.as_deref() else {
        return match config.envoy_config {
            Some(_) => Ok(<_>::default()), // it has the limits of these files only
            None => Err(StartError::NoPolicy),
        };
    };
    let text = PolicyText::read(path, None).map_err(|reason| StartError::Unreadable {
        path: path.to_owned(),
        reason,
    })?;
    let context = Context {
        origin: clock.origin(),
        listeners: addresses::listeners(config),
    };
    let judged = judged(path, &text, context, clock.now());
    let mut first = judged.map_err(|(report, findings)| StartError::Policy { report, findings })?;
    if config.shadow {
        first.policy.rules.shadow();
    }
    let text = Arc::new(text);
    let seen = SeenFile {
        last: Some(Arc::clone(&text)),
        in_force: text,
        started_with: first.policy.settings.clone(),
        lacks_files: false,
    };
    Ok((first, seen))
}

/// Compiles a text; or returns the findings, also rendered.
fn judged(
    path: &Path,
    text: &PolicyText,
    context: Context,
    now: Time,
) -> Result<FirstPolicy, (String, Vec<Diagnostic>)> {
    let (name, text_of) = (path.to_string_lossy(), &text.text);
    let loaded = config::parse_file(text_of, &text.files, context, now);
    let loaded = loaded.map_err(|findings| {
        let report = config::render(&name, text_of, &findings, Colour::Never);
        (report, findings)
    })?;
    let notices = config::brief(&name, text_of, &loaded.warnings, Colour::Never).into_iter();
    let notices = notices.chain(writable_by_all(path));
    let notices = notices.chain(text.paths(path).filter_map(|path| writable_by_all(&path)));
    Ok(FirstPolicy {
        notices: notices.chain(on_loan(&loaded.policy)).collect(),
        policy: loaded.policy,
    })
}

/// Returns one notice that names the limits which a check does not charge: those of concurrency,
/// since a check has no end at which a permit could come back.
fn on_loan(policy: &Policy) -> Option<String> {
    let enforced = |rule: &&Rule| rule.mode != RuleMode::Off;
    let lends = |rule: &&Rule| rule.limit.algorithm.concurrency().is_some();
    let rules = policy.rules.iter().filter(enforced).filter(lends);
    let names: Vec<_> = rules.map(|rule| format!("`{}`", rule.limit.name)).collect();
    let names = match names.as_slice() {
        [] => return None,
        [one] => format!("limit {one}"),
        [one, two] => format!("limits {one} and {two}"),
        [one, rest @ ..] => format!("limit {one} and {} more", rest.len()),
    };
    Some(format!(
        "{names}: permits are taken by POST /v1/acquire, the proxy listener and Envoy; /v1/check \
         and /v1/auth only check whether one is free"
    ))
}

impl ServiceContext {
    /// Reads the policy file and the configuration of Envoy's rate limit service again, and puts
    /// those in force that are new and good.
    pub(crate) fn reload(&self, trigger: Trigger) -> Result<Reloaded, Rejected> {
        let reloaded = match &self.source.path {
            Some(path) => self.reload_policy(path, trigger),
            None => Ok(Reloaded::Unchanged {
                version: self.keeper.policy().version,
            }),
        }?;
        let envoy = self.reload_envoy(trigger);
        envoy.map_err(|report| self.rejected(report, Vec::new()))?;
        Ok(reloaded)
    }

    /// Reads the policy file again and puts it in force if it is good.
    ///
    /// A text seen before is not judged again, unless a signal or a request asks for it.
    fn reload_policy(&self, path: &Path, trigger: Trigger) -> Result<Reloaded, Rejected> {
        // Held to the end: two reloads never overtake each other.
        let mut seen = self.source.last_seen.lock();
        let version = self.keeper.policy().version;
        let text = match self.read_policy(path, &seen) {
            Ok(text) => Arc::new(text),
            Err(reason) => {
                let again = seen.last.take().is_none();
                if again && trigger == Trigger::File {
                    return Ok(Reloaded::Unchanged { version });
                }
                let path = path.display();
                let report = format!("cannot read the policy `{path}`: {reason}");
                return Err(self.reject(trigger, self.rejected(report, Vec::new())));
            }
        };
        let again = seen.last.as_ref() == Some(&text);
        seen.last = Some(Arc::clone(&text));
        if text == seen.in_force {
            self.end_refusals(ConfigSource::Policy);
            return Ok(Reloaded::Unchanged { version });
        }
        if again && trigger == Trigger::File && !seen.lacks_files {
            return Ok(Reloaded::Unchanged { version });
        }
        let loaded = self.judge(path, &text);
        let loaded = loaded.map_err(|why| self.reject(trigger, why))?;
        let prepared = self.prepare_gateway(&loaded.policy.settings);
        seen.lacks_files = prepared.is_err();
        let replace = match prepared {
            Err(_) if again && trigger == Trigger::File => {
                return Ok(Reloaded::Unchanged { version }); // said before
            }
            prepared => prepared.map_err(|why| self.reject(trigger, why))?,
        };
        replace();
        Ok(self.put_in_force(trigger, text, loaded, &mut seen))
    }

    /// Prepares the gateway for new settings; the result puts them in force.
    pub(super) fn prepare_gateway(
        &self,
        settings: &Settings,
    ) -> Result<Box<dyn FnOnce()>, Rejected> {
        let Some(proxy) = self.proxy.get().and_then(Weak::upgrade) else {
            return Ok(Box::new(|| ()));
        };
        let prepared = proxy.prepare(settings);
        prepared.map_err(|why| self.rejected(why.to_string(), Vec::new()))
    }

    /// Reads the policy file and the files that it names.
    pub(crate) fn read_policy(&self, path: &Path, seen: &SeenFile) -> Result<PolicyText, String> {
        let before = seen.last.as_ref().unwrap_or(&seen.in_force);
        let (path, before) = (path.to_owned(), Arc::clone(before));
        self.source
            .reader
            .read(move || PolicyText::read(&path, Some(&before)))
    }

    /// Puts a text in force that was judged to be good.
    pub(crate) fn put_in_force(
        &self,
        trigger: Trigger,
        text: Arc<PolicyText>,
        loaded: FirstPolicy,
        seen: &mut SeenFile,
    ) -> Reloaded {
        seen.in_force = text;
        let from = self.keeper.policy().version;
        let settings = loaded.policy.settings.clone();
        let to = self.keeper.install(loaded.policy);
        let policy = self.keeper.policy();
        let ended = |notice| self.report(notice);
        self.observers.install(&policy, self.unix_seconds(), ended);
        self.observers.metrics.reload_applied();
        self.end_refusals(ConfigSource::Policy);
        let sha = Arc::clone(&policy.sha);
        self.sink.emit(&Event::Reloaded {
            trigger,
            from,
            to,
            sha,
        });
        self.sink.notices(loaded.notices);
        for what in waits_for_restart(&seen.started_with, &settings) {
            let text = format!("{what} changed: restart the service to apply it");
            self.sink.notice(text);
        }
        Reloaded::Applied { from, to }
    }

    /// Puts the policy in force once more, with the windows that the wall clock has now. Quota
    /// already used is charged to the windows that are current now, as at any reload.
    pub(crate) fn follow_wall_clock(&self, origin: Origin) {
        let mut seen = self.source.last_seen.lock();
        self.keeper.set_origin(origin);
        self.source.envoy_files.seen.lock().last = None;
        let _ = self.reload_envoy(Trigger::Clock); // the event has the result
        if let Some(path) = &self.source.path {
            let text = Arc::clone(&seen.in_force);
            match self.judge(path, &text) {
                Ok(mut loaded) => {
                    loaded.notices.clear(); // known since it was read
                    self.put_in_force(Trigger::Clock, text, loaded, &mut seen);
                }
                // It was good before, but a zone may not reach so far.
                Err(why) => {
                    self.reject(Trigger::Clock, why);
                    seen.last = None;
                }
            }
        }
    }

    /// Returns why the policy in force stays.
    fn rejected(&self, report: String, findings: Vec<Diagnostic>) -> Rejected {
        Rejected {
            report,
            findings,
            version: self.keeper.policy().version,
        }
    }

    fn reject(&self, trigger: Trigger, why: Rejected) -> Rejected {
        self.observers.metrics.reload_rejected(ConfigSource::Policy);
        self.sink.emit(&Event::ReloadRejected {
            trigger,
            version: why.version,
            report: why.report.clone(),
        });
        why
    }

    /// Compiles a text; its limits are in shadow mode if the process is.
    pub(crate) fn judge(&self, path: &Path, text: &PolicyText) -> Result<FirstPolicy, Rejected> {
        let context = Context {
            origin: self.origin(),
            listeners: self.source.listeners,
        };
        let judged = judged(path, text, context, self.now());
        let mut judged = judged.map_err(|(report, findings)| self.rejected(report, findings))?;
        if self.source.shadow {
            judged.policy.rules.shadow();
        }
        Ok(judged)
    }

    /// Reads the configuration of the rate limit service again, and puts it in force if it
    /// is new and good.
    ///
    /// # Errors
    /// The errors; the old configuration stays in force.
    fn reload_envoy(&self, trigger: Trigger) -> Result<(), String> {
        let policy = self.keeper.policy();
        let Some(path) = self.source.envoy_files.path(&policy.settings) else {
            return Ok(());
        };
        // Held to the end: two reloads never overtake each other.
        let mut seen = self.source.envoy_files.seen.lock();
        let files = match self.source.envoy_files.read(path) {
            Ok(files) => files,
            Err(reason) => {
                let again = seen.logged.replace(reason.clone()) == Some(reason.clone());
                if again && trigger == Trigger::File {
                    return Ok(());
                }
                return Err(self.reject_envoy(trigger, reason));
            }
        };
        seen.logged = None;
        if seen.applied {
            self.end_refusals(ConfigSource::Envoy);
        }
        let asked = (files, self.source.envoy_files.settings(&policy.settings));
        let again = seen.last.as_ref() == Some(&asked);
        if again && (seen.applied || trigger == Trigger::File) {
            return Ok(());
        }
        let compiled = compile(&asked.0, asked.1, self.origin());
        seen.last = Some(asked);
        seen.applied = compiled.is_ok();
        match compiled {
            Ok((config, notices)) => {
                let domains = config.domain_count();
                let rules = config.rules().len();
                self.install_envoy(config);
                self.observers.metrics.reload_applied();
                self.end_refusals(ConfigSource::Envoy);
                self.sink.emit(&Event::EnvoyReloaded {
                    trigger,
                    domains,
                    rules,
                });
                self.sink.notices(notices);
                Ok(())
            }
            Err(report) => Err(self.reject_envoy(trigger, report)),
        }
    }

    fn reject_envoy(&self, trigger: Trigger, report: String) -> String {
        self.observers.metrics.reload_rejected(ConfigSource::Envoy);
        self.sink.emit(&Event::EnvoyRejected {
            trigger,
            report: report.clone(),
        });
        report
    }
}

/// Returns the settings that a running service cannot change.
fn waits_for_restart(before: &Settings, now: &Settings) -> impl Iterator<Item = &'static str> {
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
    // Files for Envoy open the gRPC listener, where no address is written.
    let opens_grpc = |it: &Settings| it.listen.grpc.is_none() && it.envoy_files.config.is_some();
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
        (before.envoy.tls != now.envoy.tls, "[envoy.tls]"),
        (
            opens_grpc(before) != opens_grpc(now),
            "the gRPC listener for the files of [envoy]",
        ),
    ]
    .into_iter()
    .filter_map(|(changed, what)| changed.then_some(what))
}

#[cfg(test)]
mod tests {
    use ratekeeper::ManualClock;

    use super::*;

    /// Returns the finding about one limit in a service with these listeners.
    fn finding(key: &str, listen: &[&str], upstream: Option<&str>, written: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "version = 1\n{written}\n[[limit]]\nname = \"a\"\nkey = [\"{key}\"]\nlimit = \"1/1s\"\n"
        );
        std::fs::write(file.path(), text).unwrap();
        let mut config = Config::new(file.path());
        config.upstream = upstream
            .map(|url| url.parse().unwrap())
            .into_iter()
            .collect();
        for text in listen {
            config = config.listen(text).unwrap();
        }
        match load_first(&config, &ManualClock::default()) {
            Ok((first, _)) => first.notices.concat().chars().take(16).collect(),
            Err(StartError::Policy { findings, .. }) => findings[0].code.to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn listeners_of_the_command_line_count() {
        let proxy = "[listen.proxy]\nupstream = \"http://127.0.0.1:1\"";
        let closed = "[listen.proxy]\nupstream = \"http://127.0.0.1:1\"\naddress = \"off\"";
        let both =
            "[listen]\nhttp = \"127.0.0.1:1\"\n[listen.proxy]\nupstream = \"http://127.0.0.1:1\"";
        let app = Some("http://127.0.0.1:1");
        for (listen, upstream, written, callers, visitors) in [
            (&[][..], None, "", "", ""),
            (&[], app, "", "RK0234", "warning[RK0314]:"),
            (&[], app, closed, "", ""),
            (&[], None, proxy, "RK0234", "warning[RK0314]:"),
            (&["http=127.0.0.1:1"], app, "", "", "warning[RK0314]:"),
            (&["http=127.0.0.1:1"], None, proxy, "", "warning[RK0314]:"),
            (
                &["grpc=127.0.0.1:1"],
                None,
                proxy,
                "RK0234",
                "warning[RK0314]:",
            ),
            (&["http=off"], None, both, "RK0234", "warning[RK0314]:"),
            (&["proxy=off"], None, proxy, "", ""),
            (
                &["proxy=127.0.0.1:1"],
                None,
                closed,
                "RK0234",
                "warning[RK0314]:",
            ),
        ] {
            let found = |key| finding(key, listen, upstream, written);
            let both = (found("attr:user"), found("header:user-agent"));
            assert_eq!(
                both,
                (callers.to_owned(), visitors.to_owned()),
                "{listen:?} {upstream:?} {written}"
            );
        }
    }

    #[test]
    fn a_setting_that_waits_for_a_restart_is_named() {
        let settings = |text: &str| {
            let context = config::Context::from(Origin::UNIX);
            let limit = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1s\"\n";
            let loaded = config::parse(&format!("version = 1\n{text}{limit}"), context);
            loaded.unwrap().policy.settings
        };
        let (files, tls) = (
            "[envoy]\nconfig = \"a\"\n",
            "tls = { certificate = \"a\", key = \"b\" }\n",
        );
        let door = "[listen]\ngrpc = \"127.0.0.1:1\"\n";
        for (before, now, what) in [
            ("", "timezone = \"UTC\"\n", &[][..]),
            ("", "[otlp]\nendpoint = \"http://a:1\"\n", &["[otlp]"]),
            ("", files, &["the gRPC listener for the files of [envoy]"]),
            (
                &format!("{door}{files}"),
                &format!("{door}{files}{tls}"),
                &["[envoy.tls]"],
            ),
            (door, "", &["[listen]"]),
        ] {
            let (old, new) = (settings(before), settings(now));
            let waits: Vec<_> = waits_for_restart(&old, &new).collect();
            assert_eq!(waits, what, "{before} -> {now}");
        }
    }
}
