//! Timeout: how long a caller says it will wait.

use std::time::Duration;

use http::HeaderMap;

/// Header of gRPC itself.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Header that Envoy's rate limit filter adds, in milliseconds.
const ENVOY_TIMEOUT: &str = "x-envoy-expected-rq-timeout-ms";

/// Returns the shortest wait that the headers state; text that states none is no bound.
pub(super) fn stated(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let grpc = text(GRPC_TIMEOUT).and_then(grpc_timeout);
    let envoy = text(ENVOY_TIMEOUT)
        .and_then(number)
        .map(Duration::from_millis);
    grpc.into_iter().chain(envoy).min()
}

/// Reads a time: `20m` is 20 ms, at most 8 digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (&unit, _) = text.as_bytes().split_last()?;
    let digits = text.get(..text.len() - 1)?;
    let value = number(digits).filter(|_| digits.len() <= 8)?;
    Some(match unit {
        b'H' => Duration::from_secs(value * 3_600),
        b'M' => Duration::from_secs(value * 60),
        b'S' => Duration::from_secs(value),
        b'm' => Duration::from_millis(value),
        b'u' => Duration::from_micros(value),
        b'n' => Duration::from_nanos(value),
        _ => return None,
    })
}

/// Reads digits only: no sign, no space.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
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
            ("99999999H", Some(99_999_999 * 3_600_000_000_000)),
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
