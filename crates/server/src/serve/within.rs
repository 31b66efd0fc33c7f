//! Within: waits for work in a bounded time, without a timer if there is nothing to wait for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

/// Returns the output of `work`; `None` if it does not come in time. Work that needs no waiting costs
/// no timer, and is not begun if the time is zero.
pub(crate) async fn within<W: Future>(time: Duration, work: W) -> Option<W::Output> {
    if time.is_zero() {
        return None;
    }
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(output) => Some(output),
        Poll::Pending => timeout(time, work).await.ok(),
    }
}
