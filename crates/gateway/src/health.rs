//! Health: checks an address at intervals; an address that fails its check is skipped.
//!
//! ```text
//!   every interval: new connection --> GET path --> head within the interval, below 400: it serves
//!                                                   all else: skipped, until it serves again
//! ```
//!
//! If no address of an upstream serves, they are used in turn as if all did.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::address::Address;
use crate::connection::Wanted;
use crate::hop::Hop;
use crate::outgoing::fit;
use crate::upload::UploadBody;

/// How addresses are checked.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// The target of the request.
    pub path: PathAndQuery,
    /// Time from one check to the next, and maximum time of one.
    pub interval: Duration,
}

/// The health of one address.
#[derive(Clone, Debug)]
pub struct AddressHealth {
    address: Arc<Address>,
    check: HealthCheck,
}

impl AddressHealth {
    pub(crate) const fn new(address: Arc<Address>, check: HealthCheck) -> Self {
        Self { address, check }
    }

    /// Checks the address for ever.
    pub async fn watch(self) {
        let mut ticks = interval(self.check.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = timeout(self.check.interval, self.ask()).await;
            match asked {
                Ok(Some(())) => self.address.pass_check(),
                _ => self.address.fail_check(),
            }
        }
    }

    /// Returns `None` if the address does not serve.
    async fn ask(&self) -> Option<()> {
        let upstream = &self.address.upstream;
        let mut sender = upstream.open(Wanted::Any).await.ok()?;
        let mut request = Request::new(UploadBody::default());
        *request.uri_mut() = Uri::from(self.check.path.clone());
        let headers = request.headers_mut();
        headers.insert(HOST, upstream.host()?);
        headers.insert(USER_AGENT, HeaderValue::from_static("ratekeeper-health"));
        fit(&mut request, &upstream.form(&sender), &Hop::default());
        let response = sender.send(&mut request, None).await.ok()?;
        (response.status().as_u16() < 400).then_some(())
    }
}
