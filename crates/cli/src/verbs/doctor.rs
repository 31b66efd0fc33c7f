//! `doctor`: whether the shared store can hold limits, and what to do otherwise.

use std::path::{Path, PathBuf};

use clap::Args;
use ratekeeper_core::Origin;
use ratekeeper_policy::RedisSettings;
use ratekeeper_server::{StoreChoice, StoreSettings, redis_config};
use ratekeeper_store::{RedisConfig, RedisStore};
use serde_json::json;
use tokio::signal::ctrl_c;

use crate::doctor::{self, Finding, Grade, Judgement, PATIENCE};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::source::{self, PolicySource};
use crate::store::StoreArgs;
use crate::{Exit, Failure, Output, Result, words};

/// Check the shared store: reach, version, scripts, clock, eviction, persistence, latency
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    /// The policy whose [store.redis] is checked [default: ./ratekeeper.toml]
    policy: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
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
  ratekeeper doctor --store redis://127.0.0.1:6379 --deny-warnings
  ratekeeper doctor --store redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster

Name the source of a password in [store.redis], or set RATEKEEPER_STORE to
redis://:PASSWORD@HOST:PORT, because every user of the machine can read a command line.

Exit codes: 0 no failure; 1 a failure, or a warning with --deny-warnings; 2 usage, a policy that
cannot be read.";

impl DoctorArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let chosen = self.store.choice()?;
        let (settings, mut findings) = self.settings(chosen.as_ref(), output)?;
        let Some(settings) = settings else {
            let nothing = "each process counts in its memory: set [store.redis] to share counters";
            findings.insert(0, Finding::new("store", Judgement::ok(nothing)));
            return self.write_report("memory", &findings, output);
        };
        let mut config = redis_config(&settings, Origin::UNIX)?;
        config.prefix = doctor::scratch_prefix();
        config.deadline = PATIENCE;
        let redis = &settings.redis;
        let place = place(redis);
        if !self.json {
            output.talk(format!(
                "{}, prefix {}, deadline {}",
                paint(NAME, &place),
                redis.prefix,
                words::span(redis.deadline)
            ));
        }
        findings.splice(0..0, examine(config, redis, output)?);
        self.write_report(&place, &findings, output)
    }

    /// Returns the store to check, `None` if the counters are in memory, and a finding for a policy
    /// file that every user of the machine may write.
    fn settings(
        &self,
        chosen: Option<&StoreChoice>,
        output: &mut Output,
    ) -> Result<(Option<StoreSettings>, Vec<Finding>)> {
        let named = self.policy.is_some() || Path::new(source::DEFAULT_FILE).exists();
        if chosen.is_some() && !named {
            return Ok((StoreSettings::of(None, chosen), Vec::new()));
        }
        let path = source::path_or_default(self.policy.clone())?;
        let policy = PolicySource::read(&path)?.policy(Origin::UNIX, output)?;
        let settings = StoreSettings::of(policy.settings.redis.as_ref(), chosen);
        let home = path.parent().unwrap_or(Path::new(""));
        let settings = settings.map(|settings| settings.at_home(home));
        Ok((settings, doctor::open_policy(&path).into_iter().collect()))
    }

    fn write_report(&self, place: &str, findings: &[Finding], output: &mut Output) -> Result<Exit> {
        let worst = findings.iter().map(|found| found.judged.grade).max();
        let worst = worst.unwrap_or(Grade::Ok);
        if self.json {
            output.json(&json!({ "store": place, "result": worst, "checks": findings }))?;
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
}

/// Returns where the store is, without its secrets.
fn place(redis: &RedisSettings) -> String {
    let urls = redis.urls.join(", ");
    match &redis.sentinel {
        Some(sentinel) => format!("{} of sentinels {urls}", sentinel.master),
        None => urls,
    }
}

/// Writes one line, and its hint.
fn show(found: &Finding, output: &mut Output) -> Result<()> {
    let judged = &found.judged;
    let (style, grade) = match judged.grade {
        Grade::Ok => (GOOD, "ok"),
        Grade::Warning => (WARN, "warning"),
        Grade::Failure => (BAD, "failure"),
    };
    // Padded before it is painted, because escapes have no width.
    let grade = paint(style, &format!("{grade:<7}"));
    output.line(format!("{grade}  {:<11}  {}", found.check, judged.message))?;
    match &judged.hint {
        Some(hint) => output.line(format!("           hint: {hint}")),
        None => Ok(()),
    }
}

/// Runs the checks, and removes the keys that they wrote, however they end.
fn examine(
    config: RedisConfig,
    redis: &RedisSettings,
    output: &mut Output,
) -> Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| Failure::new(format!("cannot start the runtime: {why}")))?;
    runtime.block_on(async {
        let store = RedisStore::new(config).map_err(Failure::new)?;
        let findings = tokio::select! {
            findings = doctor::examine(&store, redis) => Some(findings),
            _ = ctrl_c() => None,
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
