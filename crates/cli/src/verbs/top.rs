//! `top`: the limits that refuse most, and the keys that they refuse, in running services.

use std::io::{IsTerminal, stdout};

use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::client::Client;
use crate::top::{Board, TopRequest, live, table};
use crate::{Exit, Failure, Output};

/// Show the limits that refuse most and the keys that they refuse, in running services
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Top {
    /// Limit whose keys are listed; by default the first one
    limit: Option<String>,
    /// URL of the admin listener of a running service; repeat it for several
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090")]
    #[arg(
        env = "RATEKEEPER_ADMIN_SERVER",
        hide_env_values = true,
        value_delimiter = ','
    )]
    server: Vec<String>,
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
  ratekeeper top --server http://127.0.0.1:9090 --server http://127.0.0.1:9190

This calls the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. Keys are
shown as `reveal_keys` of the policy says; only raw keys can be reset or banned.

Keys of the screen: l limits, k keys, c countries, e explain the limit, arrows select, r reset,
b ban for 1 h, o override, / filter, q quit.

Exit codes: 0 done; 2 usage, or no service.";

/// Maximum number of services.
const MAX_SERVERS: usize = 64;

impl Top {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit, Failure> {
        if self.server.len() > MAX_SERVERS {
            let given = self.server.len();
            let message = format!("{given} servers are named, at most {MAX_SERVERS} are allowed");
            return Err(Failure::new(message));
        }
        let client = |server: &String| Ok((server.clone(), Client::of_admin_at(server)?));
        let clients: Vec<_> = self
            .server
            .iter()
            .map(client)
            .collect::<Result<_, Failure>>()?;
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
            live(clients, request)?;
            return Ok(Exit::Done);
        }
        let board = Board::poll(&clients, &request)?;
        if self.json {
            output.json(&board.json())?;
        } else {
            table(&board)
                .iter()
                .try_for_each(|line| output.line(line))?;
        }
        for failed in &board.failed {
            output.talk(format!("not included: {failed}"));
        }
        Ok(Exit::Done)
    }
}
