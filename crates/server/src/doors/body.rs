//! Body: the bytes of a request, within bounds of size and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::problem::{BROKEN_BODY, Problem, TOO_BUSY, TOO_LARGE, TOO_SLOW};
use crate::byte_budget::{ByteBudget, MAX_BODY_BYTES};
use crate::serve::request_body::RequestBody;
use crate::serve::within::within;

/// Maximum number of bytes of one check.
pub(crate) const MAX_CHECK_BYTES: usize = 64 << 10;
/// Maximum number of bytes of a batch.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 20;
/// How long a body may take.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the whole body. A body that came in one piece is not copied; others count against
/// `budget` until the bytes are dropped.
pub(crate) async fn read(
    body: RequestBody,
    max: usize,
    budget: &Arc<ByteBudget>,
) -> Result<Bytes, Problem> {
    let announced = body.size_hint().lower();
    if announced > max as u64 {
        return Err(too_large(max));
    }
    // Nearly always all of it came with the head.
    let whole = within(READ_TIMEOUT, collect(body, max, budget)).await;
    whole.unwrap_or_else(|| {
        let detail = format!("the body must arrive within {} s", READ_TIMEOUT.as_secs());
        Err(Problem::new(TOO_SLOW, detail))
    })
}

async fn collect(
    mut body: RequestBody,
    max: usize,
    budget: &Arc<ByteBudget>,
) -> Result<Bytes, Problem> {
    let mut held = budget.hold();
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| broken())?;
        let Ok(data) = frame.into_data() else {
            continue; // trailers say nothing here
        };
        if first.len() + whole.len() + data.len() > max {
            return Err(too_large(max));
        }
        let alone = first.is_empty() && whole.is_empty();
        if alone && body.is_end_stream() {
            return Ok(data);
        }
        if !held.resize(first.len() + whole.len() + data.len()) {
            return Err(too_busy());
        }
        if alone {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    let whole = if whole.is_empty() {
        first
    } else {
        whole.freeze()
    };
    Ok(held.keep(whole))
}

fn too_large(max: usize) -> Problem {
    Problem::new(TOO_LARGE, format!("at most {max} bytes are read"))
}

pub(super) fn broken() -> Problem {
    let detail = "the connection failed, or the length announced was wrong";
    Problem::new(BROKEN_BODY, detail)
}

pub(super) fn too_busy() -> Problem {
    let detail = format!("unfinished requests and unread answers hold {MAX_BODY_BYTES} bytes");
    Problem::new(TOO_BUSY, detail)
}
