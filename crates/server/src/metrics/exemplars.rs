//! Exemplars: the last trace of each bucket of decision time, so that a slow decision can be looked
//! up where traces are kept.
//!
//! ```text
//!   .._bucket{le="0.1",protocol="http",path="store"} 17 # {trace_id="4bf9.."} 0.067 1767225600.200
//! ```
//!
//! Only a request with a sampled trace (W3C Trace Context, section 3.2) adds to the path of its
//! decision: it takes the lock of its bucket, unless another has it. `OpenMetrics` alone has
//! exemplars; the text format of Prometheus does not.

use std::fmt::Write as _;

use http::HeaderMap;
use parking_lot::Mutex;
use ratekeeper_core::{Nanos, Origin, Time};

use super::family::seconds;

/// The header field with the trace of a request.
const TRACEPARENT: &str = "traceparent";

/// The id of a sampled trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TraceId([u8; 32]);

impl TraceId {
    /// Returns the trace that a request belongs to; `None` if it names none, or one that is not
    /// kept.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::read(headers.get(TRACEPARENT)?.as_bytes())
    }

    /// Reads `00-TRACE-PARENT-FLAGS`. Later versions may have more fields behind.
    fn read(field: &[u8]) -> Option<Self> {
        let is_hex = |digits: &[u8]| {
            let mut each = digits.iter();
            each.all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        };
        let mut parts = field.split(|byte| *byte == b'-');
        let [version, trace, parent, flags] = std::array::from_fn(|_| parts.next());
        let (version, parent, flags) = (version?, parent?, flags?);
        let lengths = (version.len(), parent.len(), flags.len()) == (2, 16, 2);
        let is_known = version != b"ff" && (version != b"00" || parts.next().is_none());
        let all_hex = [version, trace?, parent, flags].into_iter().all(is_hex);
        let is_sampled = matches!(
            flags.last()?,
            b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'd' | b'f'
        );
        let id = <[u8; 32]>::try_from(trace?).ok()?;
        let is_right = lengths && is_known && all_hex && id != [b'0'; 32];
        (is_right && is_sampled).then_some(Self(id))
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default() // hexadecimal digits
    }
}

/// The time that a decision with a trace took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedTime {
    pub(super) trace: TraceId,
    pub(super) took: Nanos,
    pub(super) at: Time,
}

/// The last trace of each bucket.
#[derive(Debug)]
pub(super) struct BucketTraces<const N: usize>([Mutex<Option<TracedTime>>; N]);

impl<const N: usize> Default for BucketTraces<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<const N: usize> BucketTraces<N> {
    pub(super) fn note(&self, bucket: usize, traced: TracedTime) {
        let place = self.0.get(bucket).and_then(Mutex::try_lock);
        if let Some(mut place) = place {
            *place = Some(traced);
        }
    }

    pub(super) fn read(&self) -> [Option<TracedTime>; N] {
        self.0.each_ref().map(|place| *place.lock())
    }
}

/// Adds the traces to the buckets of a histogram; `traces` has one place for each of its buckets,
/// in the order of the text.
pub(super) fn put(
    text: &str,
    histogram: &str,
    traces: impl IntoIterator<Item = Option<TracedTime>>,
    origin: Origin,
) -> String {
    let bucket = format!("{histogram}_bucket{{");
    let mut traces = traces.into_iter();
    let mut out = String::with_capacity(text.len() + 1_024);
    for line in text.lines() {
        out.push_str(line);
        if line.starts_with(&bucket)
            && let Some(traced) = traces.next().flatten()
        {
            let millis = origin.unix_nanos(traced.at) / 1_000_000;
            let _ = write!(
                out,
                " # {{trace_id=\"{}\"}} {} {}.{:03}",
                traced.trace.as_str(),
                seconds(traced.took.as_nanos()),
                millis / 1_000,
                millis % 1_000,
            ); // a string takes everything
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn only_sampled_traces_are_kept() {
        let parent = "00f067aa0ba902b7";
        for (field, expected) in [
            (format!("00-{TRACE}-{parent}-01"), true),
            (format!("00-{TRACE}-{parent}-03"), true),
            (format!("cc-{TRACE}-{parent}-01-more"), true),
            (format!("00-{TRACE}-{parent}-00"), false),
            (format!("00-{TRACE}-{parent}-01-more"), false),
            (format!("ff-{TRACE}-{parent}-01"), false),
            (format!("00-{}-{parent}-01", "0".repeat(32)), false),
            (format!("00-{}-{parent}-01", TRACE.to_uppercase()), false),
            (format!("00-{}\"-{parent}-01", &TRACE[1..]), false),
            (format!("00-{TRACE}-{parent}"), false),
            (format!("00-{TRACE}-{parent}1-1"), false),
            (String::new(), false),
        ] {
            let read = TraceId::read(field.as_bytes());
            assert_eq!(
                read.map(|id| id.as_str() == TRACE),
                expected.then_some(true),
                "{field}"
            );
        }
    }

    #[test]
    fn traces_stand_behind_their_buckets() {
        let slow = TracedTime {
            trace: TraceId(TRACE.as_bytes().try_into().unwrap()),
            took: Nanos::from_micros(67),
            at: Time::ZERO + Nanos::from_millis(1_005),
        };
        let traces = BucketTraces::<3>::default();
        traces.note(1, slow);
        traces.note(9, slow);
        let text = "a_sum 1\na_bucket{le=\"1\"} 0\na_bucket{le=\"2\"} 1\na_bucket{le=\"+Inf\"} 1\n";
        let expected = format!(
            "a_sum 1\na_bucket{{le=\"1\"}} 0\na_bucket{{le=\"2\"}} 1 # {{trace_id=\"{TRACE}\"}} \
             0.000067 1.005\na_bucket{{le=\"+Inf\"}} 1\n"
        );
        assert_eq!(put(text, "a", traces.read(), Origin::UNIX), expected);
    }
}
