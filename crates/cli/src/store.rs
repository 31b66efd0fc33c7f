//! Store: location of the counters, if the command line gives one.

use clap::Args;
use ratekeeper_server::StoreChoice;

use crate::{Failure, Result};

/// Location of the counters, which overrides the policy.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// Store of the counters, instead of that of the policy: `memory://`, `redis://HOST:PORT`,
    /// several HOST:PORT with commas for a cluster,
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
    pub(crate) fn choice(&self) -> Result<Option<StoreChoice>> {
        let choice = self.store.as_deref().map(str::parse).transpose();
        choice.map_err(Failure::from)
    }
}
