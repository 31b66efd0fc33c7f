//! `package`: completions and man pages, for those who make packages.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

use crate::{Cli, Exit, Failure, Output, Result};

#[cfg(test)]
mod command_line;

/// Write the completions of shells and the man pages to a directory
#[derive(Args)]
pub(crate) struct PackageArgs {
    /// The directory, which must exist
    directory: PathBuf,
}

impl PackageArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let directory = &self.directory;
        let failed = |error: std::io::Error| {
            Failure::new(format!(
                "cannot write to `{}`: {error}",
                directory.display()
            ))
        };
        let mut command = Cli::command();
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut command, "ratekeeper", directory)
                .map_err(failed)?;
        }
        clap_mangen::generate_to(command, directory).map_err(failed)?;
        output.line(format!("written to {}", directory.display()))?;
        Ok(Exit::Done)
    }
}
