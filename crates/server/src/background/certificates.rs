//! Certificates: files that changed are read again, and an expiry is announced each day.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::background::old_databases::DailyNotice;
use crate::context::ServiceContext;
use crate::serve::tls::ListenerTls;

/// How often the certificate files are checked.
const LOOK: Duration = Duration::from_secs(5);

/// Reads the certificates again whenever they change, for ever.
pub(crate) async fn keep_fresh(shared: Arc<ServiceContext>, tls: Arc<ListenerTls>) {
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut daily = DailyNotice::new(0);
    loop {
        tick.tick().await;
        let reads = Arc::clone(&tls);
        let look = tokio::task::spawn_blocking(move || reads.refresh());
        let news = look.await.ok().flatten();
        let now = shared.unix_seconds();
        let warnings = if daily.is_due(now) || news.is_some() {
            tls.certificates.warnings(now)
        } else {
            Vec::new()
        };
        let door = tls.door;
        let warnings = warnings
            .into_iter()
            .map(|text| format!("{door} listener: {text}"));
        shared.sink.notices(news.into_iter().chain(warnings));
    }
}
