//! The maximum that a span admits, to callers that know where windows begin.
//!
//! ```text
//!          1 ns            whole windows                 the last, b ns of it
//!            |<>|<----- w ----->|<----- w ----->|<---- b ----->|
//!   ---------N--+---------------+---------------+--------------*----> time
//!            window 0           ...             last touched, number L
//! ```
//!
//! A span touches the largest number of windows when it begins with the last nanosecond of one;
//! then `W - 1 = (L - 1) x w + b`, with `1 <= b <= w`. From there:
//!
//! * drop: any `m` windows in a row hold at most N: `N x ceil((L + 1) / m)`. Exact.
//! * full: any `m + 1` in a row do: `N x ceil((L + 1) / (m + 1))`. Exact.
//! * weighted: never more than drop. If `L = J x m`, the last window and the `m` before it hold
//!   at most `N + ceil(N x (b - 1) / w)`, and `J - 1` times `m` remain before them. With `m = 1`
//!   it is exact below one permit a nanosecond. With more it is exact up to P, and at worst above
//!   it by this: for 6 in 12 ns, in three buckets, it is 23 in 37 ns where 21 can pass.

use super::judge::{Rounding, scale};
use super::{Anchor, Edge, Window};
use crate::{Nanos, Share};

impl<C> Window<C> {
    /// The minimum share served to a client that sends at most N in any span of `per`.
    ///
    /// A request is refused because N are in sight. Where no more than `per` is in sight, the
    /// client has sent fewer. Otherwise no more than two `per` are: of at most 2N, N were served;
    /// and no more than that if N come at once as a (sub-)window begins, and again `per` later.
    pub(super) fn share_within(&self, per: Nanos) -> Share {
        let exact = match (&self.anchor, self.edge) {
            (Anchor::Calendar(_), _) => true, // the quota is that of its windows, however long
            (_, Edge::Drop) => self.width * u64::from(self.buckets) <= per.as_nanos(),
            (_, Edge::Full | Edge::Weighted) => false,
        };
        if exact { Share::ALL } else { Share::new(1, 2) }
    }
}

/// Maximum number of permits that any half-open span of length `span` can admit.
pub(super) fn bound<C>(window: &Window<C>, span: Nanos) -> u64 {
    let limit = window.permits;
    let Some(after_first) = span.as_nanos().checked_sub(1) else {
        return 0;
    };
    if after_first == 0 {
        return limit;
    }
    let width = window.width;
    let last = (after_first - 1) / width + 1;
    let visible = (after_first - 1) % width; // of the last window, before its last moment
    let buckets = u64::from(window.buckets);
    let every = |windows: u64| limit.saturating_mul(last / windows + 1); // of L + 1, up
    match window.edge {
        Edge::Full => every(buckets + 1),
        Edge::Weighted if last.is_multiple_of(buckets) => limit
            .saturating_mul(last / buckets)
            .saturating_add(scale(limit, visible, width, Rounding::Up)),
        Edge::Drop | Edge::Weighted => every(buckets),
    }
}
