//! `top`: the limits that refuse most, and the keys that they refuse, in a running service.

use std::io::{IsTerminal, stdout};

use clap::Args;

use crate::client::Client;
use crate::top::{Board, TopRequest, live, table};
use crate::{Exit, Failure, Output, Result};

/// Show the limits that refuse most and the keys that they refuse, in a running service
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    request: TopRequest,
    /// Print once, and end
    #[arg(long)]
    once: bool,
    /// Print a JSON document
    #[arg(long, requires = "once")]
    json: bool,
}

const HELP: &str = "\
Examples:
  ratekeeper top
  ratekeeper top login --once
  ratekeeper top --once --json --by requests --window 1h
  ratekeeper top --server http://127.0.0.1:9190

This calls the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. Keys are
shown as `reveal_keys` of the policy says. To change a key: `ratekeeper reset`, `bans`, `overrides`.

Keys of the screen: arrows select a limit, q ends.

Exit codes: 0 done; 2 usage, or no service.";

impl TopArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let request = self.request;
        let client = Client::of_admin(&request.server)?;
        if !self.once {
            if !stdout().is_terminal() {
                return Err(Failure::new("standard output is not a terminal")
                    .hint("print the table once: ratekeeper top --once"));
            }
            live(client, request)?;
            return Ok(Exit::Done);
        }
        let board = Board::poll(&client, &request)?;
        if self.json {
            output.json(&board.document)?;
        } else {
            table(&board)
                .iter()
                .try_for_each(|line| output.line(line))?;
        }
        Ok(Exit::Done)
    }
}
