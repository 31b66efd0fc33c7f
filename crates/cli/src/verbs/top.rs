//! `top`: the limits that refuse most, and the keys that they refuse, in a running service.

use std::io::{IsTerminal, stdout};

use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::client::{AdminArgs, Client};
use crate::top::{Board, TopRequest, live, table};
use crate::{Exit, Failure, Output, Result};

/// Show the limits that refuse most and the keys that they refuse, in a running service
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    /// Limit whose keys are listed; by default the first one
    limit: Option<String>,
    #[command(flatten)]
    server: AdminArgs,
    /// Order of limits and keys
    #[arg(long, value_parser = ["denied", "requests"], default_value = "denied")]
    by: String,
    /// Time that the counts cover: the current minute or hour and the one before it
    #[arg(long, value_parser = ["1m", "1h"], default_value = "1m")]
    window: String,
    /// Maximum number of limits, and of keys
    #[arg(long, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1_000))]
    #[arg(default_value = "20")]
    count: u32,
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
        let client = Client::of_admin(&self.server)?;
        let request = TopRequest {
            limit: self.limit,
            by: self.by,
            window: self.window,
            count: self.count,
        };
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
