//! End: how a piece of work ended, as a signal for the limit.
//!
//! ```text
//!             HTTP                        gRPC
//!   done      below 400                   OK, and codes about the request itself
//!   dropped   429, 503, 504               DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE
//!   ignored   other 4xx, other 5xx        INVALID_ARGUMENT, UNAUTHENTICATED, INTERNAL, ..
//! ```
//!
//! A request that is wrong is answered before there was any work, and a server that is broken
//! may fail at once: their times would make the server look faster than it is.

/// How a piece of work ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum End {
    /// The work was done, whatever the result: its time counts.
    Done,
    /// The work was rejected because of overload, or given up because it took too long: too much
    /// is in flight.
    Dropped,
    /// The end carries no information about load.
    Ignored,
}

impl End {
    /// Returns the end for the status of an HTTP response.
    ///
    /// ```
    /// use ratekeeper_resilience::End;
    /// let ends = [200, 304, 404, 429, 500, 503].map(End::of_http);
    /// use End::{Done, Dropped, Ignored};
    /// assert_eq!(ends, [Done, Done, Ignored, Dropped, Ignored, Dropped]);
    /// ```
    pub const fn of_http(status: u16) -> Self {
        match status {
            0..400 => Self::Done,
            429 | 503 | 504 => Self::Dropped,
            _ => Self::Ignored,
        }
    }

    /// Returns the end for the `grpc-status` code of a response; an unknown code is ignored.
    ///
    /// ```
    /// use ratekeeper_resilience::End;
    /// let [ok, not_found, unavailable, internal] = [0, 5, 14, 13].map(End::of_grpc);
    /// assert_eq!((ok, not_found), (End::Done, End::Done));
    /// assert_eq!((unavailable, internal), (End::Dropped, End::Ignored));
    /// ```
    pub const fn of_grpc(code: u32) -> Self {
        match code {
            // NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE: found by work.
            0 | 5 | 6 | 9 | 10 | 11 => Self::Done,
            4 | 8 | 14 => Self::Dropped,
            _ => Self::Ignored,
        }
    }
}
