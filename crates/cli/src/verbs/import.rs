//! `import`: the limits of nginx as a policy, and a list of the unsupported ones.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use ratekeeper_policy::config::{Colour, render};
use ratekeeper_policy::import::nginx;

use crate::output::{WARN, paint, unwritable};
use crate::{Exit, Failure, Output, Result, words};

/// Write a policy from the limits of nginx, and list its unsupported features
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ImportArgs {
    /// The other limiter: `nginx`
    #[arg(long, value_name = "LIMITER", value_parser = limiter)]
    from: Limiter,
    /// Its configuration: one file, such as the output of `nginx -T`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File to write, which must not exist yet [default: standard output]
    #[arg(long, short, value_name = "POLICY")]
    output: Option<PathBuf>,
}

/// Maximum size of a file, above the one that the importer reads, which says so.
const MAX_BYTES: u64 = 4 << 20;

const HELP: &str = "\
Examples:
  nginx -T > nginx.txt; ratekeeper import --from nginx nginx.txt > ratekeeper.toml
  ratekeeper import --from nginx nginx.txt -o ratekeeper.toml

Unsupported features are listed on stderr, and in the policy as comments that begin with UNSUPPORTED.
docs/guide/from-another-limiter.md lists the fields of other limiters, and the fields here.
`ratekeeper run --envoy-config` runs the files of Envoy's rate limit service unchanged.

Exit codes: 0 everything is supported; 1 something is not; 2 usage, or an error in the file.";

/// Limiters whose configuration is understood.
#[derive(Clone, Copy, Debug)]
enum Limiter {
    Nginx,
}

fn limiter(name: &str) -> Result<Limiter, String> {
    match name {
        "nginx" => Ok(Limiter::Nginx),
        "envoy" | "envoy-ratelimit" => {
            Err("`ratekeeper run --envoy-config` runs its files unchanged".to_owned())
        }
        _ => Err(
            "only `nginx` is imported; docs/guide/from-another-limiter.md describes others"
                .to_owned(),
        ),
    }
}

impl ImportArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        if self.file.is_dir() {
            return Err(Failure::new(format!(
                "`{}` is a directory: limits are imported from one file",
                self.file.display()
            )));
        }
        let name = self.file.display().to_string();
        let text =
            read(&self.file).map_err(|why| Failure::new(format!("cannot read `{name}`: {why}")))?;
        let Limiter::Nginx = self.from;
        let imported = nginx(&text)
            .map_err(|found| Failure::findings(render(&name, &text, &found, Colour::Always)))?;
        match &self.output {
            Some(path) => {
                let written = fs::File::create_new(path)
                    .and_then(|mut file| file.write_all(imported.text.as_bytes()));
                written.map_err(|why| unwritable(path, &why))?;
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
        Ok(Exit::done_if(imported.unsupported.is_empty()))
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path)?;
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
