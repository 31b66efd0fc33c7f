//! Counts: how an upstream responds, how fast, and how it fails, since the start.
//!
//! ```text
//!   forward --> in flight --> head: its class and time --> end of the body, or of the tunnel
//!                 |  |
//!                 |  '--> failure: its kind        client leaves before the head: left
//!                 '--> failed attempt: its kind at one address; another may follow
//! ```
//!
//! A request adds to a few numbers, without a lock. Failed attempts are also passed to a
//! [`FailureWatch`] as they happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, StatusCode};
use ratekeeper_core::Nanos;

use crate::absence::Absence;
use crate::error::{ForwardError, UpstreamFailure};

/// Upper bounds of the times to the head of a response, in milliseconds; the last bucket has none.
pub const HEAD_EDGES_MILLIS: [u64; 12] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000,
];
const KINDS: usize = UpstreamFailure::ALL.len();

/// Receives the failed attempts of requests, on the thread of the request.
pub type FailureWatch = Arc<dyn Fn(&FailedAttempt<'_>) + Send + Sync>;

/// An attempt that failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// The kind of failure.
    pub failure: UpstreamFailure,
    /// The address `HOST:PORT`; empty if the request was sent to none.
    pub address: &'a str,
    /// The place of the address in the settings, from 1; 0 for none.
    pub place: usize,
    /// Why a TLS handshake failed.
    pub reason: Option<&'a str>,
    /// The id of the request.
    pub request_id: &'a HeaderValue,
}

/// Counts of an upstream since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpstreamTotals {
    /// Responses by class, 1xx (an upgrade) to 5xx.
    pub responses: [u64; 5],
    /// Requests that failed, in the order of [`UpstreamFailure::ALL`].
    pub failures: [u64; KINDS],
    /// Requests whose client left, or did not send its body, before a response.
    pub left: u64,
    /// Responses by their time to the head, see [`HEAD_EDGES_MILLIS`].
    pub head: [u64; HEAD_EDGES_MILLIS.len() + 1],
    /// The sum of these times.
    pub head_nanos: u64,
    /// Bytes of bodies that were sent to the upstream, and received from it.
    pub bytes: [u64; 2],
}

/// The state of one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressTotals {
    /// The address, `HOST:PORT`.
    pub name: String,
    /// Failed attempts, in the order of [`UpstreamFailure::ALL`].
    pub failures: [u64; KINDS],
    /// Open connections.
    pub connections: usize,
    /// True while it is left out, see [`AddressHealth`](crate::AddressHealth).
    pub is_out: bool,
}

impl AddressTotals {
    /// Returns the number of failed attempts.
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }
}

#[derive(Debug, Default)]
struct Count(AtomicU64);

/// The counters of an upstream, with its present settings.
#[derive(derive_more::Debug)]
pub(crate) struct UpstreamCounts {
    all: Arc<UpstreamCounters>,
    addresses: Box<[Arc<CountedAddress>]>,
    #[debug(skip)]
    watch: FailureWatch,
}

#[derive(Debug, Default)]
struct UpstreamCounters {
    responses: [Count; 5],
    failures: [Count; KINDS],
    left: Count,
    head: [Count; HEAD_EDGES_MILLIS.len() + 1],
    head_nanos: Count,
    sent: Count,
    received: Count,
    in_flight: Count,
}

/// The failures of an address.
#[derive(Debug, Default)]
pub(crate) struct CountedAddress {
    pub(crate) absence: Absence,
    name: Box<str>,
    failures: [Count; KINDS],
}

/// A request in flight, to the end of its response.
#[derive(Debug)]
pub(crate) struct Passage {
    counts: Arc<UpstreamCounts>,
    id: HeaderValue,
    /// Index of the address of the last attempt.
    pub(crate) address: Option<usize>,
    is_counted: bool,
}

impl Count {
    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CountedAddress {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            ..Self::default()
        })
    }
}

impl UpstreamCounts {
    /// Returns the counters for these settings, which go on with the counts of `before`.
    pub(crate) fn new(
        addresses: Box<[Arc<CountedAddress>]>,
        watch: FailureWatch,
        before: Option<&Self>,
    ) -> Arc<Self> {
        Arc::new(Self {
            all: before.map_or_else(Arc::default, |before| Arc::clone(&before.all)),
            addresses,
            watch,
        })
    }

    /// Counts a request from now on, until the passage is dropped.
    pub(crate) fn begin(self: &Arc<Self>, id: HeaderValue) -> Passage {
        self.all.in_flight.add(1);
        Passage {
            counts: Arc::clone(self),
            id,
            address: None,
            is_counted: false,
        }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.all.sent.add(bytes as u64);
    }

    pub(crate) fn totals(&self) -> UpstreamTotals {
        let all = &self.all;
        UpstreamTotals {
            responses: all.responses.each_ref().map(Count::get),
            failures: all.failures.each_ref().map(Count::get),
            left: all.left.get(),
            head: all.head.each_ref().map(Count::get),
            head_nanos: all.head_nanos.get(),
            bytes: [all.sent.get(), all.received.get()],
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.all.in_flight.get()
    }

    /// Returns the names of the addresses with their failed attempts.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, [u64; KINDS])> {
        let each = self.addresses.iter();
        each.map(|counted| {
            let failures = counted.failures.each_ref().map(Count::get);
            (&*counted.name, failures)
        })
    }
}

impl Passage {
    /// Counts a failed attempt at its address; nothing if its client is at fault.
    pub(crate) fn attempt_failed(&self, error: &ForwardError) {
        let Some(failure) = error.failure() else {
            return;
        };
        let counts = &self.counts;
        let counted = self.address.and_then(|index| counts.addresses.get(index));
        if let Some(counted) = counted {
            counted.failures[failure as usize].add(1);
        }
        (counts.watch)(&FailedAttempt {
            failure,
            address: counted.map_or("", |counted| &counted.name),
            place: self.address.map_or(0, |index| index + 1),
            reason: match error {
                ForwardError::Tls(reason) => Some(reason),
                _ => None,
            },
            request_id: &self.id,
        });
    }

    /// Counts a request that failed, after its last attempt.
    pub(crate) fn fail(&mut self, error: &ForwardError) {
        if let Some(failure) = error.failure() {
            self.counts.all.failures[failure as usize].add(1);
            self.is_counted = true;
        }
        // Its client neither left nor was late.
        self.is_counted |= *error == ForwardError::UploadTooLarge;
    }

    /// Counts the head of a response; its time only if that was the upstream's.
    pub(crate) fn respond(&mut self, status: StatusCode, took: Option<Nanos>) {
        let counts = &self.counts.all;
        let class = usize::from(status.as_u16() / 100).min(counts.responses.len());
        counts.responses[class - 1].add(1); // a status is at least 100
        if let Some(took) = took {
            let lower = HEAD_EDGES_MILLIS.iter();
            let lower = lower.take_while(|edge| Nanos::from_millis(**edge) < took);
            counts.head[lower.count()].add(1);
            counts.head_nanos.add(took.as_nanos());
        }
        self.is_counted = true;
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.counts.all.received.add(bytes as u64);
    }

    /// Counts a response whose body broke off.
    pub(crate) fn break_off(&mut self, failure: UpstreamFailure) {
        let error = ForwardError::from(failure);
        self.attempt_failed(&error);
        self.fail(&error);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.counts.all.in_flight.0.fetch_sub(1, Ordering::Relaxed);
        if !self.is_counted {
            self.counts.all.left.add(1);
        }
    }
}

impl UpstreamTotals {
    /// Returns the counts since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        fn less<const N: usize>(now: [u64; N], before: [u64; N]) -> [u64; N] {
            std::array::from_fn(|index| now[index].saturating_sub(before[index]))
        }
        Self {
            responses: less(self.responses, earlier.responses),
            failures: less(self.failures, earlier.failures),
            left: self.left.saturating_sub(earlier.left),
            head: less(self.head, earlier.head),
            head_nanos: self.head_nanos.saturating_sub(earlier.head_nanos),
            bytes: less(self.bytes, earlier.bytes),
        }
    }

    /// Returns the bound of the times of this part of the responses, in percent: `None` without a
    /// response, [`Nanos::MAX`] beyond the last of [`HEAD_EDGES_MILLIS`].
    pub fn within(&self, percent: u64) -> Option<Nanos> {
        let all: u64 = self.head.iter().sum();
        let mut left = (all * percent).div_ceil(100); // up: at least so many are faster
        if left == 0 {
            return None;
        }
        let index = self.head.iter().position(|count| {
            let is_last = *count >= left;
            left -= left.min(*count);
            is_last
        });
        let edge = HEAD_EDGES_MILLIS.get(index?);
        Some(edge.map_or(Nanos::MAX, |edge| Nanos::from_millis(*edge)))
    }
}
