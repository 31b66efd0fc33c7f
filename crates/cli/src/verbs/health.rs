//! `health`: asks a running service whether it is ready.

use clap::Args;

use crate::client::{AdminArgs, Client};
use crate::{Exit, Output, Result};

/// Ask a running service whether it is ready, as probes of containers do
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

const HELP: &str = "\
Examples:
  ratekeeper health
  ratekeeper health --server http://127.0.0.1:9090

This asks for /readyz of the admin listener, which needs no token.

Exit codes: 0 ready; 1 not ready, or stopping; 2 usage, or no service.";

impl HealthArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let ready = Client::of_admin(&self.admin)?.is_ready()?;
        output.line(if ready { "ready" } else { "not ready" })?;
        Ok(Exit::done_if(ready))
    }
}
