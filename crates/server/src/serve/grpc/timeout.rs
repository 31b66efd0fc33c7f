//! Timeout: how long a caller says it will wait.

use std::time::Duration;

use http::HeaderMap;
use ratekeeper_core::Time;
use ratekeeper_resilience::Deadline;

/// Header of gRPC itself.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Header that Envoy's rate limit filter adds, in milliseconds.
const ENVOY_TIMEOUT: &str = "x-envoy-expected-rq-timeout-ms";

/// Returns the shortest wait that the headers state; text that states none is no bound.
pub(super) fn stated(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let grpc = text(GRPC_TIMEOUT).and_then(|it| Deadline::from_grpc_timeout(Time::ZERO, it));
    let envoy = text(ENVOY_TIMEOUT).and_then(|it| Deadline::from_header_ms(Time::ZERO, it));
    let first = grpc.into_iter().chain(envoy).min()?;
    Some(first.time().since(Time::ZERO).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&'static str, &str)]) -> Option<Duration> {
        let fields = fields.iter().map(|(name, value)| {
            let value = http::HeaderValue::from_str(value).unwrap();
            (http::HeaderName::from_static(name), value)
        });
        stated(&fields.collect())
    }

    #[test]
    fn units() {
        for (text, nanos) in [
            ("1n", Some(1)),
            ("20u", Some(20_000)),
            ("20m", Some(20_000_000)),
            ("2S", Some(2_000_000_000)),
            ("1M", Some(60_000_000_000)),
            ("99999999H", Some(u64::MAX.into())), // the longest span
            ("0m", Some(0)),
            ("", None),
            ("m", None),
            ("20", None),
            ("20s", None),
            ("+2S", None),
            ("100000000m", None),
            ("-1m", None),
            ("2 m", None),
        ] {
            let expected = nanos.map(|nanos: u128| nanos);
            let read = of(&[("grpc-timeout", text)]);
            assert_eq!(read.map(|span| span.as_nanos()), expected, "{text}");
        }
    }

    #[test]
    fn the_shorter_timeout_applies() {
        let millis = |millis| Some(Duration::from_millis(millis));
        let envoy = "x-envoy-expected-rq-timeout-ms";
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(envoy, "20")]), millis(20));
        assert_eq!(of(&[(envoy, "20"), ("grpc-timeout", "5m")]), millis(5));
        assert_eq!(of(&[(envoy, "20"), ("grpc-timeout", "1S")]), millis(20));
        assert_eq!(
            of(&[(envoy, "soon"), ("grpc-timeout", "1S")]),
            millis(1_000)
        );
    }
}
