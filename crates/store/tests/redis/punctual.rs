//! Punctual: a decision is over when its deadline is, however busy the machine is.
//!
//! ```text
//!   decision   set its timer ........ rings --> answers
//!   ours        set it a moment later ..... TICK .. rings: too late
//! ```
//!
//! On a machine that stands still for a second both ring a second late, in this order.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

/// How early a timer may be against another that was set before it.
const TICK: Duration = Duration::from_millis(20);

/// The answer of a decision that must be over within its deadline.
pub(crate) async fn in_time<T>(deadline: Duration, decision: impl Future<Output = T>) -> T {
    let mut decision = pin!(decision);
    let late = async { sleep(deadline + TICK).await };
    tokio::select! {
        biased; // the decision is asked first, and sets its timers first
        answer = &mut decision => answer,
        () = late => panic!("a decision took longer than its deadline of {deadline:?}"),
    }
}
