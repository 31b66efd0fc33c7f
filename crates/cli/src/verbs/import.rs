//! `import`: another service's limits as a policy, and a list of the unsupported ones.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ratekeeper_policy::config::{Colour, Diagnostic, render};
use ratekeeper_policy::import::{Imported, TraefikFormat, nginx, traefik};
use ratekeeper_server::{EnvoyFile, read_envoy_files};

use crate::output::{WARN, paint};
use crate::{Exit, Failure, Output, words};

/// Write a policy from the limits of another service, and list its unsupported features
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Import {
    /// The other service
    #[arg(long, value_enum, value_name = "SERVICE")]
    from: From,
    /// Configuration of the other service
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File to write, which must not exist yet [default: standard output]
    #[arg(long, short, value_name = "POLICY")]
    output: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  nginx -T > nginx.txt; ratekeeper import --from nginx nginx.txt > ratekeeper.toml
  ratekeeper import --from traefik dynamic.toml > ratekeeper.toml

Unsupported features are listed on stderr, and in the policy as comments that begin with UNSUPPORTED.
`ratekeeper run --envoy-config` runs the files of Envoy's rate limit service unchanged.

Exit codes: 0 everything is supported; 1 something is not; 2 usage, or an error in a file.";

/// Services whose limits are understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum From {
    /// `limit_req` and `limit_conn`
    Nginx,
    /// `rateLimit` and `inFlightReq` of a dynamic configuration, YAML or TOML
    Traefik,
}

impl Import {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        if self.file.is_dir() {
            return Err(Failure::new(format!(
                "`{}` is a directory: limits are imported from one file",
                self.file.display()
            )));
        }
        let files = read_envoy_files(&self.file).map_err(Failure::new)?;
        let imported = match self.from {
            From::Nginx => of_one(&files, |file| nginx(&file.text))?,
            From::Traefik => of_one(&files, |file| traefik(&file.text, format(&file.name)))?,
        };
        match &self.output {
            Some(path) => {
                let written = fs::File::create_new(path).and_then(|mut file| {
                    std::io::Write::write_all(&mut file, imported.text.as_bytes())
                });
                written.map_err(|why| {
                    Failure::new(format!("cannot write `{}`: {why}", path.display()))
                })?;
            }
            None => output.line(imported.text.trim_end())?,
        }
        for line in &imported.unsupported {
            output.talk(format!("{}: {line}", paint(WARN, "unsupported")));
        }
        let counted = words::counted(imported.limits, "limit");
        output.talk(format!(
            "{counted}, {} unsupported",
            imported.unsupported.len()
        ));
        Ok(if imported.unsupported.is_empty() {
            Exit::Done
        } else {
            Exit::Denied
        })
    }
}

/// Imports one file only, because names are unique within it.
fn of_one(
    files: &[EnvoyFile],
    import: impl Fn(&EnvoyFile) -> Result<Imported, Vec<Diagnostic>>,
) -> Result<Imported, Failure> {
    let [file] = files else {
        return Err(Failure::new(
            "limits of this service are imported from one file at a time",
        ));
    };
    import(file).map_err(|found| Failure::Findings(pages(files, &[found])))
}

fn format(name: &str) -> TraefikFormat {
    match Path::new(name).extension() {
        Some(end) if end.eq_ignore_ascii_case("toml") => TraefikFormat::Toml,
        _ => TraefikFormat::Yaml,
    }
}

fn pages(files: &[EnvoyFile], findings: &[Vec<Diagnostic>]) -> String {
    let pairs = files.iter().zip(findings);
    let page = |(file, found): (&EnvoyFile, &Vec<_>)| {
        render(&file.name, &file.text, found, Colour::Always)
    };
    pairs.map(page).collect()
}
