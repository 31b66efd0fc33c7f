//! The `ratekeeper` command: one file for each verb; this one selects the verb.
//!
//! ```text
//!   arguments --clap--> Verb --verbs/NAME.rs--> Exit | Failure --> exit code
//!                                    |
//!                                    +--> Output: data on stdout, talk on stderr
//! ```

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod answers;
mod client;
mod doctor;
mod exit;
mod limits;
mod output;
mod place;
mod replay;
mod request;
mod simulation;
mod source;
mod store;
mod terms;
mod top;
mod trial;
mod unix_connector;
mod verbs;
mod words;

use exit::{Exit, Failure, Result};
use output::Output;

/// Has fewer page faults and less fragmentation with many small keys than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse(); // ends with 2 on a mistake, and with 0 after a page of help
    let mut output = Output::new();
    match cli.verb.run(&mut output) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output.failure(&failure);
            Exit::Error.into()
        }
    }
}

/// Rate limiting from one policy file: a service, and tools for policies.
#[derive(Parser)]
#[command(
    name = "ratekeeper",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = FIRST_STEPS
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const FIRST_STEPS: &str = "\
First steps:
  ratekeeper init                        write a starter policy, ratekeeper.toml
  ratekeeper try --limit per-ip -n 25    see its effect, in virtual time
  ratekeeper run                         serve it
  ratekeeper check per-ip ip=192.0.2.1   ask the service for a decision
  ratekeeper help leaky bucket           explain a term of rate limiting

Exit codes: 0 done, or allowed; 1 denied, or findings; 2 usage or error.";

#[derive(Subcommand)]
enum Verb {
    Run(verbs::run::RunArgs),
    Validate(verbs::validate::ValidateArgs),
    Explain(verbs::explain::ExplainArgs),
    /// Ask a running service for one decision, and charge it
    #[command(after_help = verbs::check::CHECK_HELP)]
    Check(verbs::check::CheckQuestion),
    /// Ask a running service for one decision, without a charge
    #[command(after_help = verbs::check::PEEK_HELP)]
    Peek(verbs::check::CheckQuestion),
    #[command(subcommand)]
    Bans(verbs::bans::BanAct),
    Reset(verbs::reset::ResetArgs),
    #[command(subcommand)]
    Overrides(verbs::overrides::OverrideAct),
    Grant(verbs::grant::GrantArgs),
    Top(verbs::top::TopArgs),
    Try(verbs::r#try::TryArgs),
    Simulate(verbs::simulate::SimulateArgs),
    Replay(verbs::replay::ReplayArgs),
    Diff(verbs::diff::DiffArgs),
    Doctor(verbs::doctor::DoctorArgs),
    Init(verbs::init::InitArgs),
    Import(verbs::import::ImportArgs),
    Health(verbs::health::HealthArgs),
    #[command(hide = true)]
    Package(verbs::package::PackageArgs),
    Help(verbs::help::HelpArgs),
}

impl Verb {
    fn run(self, output: &mut Output) -> Result<Exit> {
        match self {
            Self::Run(verb) => verb.run(output),
            Self::Validate(verb) => verb.run(output),
            Self::Explain(verb) => verb.run(output),
            Self::Check(verb) => verb.ask("check", output),
            Self::Peek(verb) => verb.ask("peek", output),
            Self::Bans(verb) => verb.run(output),
            Self::Reset(verb) => verb.run(output),
            Self::Overrides(verb) => verb.run(output),
            Self::Grant(verb) => verb.run(output),
            Self::Top(verb) => verb.run(output),
            Self::Try(verb) => verb.run(output),
            Self::Simulate(verb) => verb.run(output),
            Self::Replay(verb) => verb.run(output),
            Self::Diff(verb) => verb.run(output),
            Self::Doctor(verb) => verb.run(output),
            Self::Init(verb) => verb.run(output),
            Self::Import(verb) => verb.run(output),
            Self::Health(verb) => verb.run(output),
            Self::Package(verb) => verb.run(output),
            Self::Help(verb) => verb.run(output),
        }
    }
}
