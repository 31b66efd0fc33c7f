//! `validate`: every finding about a policy, for people, for scripts and for CI.

mod machines;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ratekeeper::{Clock as _, SystemClock};
use ratekeeper_core::Origin;
use ratekeeper_policy::config::{self, Diagnostic, PolicyFiles, Severity};
use ratekeeper_policy::envoy::{self, EnvoySettings};
use ratekeeper_policy::{EnvoyFiles, Rule};
use ratekeeper_server::{EnvoyFile, read_envoy_files, writable_by_all};
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::source::{self, PolicySource};
use crate::verbs::explain::written;
use crate::{Exit, Failure, Output, Result, limits, words};

/// Check policies: every error and warning, with line, caret and a concrete edit
#[derive(Args)]
#[command(visible_alias = "check-config", after_help = HELP)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a command line"
)]
pub(crate) struct ValidateArgs {
    /// Policy files; `-` reads standard input [default: ./ratekeeper.toml]
    #[arg(value_name = "POLICY")]
    policies: Vec<PathBuf>,
    /// Configuration of Envoy's rate limit service: a file, or a directory of *.yaml
    #[arg(long, value_name = "PATH")]
    envoy_config: Vec<PathBuf>,
    /// Let several files of --envoy-config describe one domain
    #[arg(long, requires = "envoy_config")]
    merge_domains: bool,
    /// Format of the findings
    #[arg(long, value_enum, default_value_t = FindingsFormat::Text)]
    format: FindingsFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Exit with 1 for warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// Print the JSON Schema of the policy file, for editors
    #[arg(long, exclusive = true)]
    schema: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper validate
  ratekeeper validate --deny-warnings --format github policies/*.toml
  ratekeeper validate --format sarif ratekeeper.toml > findings.sarif
  ratekeeper validate --envoy-config /etc/ratelimit/config
  ratekeeper validate --schema > ratekeeper.schema.json

Exit codes: 0 no errors; 1 errors, or warnings with --deny-warnings; 2 a file cannot be read.";

/// How findings are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FindingsFormat {
    /// For people, in the style of compilers
    Text,
    /// One JSON document
    Json,
    /// GitHub workflow commands: annotations in a pull request
    Github,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// One policy and its findings.
#[derive(Default)]
struct Checked {
    source: PolicySource,
    findings: Vec<Diagnostic>,
    limits: usize,
    /// Both sides of each limit of a policy.
    sides: Vec<Sides>,
    /// Further requirement of `run`.
    note: Option<String>,
    /// The configuration of Envoy's rate limit service that it names.
    envoy: EnvoyFiles,
}

/// Maximum that a limit admits, and minimum that it serves, in words.
#[derive(Serialize)]
struct Sides {
    name: String,
    mode: &'static str,
    at_most: String,
    at_least: String,
}

impl Checked {
    /// Returns the number of findings of a severity.
    fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|it| it.severity == severity).count()
    }
}

/// Maximum number of limits with their sides; `explain` shows those of all.
const MAX_SIDES: usize = 20;

impl ValidateArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        if self.schema {
            let schema = config::schema();
            output.line(format!("{schema:#}"))?;
            return Ok(Exit::Done);
        }
        let format = if self.json {
            FindingsFormat::Json
        } else {
            self.format
        };
        let mut unread = false;
        let mut checked = Vec::new();
        let policies = match self.policies.as_slice() {
            [] if !self.envoy_config.is_empty() => Vec::new(),
            [] => vec![source::path_or_default(None)?],
            named => named.to_vec(),
        };
        let settings = EnvoySettings {
            merge_domains: self.merge_domains,
            ..EnvoySettings::default()
        };
        let given = self.envoy_config.iter();
        let mut envoy: Vec<_> = given.map(|path| (path.clone(), settings)).collect();
        let mut keep = |found: Result<Vec<Checked>>, output: &mut Output| match found {
            Ok(more) => checked.extend(more),
            Err(failure) => {
                unread = true;
                output.failure(&failure);
            }
        };
        for path in &policies {
            if let Some(remark) = writable_by_all(path) {
                output.talk(remark);
            }
            let found = PolicySource::read(path).map(check);
            let files = found.iter().map(|one| &one.envoy);
            envoy.extend(files.filter_map(|files| {
                let config = path.with_file_name(files.config.as_ref()?);
                Some((config, files.settings))
            }));
            keep(found.map(|one| vec![one]), output);
        }
        for (path, settings) in envoy {
            keep(check_envoy(&path, settings), output);
        }
        write(format, &checked, output)?;
        let found = |severity| checked.iter().any(|one| one.count(severity) > 0);
        Ok(if unread {
            Exit::Error
        } else if found(Severity::Error) || (self.deny_warnings && found(Severity::Warning)) {
            Exit::Denied
        } else {
            Exit::Done
        })
    }
}

/// Checks the files of one configuration of Envoy's rate limit service together.
fn check_envoy(path: &Path, settings: EnvoySettings) -> Result<Vec<Checked>> {
    let files = read_envoy_files(path).map_err(Failure::new)?;
    let texts: Vec<_> = files.iter().map(EnvoyFile::borrowed).collect();
    let (found, valid) = match envoy::load(&texts, settings, Origin::UNIX) {
        Ok(loaded) => (loaded.warnings, true),
        Err(findings) => (findings, false),
    };
    let pairs = files.into_iter().zip(found);
    Ok(pairs
        .map(|(file, findings)| Checked {
            limits: if valid { rules_of(&file) } else { 0 },
            source: PolicySource {
                name: file.name,
                text: file.text,
                files: PolicyFiles::default(),
            },
            findings,
            ..Checked::default()
        })
        .collect())
}

/// Returns the number of rules of a valid file.
fn rules_of(file: &EnvoyFile) -> usize {
    let loaded = envoy::load(&[file.borrowed()], EnvoySettings::default(), Origin::UNIX);
    loaded.map_or(0, |loaded| loaded.config.rules().len())
}

fn check(source: PolicySource) -> Checked {
    match source.parse(SystemClock::new().origin()) {
        Ok(loaded) => Checked {
            source,
            findings: loaded.warnings,
            limits: written(&loaded.policy).count(),
            sides: loaded.policy.rules.iter().map(sides).collect(),
            note: needs_a_token(loaded.policy.settings.listen.admin.as_deref()),
            envoy: loaded.policy.settings.envoy_files,
        },
        Err(findings) => Checked {
            source,
            findings,
            ..Checked::default()
        },
    }
}

fn sides(rule: &Rule) -> Sides {
    Sides {
        name: rule.limit.name.to_string(),
        mode: rule.mode.into(),
        at_most: limits::worst_case(rule),
        at_least: limits::at_least(rule),
    }
}

/// Returns a note if other machines can reach the admin listener, because it then needs a token.
fn needs_a_token(admin: Option<&str>) -> Option<String> {
    let address: SocketAddr = admin?.parse().ok()?;
    let is_open = !address.ip().is_loopback();
    is_open.then(|| {
        format!(
            "other machines can reach admin = \"{address}\": `ratekeeper run` refuses it unless \
             RATEKEEPER_ADMIN_TOKEN is set; write admin = \"127.0.0.1:{}\" for this machine alone",
            address.port()
        )
    })
}

fn write(format: FindingsFormat, checked: &[Checked], output: &mut Output) -> Result<()> {
    match format {
        FindingsFormat::Text => checked.iter().try_for_each(|one| text(one, output)),
        FindingsFormat::Json => output.json(&document(checked)),
        FindingsFormat::Github => machines::all(checked).try_for_each(|(one, finding)| {
            output.line(machines::github(&one.source.name, finding))
        }),
        FindingsFormat::Sarif => output.line(format!("{:#}", machines::sarif(checked))),
    }
}

fn text(one: &Checked, output: &mut Output) -> Result<()> {
    if !one.findings.is_empty() {
        output.line(one.source.render(&one.findings).trim_end())?;
        output.line("")?;
    }
    let (errors, warnings) = (one.count(Severity::Error), one.count(Severity::Warning));
    let limits = words::counted(one.limits, "limit");
    let warned = words::counted(warnings, "warning");
    let verdict = match (errors, warnings) {
        (0, 0) => format!("{limits}, {}", paint(GOOD, "nothing found")),
        (0, _) => format!("{limits}, {}", paint(WARN, &warned)),
        _ => {
            let failed = paint(BAD, &words::counted(errors, "error"));
            format!("{failed}, {warned}")
        }
    };
    output.line(format!("{}: {verdict}", one.source.name))?;
    if let Some(note) = &one.note {
        output.talk(note);
    }
    for sides in one.sides.iter().take(MAX_SIDES) {
        let name = paint(NAME, &sides.name);
        let mode = match sides.mode {
            "enforce" => String::new(),
            mode => format!(" {}", paint(WARN, &format!("({mode})"))),
        };
        output.line(format!("  {name}{mode}: {}", sides.at_most))?;
        output.line(format!("    at least {}", sides.at_least))?;
    }
    if one.sides.len() > MAX_SIDES {
        let more = words::counted(one.sides.len() - MAX_SIDES, "limit");
        output.line(format!("  {more} more: `ratekeeper explain` shows them"))?;
    }
    Ok(())
}

fn document(checked: &[Checked]) -> Value {
    let policies = checked.iter().map(|one| {
        json!({
            "file": one.source.name,
            "valid": one.count(Severity::Error) == 0,
            "limits": one.limits,
            "findings": one.findings,
            "promises": one.sides,
        })
    });
    json!({ "policies": policies.collect::<Vec<_>>() })
}
