//! `reset`: forgets the usage of a key, in a running service.

use clap::Args;

use crate::client::{CallArgs, KeyArgs, key_text, percent_encoded};
use crate::{Exit, Output, Result};

/// Reset a key of a limit in a running service: its usage and its ban are forgotten
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    subject: KeyArgs,
    #[command(flatten)]
    call: CallArgs,
}

const HELP: &str = "\
Examples:
  ratekeeper reset login 192.0.2.1
  ratekeeper reset api-model acme large
  ratekeeper reset login 192.0.2.1 --json --server http://127.0.0.1:9090

This calls the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. Values are
the plain ones of the key, as the policy counts them.

Exit codes: 0 done; 1 nothing was counted for the key; 2 usage, or no service.";

impl ResetArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let path = format!("/v1/keys/{}", percent_encoded(&self.subject.limit));
        let query: Vec<_> = self.subject.values().collect();
        let answer = self.call.client()?.call("DELETE", &path, &query)?;
        let was_counted = answer["was_counted"] == true;
        let done = if was_counted {
            "reset"
        } else {
            "was not counted"
        };
        let text = format!("{}: {done}", key_text(&answer));
        self.call.show(&answer, output, text)?;
        Ok(Exit::done_if(was_counted))
    }
}
