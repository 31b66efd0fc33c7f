//! The algorithms: one table, then the cores, one file each.
//!
//! N permits a span P, burst B, cost 1; "in one P" is the most that any span of P admits, a
//! promise for the worst caller, not an average. None rounds in the caller's favour, except
//! the last two, which agree with Guava to the microsecond. The worst cases are proved by
//! exhaustive search (`tests/worst_case.rs`), the exponential's by comparison.
//!
//! ```text
//!   algorithm    | constructor             | bytes | in one P  | in the long run
//!   -------------+-------------------------+-------+-----------+----------------
//!   token bucket | Gcra::token_bucket      | 8     | B + N - 1 | N per P
//!   leaky meter  | Gcra::leaky_meter       | 8     | B + N - 1 | N per P
//!   leaky queue  | Gcra::leaky_queue       | 8     | Q + N     | N per P, evenly
//!   spacing      | Gcra::spacing           | 8     | 1         | 1 per gap
//!   fixed window | Window::fixed           | 16    | 2N        | N per P
//!   calendar     | Window::calendar        | 16    | 2N        | N per window
//!   quota reset  | Window::quota_reset     | 16    | 2N - 1    | N per P
//!   two-window   | Window::two_window      | 16    | 2N - 1    | N - 1 per P
//!   sub-buckets, | SubBuckets::sub_buckets | 36+4m |           |
//!     drop       |                         |       | 2N        | N per P
//!     weighted   |                         |       | under 2N  | N - 1 per P
//!     full       |                         |       | N         | N per P + P/m
//!   interval     | Interval::on_grid       | 16    | 2N *      | N per P
//!     first take | Interval::from_first    | 16    | 2N - 1 *  | N per P
//!   sliding log  | Log::sliding            | 32+8N | N         | N per P
//!     strict     |   .. with_denials       | 32+8N | N         | 0 while tried
//!   hybrid       | Hybrid::quota_linear    | 16    | 2N - 1    | N per P
//!   exponential  | Exponential::new        | 16    | 2N - 1    | N - 1/2 per P
//!   warm_up      | WarmUp::warming_up      | 24    | any cost  | N per P
//!   smooth burst | WarmUp::bursty          | 24    | any cost  | N per P
//!   permits      | Concurrency::new        | 32+32N | N at once | as fast as work is
//!
//!   * of M = N permits, all refilled at once; M + R x ceil((P - 1 ns) / F) in general
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
//!   interval     | refills are whole: one log-in forgiven an hour, fifty dollars a day
//!   sliding log  | the promise of sub-buckets full, to the nanosecond, for small quotas
//!   hybrid       | a whole quota at once, but no stop and go for those who overdo it
//!   exponential  | the heavier the use, the longer the wait
//!   warm_up      | the callee is slow after a rest; post-paid, as in Guava
//!   smooth burst | callers come from Guava and expect its waits
//!   permits      | what breaks is too much at one time, not too much in a time
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
pub mod permits;
pub mod warm_up;
pub mod window;

#[cfg(test)]
mod tests {
    use super::{exponential, gcra, hybrid, interval, log, permits, warm_up, window};

    #[test]
    fn states_are_as_small_as_the_table_says() {
        for (bytes, size) in [
            (8, size_of::<gcra::Tat>()),
            (16, size_of::<window::WindowState<[u32; 2]>>()),
            (16, size_of::<interval::Missing>()),
            (32, size_of::<log::Logged>()),
            (16, size_of::<hybrid::Allowance>()),
            (16, size_of::<exponential::Level>()),
            (24, size_of::<warm_up::Stored>()),
            (32, size_of::<permits::Leases>()),
        ] {
            assert_eq!(size, bytes);
        }
    }
}
