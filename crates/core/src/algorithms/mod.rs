//! The algorithms: one table, then the cores, one file each.
//!
//! N permits a span P, burst B, cost 1; "in one P" is the most that any span of P admits, a
//! promise for the worst caller, not an average. All are exact; none rounds in the caller's
//! favour. The worst cases are proved by exhaustive search (`tests/worst_case.rs`).
//!
//! ```text
//!   algorithm    | core   | constructor             | bytes | in one P  | in the long run
//!   -------------+--------+-------------------------+-------+-----------+----------------
//!   token bucket | gcra   | Gcra::token_bucket      | 8     | B + N - 1 | N per P
//!   leaky meter  | gcra   | Gcra::leaky_meter       | 8     | B + N - 1 | N per P
//!   leaky queue  | gcra   | Gcra::leaky_queue       | 8     | Q + N     | N per P, evenly
//!   spacing      | gcra   | Gcra::spacing           | 8     | 1         | 1 per gap
//!   fixed window | window | Window::fixed           | 16    | 2N        | N per P
//!   calendar     | window | Window::calendar        | 16    | 2N        | N per window
//!   quota reset  | window | Window::quota_reset     | 16    | 2N - 1    | N per P
//!   two-window   | window | Window::two_window      | 16    | 2N - 1    | N - 1 per P
//!   sub-buckets, | window | SubBuckets::sub_buckets | 36+4m |           |
//!     drop       |        |                         |       | 2N        | N per P
//!     weighted   |        |                         |       | under 2N  | N - 1 per P
//!     full       |        |                         |       | N         | N per P + P/m
//!
//!   algorithm    | choose it when
//!   -------------+----------------------------------------------------------------------
//!   token bucket | in doubt: short bursts are fine, the rate is what counts
//!   leaky meter  | the same, thought of as a level that drains
//!   leaky queue  | work should wait its turn rather than be refused
//!   spacing      | two actions must lie apart
//!   fixed window | the contract names the window, and a double burst at its edge is fine
//!   calendar     | the contract says "per day" or "per month", in somebody's time zone
//!   quota reset  | each caller should get a window of his own, from his first request
//!   two-window   | fixed windows, without the double burst in one instant
//!   sub-buckets  | edge full: "never more than N in any span" has to be true
//! ```
//!
//! What a decision says, everywhere: `remaining` is the largest cost allowed at this
//! instant; after `retry_after`, and no sooner, the denied cost is allowed if nobody else
//! spends; after `reset_after` the key acts as one never seen. In GCRA the first grows and
//! the last shrinks steadily; in windows both change when a window ends, and under a
//! weighted edge in between.

pub mod exponential;
pub mod gcra;
pub mod hybrid;
pub mod interval;
pub mod log;
pub mod warm_up;
pub mod window;
