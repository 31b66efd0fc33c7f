//! The algorithms: one table, then the cores, one file each.
//!
//! N permits a span P, burst B, queue Q, m sub-buckets, largest cost C; N is the maximum of a
//! balance, and each grant comes on top. "In one P" is the maximum that any span of P admits, a
//! promise for the worst caller, not an average; "in the long run" is the rate of a caller that
//! always asks. No algorithm rounds in the caller's favour, with two exceptions: Guava's two agree
//! with Guava to the microsecond, and the weighted edge does not count a part of a permit.
//!
//! In `tests/algorithms`, `table.rs` checks the numbers, and `worst_case.rs` the worst cases, by
//! exhaustive search. The exponential counter is compared with a token bucket, and post-paid limits
//! are tested at random. The guide shows the same table.
//!
//! ```text
//!   algorithm    | constructor             | bytes  | in one P  | in the long run
//!   -------------+-------------------------+--------+-----------+----------------
//!   token bucket | Gcra::token_bucket      | 8      | B + N - 1 | N per P
//!   leaky meter  | Gcra::leaky_meter       | 8      | B + N - 1 | N per P
//!   leaky queue  | Gcra::leaky_queue       | 8      | Q + N     | N per P, evenly
//!   spacing      | Gcra::spacing           | 8      | 1         | 1 per P
//!   fixed window | Window::fixed           | 24     | 2N        | N per P
//!   calendar     | Window::calendar        | 24     | 2N        | N per P
//!   quota reset  | QuotaReset::new         | 16     | 2N - 1    | N per P
//!   two-window   | Window::two_window      | 24     | 2N        | N per P
//!   sub-buckets: | SubBuckets::sub_buckets |        |           |
//!     drop       |   .. Edge::Drop         | 40+8m  | 2N        | N per P
//!     weighted   |   .. Edge::Weighted     | 40+8m  | 2N        | N per P
//!     full       |   .. Edge::Full         | 40+8m  | N         | N per P + P/m
//!   interval     | Interval::on_grid       | 16     | 2N *      | N per P
//!     first take | Interval::from_first    | 16     | 2N - 1 *  | N per P
//!   sliding log  | Log::sliding            | 32+8N  | N         | N per P
//!     strict     |   .. with_denials       | 32+8N  | N         | 0 while tried
//!   hybrid       | Hybrid::quota_linear    | 24     | 2N - 1    | N per P
//!   exponential  | Exponential::new        | 16     | 2N - 1    | N - 1/2 per P
//!   warm-up      | WarmUp::warming_up      | 24     | N + C     | N per P
//!   smooth burst | WarmUp::bursty          | 24     | 2N + C    | N per P
//!   concurrency  | Concurrency::new        |  56+32N| N at once | as fast as work is
//!   balance      | Balance::new            | 40+256 | N         | as much as is granted
//!
//!   * of M = N permits, all refilled at once; M + R x ceil((P - 1 ns) / F) in general
//!
//!   algorithm    | choose it when
//!   -------------+----------------------------------------------------------------------
//!   token bucket | in doubt: short bursts are fine, the rate is what counts
//!   leaky meter  | the same, thought of as a level that drains
//!   leaky queue  | work should wait its turn rather than be refused
//!   spacing      | two actions need a gap between
//!   fixed window | the contract names the window, and a double burst at its edge is fine
//!   calendar     | the contract says "per day" or "per month", in a time zone
//!   quota reset  | each caller should have its own windows, from its first request on
//!   two-window   | as fixed windows, but without a double burst in one instant
//!   sub-buckets  | edge full: "never more than N in any span" has to be true
//!   interval     | refills are whole: one log-in forgiven an hour, fifty dollars a day
//!   sliding log  | the promise of sub-buckets full, to the nanosecond, for small quotas
//!     strict     | a caller that keeps trying should stay out until it pauses
//!   hybrid       | a whole quota at once, but no stop and go for heavy callers
//!   exponential  | the heavier the use, the longer the wait
//!   warm-up      | the callee is slow after a rest; post-paid, as in Guava
//!   smooth burst | callers come from Guava and expect its waits
//!   concurrency  | the danger is too much at one time, not too much in a period
//!   balance      | credits are bought: what is spent does not come back by waiting
//!
//!   algorithm    | remaining             | retry_after, until       | reset_after, until
//!   -------------+-----------------------+--------------------------+---------------------
//!   token bucket | whole tokens          | the missing tokens came  | the bucket is full
//!   leaky meter  | free room             | enough has leaked        | it is empty
//!   leaky queue  | free places           | enough have left         | all have left
//!   spacing      | 1, or 0 in the gap    | the gap is over          | the gap is over
//!   fixed window | N less its count      | the window ends          | the window ends
//!   calendar     | N less its count      | the window ends          | the window ends
//!   quota reset  | N less its count      | the caller's window ends | the same
//!   two-window   | N less both shares    | the older share is small | both are out of sight
//!   sub-buckets  | N less its counts     | enough is out of sight   | all are out of sight
//!   interval     | permits in the bucket | enough refills came      | a refill has filled it
//!   sliding log  | free places           | enough are P old         | the newest is P old
//!   hybrid       | permits left; smooth: | the window ends; smooth: | the window ends;
//!                |   whole permits       |   the missing ones came  |   a quota is saved up
//!   exponential  | whole permits below L | enough has faded         | 1/1024 permit is left
//!   warm-up      | C, or 0 while it waits| earlier ones are paid for| it is cold
//!   smooth burst | C, or 0 while it waits| earlier ones are paid for| the store is full
//!   concurrency  | permits not on loan   | enough leases end,       | all leases end, at
//!                |                       |   at the latest          |   the latest
//!   balance      | credits               | none: never by waiting   | none
//! ```
//!
//! Everywhere `remaining` is the largest cost allowed at this instant; after `retry_after`,
//! and no sooner, the denied cost is allowed if no other request spends; after `reset_after` the
//! key acts as one never seen. In GCRA `remaining` grows and `reset_after` shrinks steadily; in
//! windows both change when a window ends, and under a weighted edge in between.
//!
//! A limit that admits or denies at once may have bans on top, at the cost of a state on the heap:
//!
//! ```text
//!   bans | WithBans::new | a refusal is a sign of abuse: log-ins, sign-ups, card numbers
//! ```

pub mod balance;
pub mod bans;
pub mod concurrency;
pub mod exponential;
pub mod gcra;
pub mod hybrid;
pub mod interval;
pub mod log;
pub mod quota_reset;
pub mod warm_up;
pub mod window;
