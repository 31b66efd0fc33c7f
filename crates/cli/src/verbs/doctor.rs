//! `doctor`: whether the shared store can hold limits, and what to do otherwise.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::Origin;
use ratekeeper_server::{StoreChoice, StoreSettings, redis_config};
use ratekeeper_store::conformance::Difference;
use ratekeeper_store::{RedisConfig, RedisServers, RedisStore, StoreError};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::doctor::conformance::{self, Ending, StoryReport};
use crate::doctor::{self, Expected, Finding, Grade, PATIENCE};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::source::{self, PolicySource};
use crate::store::StoreArgs;
use crate::{Exit, Failure, Output, words};

/// Check the shared store: reach, version, scripts, clock, eviction, persistence, latency
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Doctor {
    /// The policy whose [store.redis] is checked [default: ./ratekeeper.toml]
    policy: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// URL of the admin listener of the running service, to show its notices of the last hour
    #[arg(long, value_name = "URL", conflicts_with = "conformance")]
    server: Option<String>,
    /// Instead, run the conformance table, which every store must pass, on this server, under
    /// a separate prefix; its keys are removed
    #[arg(long, value_name = "URL", conflicts_with_all = ["policy", "deny_warnings"])]
    conformance: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Exit with 1 for warnings too
    #[arg(long)]
    deny_warnings: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper doctor
  ratekeeper doctor edge.toml --deny-warnings
  ratekeeper doctor --store redis://127.0.0.1:6379
  ratekeeper doctor --server http://127.0.0.1:9090
  ratekeeper doctor --store redis://10.0.0.1:6379,10.0.0.2:6379 --json
  ratekeeper doctor --store redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster
  ratekeeper doctor --conformance redis://127.0.0.1:6379

Write a password into [store.redis], or into RATEKEEPER_STORE=redis://:PASSWORD@HOST:PORT,
because every user of the machine can read a command line.

Exit codes: 0 no failure; 1 a failure, or a warning with --deny-warnings; 2 usage, a policy that
cannot be read, or no service at --server.";

/// Deadline of a call in a story: long, because a slow answer is not a difference.
const STORY_DEADLINE: Duration = Duration::from_secs(5);

impl Doctor {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        if let Some(url) = &self.conformance {
            return self.conform(url, output);
        }
        let chosen = self.store.choice()?;
        let (settings, mut findings) = self.settings(chosen.as_ref(), output)?;
        if let Some(server) = &self.server {
            findings.extend(doctor::notices::ask(server)?);
        }
        let Some(settings) = settings else {
            return self.in_memory(&findings, output);
        };
        let mut config = redis_config(&settings, Origin::UNIX)?;
        config.prefix = doctor::scratch_prefix();
        config.deadline = PATIENCE;
        let place = place(&settings);
        let deadline = settings.redis.deadline;
        if !self.json {
            output.talk(format!(
                "{}, prefix {}, deadline {}",
                paint(NAME, &place),
                settings.redis.prefix,
                words::span(deadline)
            ));
        }
        let expected = Expected {
            cluster: settings.redis.cluster,
            deadline,
        };
        findings.splice(0..0, examine(config, expected, output)?);
        self.write_report(&place, &findings, output)
    }

    /// Returns the store to check, `None` if the counters are in memory, and the findings for the
    /// policy file and its databases.
    fn settings(
        &self,
        chosen: Option<&StoreChoice>,
        output: &mut Output,
    ) -> Result<(Option<StoreSettings>, Vec<Finding>), Failure> {
        let named = self.policy.is_some() || Path::new(source::DEFAULT_FILE).exists();
        if (chosen.is_some() || self.server.is_some()) && !named {
            return Ok((StoreSettings::of(None, chosen), Vec::new()));
        }
        let path = source::path_or_default(self.policy.clone())?;
        let policy = PolicySource::read(&path)?.policy(Origin::UNIX, output)?;
        let settings = StoreSettings::of(policy.settings.redis.as_ref(), chosen);
        let home = path.parent().unwrap_or(Path::new(""));
        let settings = settings.map(|settings| settings.at_home(home));
        let clock = SystemClock::new();
        let unix_seconds = clock.origin().unix_nanos(clock.now()) / 1_000_000_000;
        let mut findings = doctor::geo::ages(policy.geo.as_ref(), unix_seconds);
        findings.extend(doctor::open_policy(&path));
        Ok((settings, findings))
    }

    fn in_memory(&self, findings: &[Finding], output: &mut Output) -> Result<Exit, Failure> {
        if self.json || !findings.is_empty() {
            return self.write_report("memory", findings, output);
        }
        output.line("memory: each process counts on its own, and there is nothing to check")?;
        output.talk(
            "  hint: set [store.redis] to share counters, or check another store with --store URL",
        );
        Ok(Exit::Done)
    }

    fn write_report(
        &self,
        place: &str,
        findings: &[Finding],
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let worst = findings.iter().map(|found| found.judged.grade).max();
        let worst = worst.unwrap_or(Grade::Ok);
        if self.json {
            let checks: Vec<Value> = findings.iter().map(Finding::document).collect();
            output.json(&json!({ "store": place, "result": worst.name(), "checks": checks }))?;
        } else {
            for found in findings {
                show(found, output)?;
            }
        }
        Ok(match worst {
            Grade::Failure => Exit::Denied,
            Grade::Warning if self.deny_warnings => Exit::Denied,
            _ => Exit::Done,
        })
    }

    fn conform(&self, url: &str, output: &mut Output) -> Result<Exit, Failure> {
        let chosen: StoreChoice = url.parse()?;
        let Some(settings) = StoreSettings::of(None, Some(&chosen)) else {
            let failure = Failure::new("`memory://` is the store of this program, not a server");
            return Err(failure.hint("name a server: --conformance redis://HOST:PORT"));
        };
        let mut config = redis_config(&settings, Origin::UNIX)?;
        config.deadline = STORY_DEADLINE;
        let place = place(&settings);
        let runtime = runtime()?;
        runtime.block_on(async {
            let (reached, server) = server(&mut config).await?;
            let Some((product, now)) = server else {
                return self.write_report(&place, &[reached], output);
            };
            let scratch = doctor::scratch_prefix();
            if !self.json {
                let name = paint(NAME, &place);
                output.talk(format!("{name}, {product}, keys under {scratch}"));
            }
            let new_store = |row| conformance::store_for(&config, now, &scratch, row);
            let mut rows = Vec::new();
            let mut written = Ok(());
            let on_row = |row: &'static str, calls: usize| {
                rows.push((row, calls));
                if !self.json && written.is_ok() {
                    let calls = words::counted(calls, "call");
                    written = output.line(format!("{}  {row} ({calls})", paint(GOOD, "ok")));
                }
            };
            let report = conformance::compare(new_store, interrupted()?, on_row).await;
            let report = report.map_err(Failure::new)?;
            written?;
            self.conclude(
                &Conformed {
                    place,
                    product,
                    scratch,
                    rows,
                    report,
                },
                output,
            )
        })
    }

    fn conclude(&self, conformed: &Conformed, output: &mut Output) -> Result<Exit, Failure> {
        let StoryReport { ending, removed } = &conformed.report;
        if self.json {
            output.json(&conformed.document())?;
        } else {
            conformed.write_report(output)?;
        }
        if let Err(error) = removed {
            let scratch = &conformed.scratch;
            output.talk(format!(
                "keys that begin with {scratch} were not removed, and expire within two days: \
                 {error}"
            ));
        }
        match ending {
            Ending::Same if removed.is_ok() => Ok(Exit::Done),
            Ending::Same | Ending::Different(_) => Ok(Exit::Denied),
            Ending::Interrupted => Err(Failure::new("interrupted before the end of the table")),
        }
    }
}

/// Result of the run of all stories.
struct Conformed {
    place: String,
    product: String,
    scratch: String,
    /// Names of the rows, and the number of calls compared in each.
    rows: Vec<(&'static str, usize)>,
    report: StoryReport,
}

impl Conformed {
    fn calls(&self) -> usize {
        self.rows.iter().map(|(_, calls)| calls).sum()
    }

    fn write_report(&self, output: &mut Output) -> Result<(), Failure> {
        if let Ending::Different(difference) = &self.report.ending {
            let Difference {
                row,
                call,
                expected,
                answered,
            } = difference;
            output.line(format!("{}  {row}", paint(BAD, "failure")))?;
            output.line(format!("    {call}"))?;
            output.line(format!("    expected {expected}"))?;
            output.line(format!("    answered {answered}"))?;
            output.talk(
                "  hint: use Redis 6.2 or newer, or Valkey 7.2 or newer, without a proxy that \
                 changes replies; limits in this server would count differently from the \
                 documentation",
            );
        }
        let same = match self.report.ending {
            Ending::Same => ", all as expected",
            _ => "",
        };
        output.line(format!(
            "{} of {} rows, {} compared{same}",
            self.rows.len(),
            ratekeeper_store::conformance::rows().len(),
            words::counted(self.calls(), "call"),
        ))
    }

    fn document(&self) -> Value {
        let row =
            |(row, calls): &(&str, usize)| json!({ "row": row, "result": "ok", "calls": calls });
        let mut rows: Vec<Value> = self.rows.iter().map(row).collect();
        let result = match &self.report.ending {
            Ending::Same => "ok",
            Ending::Interrupted => "interrupted",
            Ending::Different(difference) => {
                rows.push(json!({
                    "row": difference.row,
                    "result": "failure",
                    "call": difference.call,
                    "expected": difference.expected,
                    "answered": difference.answered,
                }));
                "failure"
            }
        };
        json!({
            "store": self.place,
            "server": self.product,
            "result": result,
            "calls": self.calls(),
            "rows": rows,
        })
    }
}

/// Returns where the store is, without its secrets.
fn place(settings: &StoreSettings) -> String {
    let urls = settings.redis.urls.join(", ");
    match &settings.redis.sentinel {
        Some(sentinel) => format!("{} of sentinels {urls}", sentinel.master),
        None => urls,
    }
}

/// Writes one line, and its hint.
fn show(found: &Finding, output: &mut Output) -> Result<(), Failure> {
    let judged = &found.judged;
    let style = match judged.grade {
        Grade::Ok => GOOD,
        Grade::Warning => WARN,
        Grade::Failure => BAD,
    };
    // Padded before it is painted, because escapes have no width.
    let grade = paint(style, &format!("{:<7}", judged.grade.name()));
    output.line(format!("{grade}  {:<11}  {}", found.check, judged.message))?;
    match &judged.hint {
        Some(hint) => output.line(format!("           hint: {hint}")),
        None => Ok(()),
    }
}

/// Runs the checks, and removes the keys that they wrote, however they end.
fn examine(
    config: RedisConfig,
    expected: Expected,
    output: &mut Output,
) -> Result<Vec<Finding>, Failure> {
    runtime()?.block_on(async {
        let store = RedisStore::new(config).map_err(Failure::new)?;
        let findings = tokio::select! {
            findings = doctor::examine(&store, expected) => Some(findings),
            () = interrupted()? => None,
        };
        // If scripts do not run, nothing was written, and nothing can be removed.
        let ran = |found: &Finding| found.check == "scripts" && found.judged.grade == Grade::Ok;
        if findings
            .as_ref()
            .is_none_or(|findings| findings.iter().any(ran))
            && let Err(error) = doctor::forget(&store).await
        {
            output.talk(format!(
                "the keys of the checks were not removed, and expire within an hour: {error}"
            ));
        }
        findings.ok_or_else(|| Failure::new("interrupted before the last check"))
    })
}

/// Returns the product and its time, or `None` with the reason if no server answers. A single
/// address that is a node of a cluster is replaced by a cluster.
async fn server(
    config: &mut RedisConfig,
) -> Result<(Finding, Option<(String, ratekeeper_core::UnixMicros)>), Failure> {
    let store = RedisStore::new(config.clone()).map_err(Failure::new)?;
    let (reached, found) = doctor::first(&store).await;
    let Some(found) = found else {
        return Ok((reached, None));
    };
    if let (true, RedisServers::One(url)) = (found.cluster, &config.servers) {
        config.servers = RedisServers::Cluster(vec![url.clone()]);
    }
    let now = found
        .clock
        .map_err(|error: StoreError| Failure::new(error))?;
    Ok((reached, Some((found.product, now))))
}

fn runtime() -> Result<Runtime, Failure> {
    let made = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    made.map_err(|why| Failure::new(format!("cannot start the runtime: {why}")))
}

/// Ends on a signal to interrupt or terminate.
fn interrupted() -> Result<impl Future<Output = ()>, Failure> {
    let refused = |why: std::io::Error| Failure::new(format!("cannot receive signals: {why}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
