//! Store: location of the counters, if the command line gives one.

use clap::Args;
use ratekeeper_server::StoreChoice;

use crate::Failure;

/// Where the counters are, whatever the policy says.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// Where the counters are, instead of where the policy says: `memory://`,
    /// `redis://HOST:PORT`, several HOST:PORT with commas for a cluster,
    /// `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`, or `unix:///PATH`
    #[arg(
        long,
        value_name = "URL",
        env = "RATEKEEPER_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
}

impl StoreArgs {
    /// Returns the choice; `None` if there was none.
    ///
    /// # Errors
    /// Returns an error if the URL is not one of a store.
    pub(crate) fn choice(&self) -> Result<Option<StoreChoice>, Failure> {
        let choice = self.store.as_deref().map(str::parse).transpose();
        choice.map_err(Failure::from)
    }
}
