//! `package`: completions and man pages, for those who make packages.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, ValueEnum as _};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

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
            generate_to(*shell, &mut command, "ratekeeper", directory).map_err(failed)?;
        }
        command.build();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let pages = std::iter::once(&command).chain(verbs);
        for page in pages.cloned().map(Man::new) {
            let name = page.get_filename();
            let mut file = fs::File::create(directory.join(name)).map_err(failed)?;
            page.render(&mut file).map_err(failed)?;
        }
        output.line(format!("written to {}", directory.display()))?;
        Ok(Exit::Done)
    }
}
