//! Bytes: whatever a file has, each line is decided or skipped.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use ratekeeper_replay::{LogError, LogOptions};

use crate::{read, with_format};

const FORMATS: &[&str] = &[
    "",
    "common",
    "combined",
    "combined with x-forwarded-for",
    "vhost_combined",
    "caddy",
    "haproxy",
    "envoy",
    "json",
    "$remote_addr [$time_local] \"$request\" $status $request_time",
    "%{X-A}i %h %t \"%r\" %>s %{c}C",
    "%ci:%cp [%tr] %HM %HU %ST",
    "json time=at client=peer.ip path=url cookie:c=c",
];

/// Parts of lines, and bytes that break them.
const PARTS: &[&[u8]] = &[
    b"192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] \"GET /a?b HTTP/1.1\" 200 5",
    b" \"-\" \"curl\" \"192.0.2.7, ::1\"",
    b"{\"time\":\"2019-01-22T00:26:14Z\",\"path\":\"/a\",\"status\":",
    b"{\"ts\":1.5e9,\"request\":{\"remote_ip\":\"::1\",\"method\":\"GET\",\"uri\":\"/\"}}",
    b"{\"at\":1548116774,\"peer\":{\"ip\":\"::1\"},\"url\":\"/\"}",
    b"[2019-01-22T00:26:14.500Z] \"GET / HTTP/2\" 200 - 1 0 2 1 \"::1\" \"x\" \"y\" \"h\" \"u\"",
    b"h haproxy[1]: ::1:33 [22/Jan/2019:00:26:14.655] in b/s 1/0/3/6/9 200 2 - - -- 1/1 0/0 \"GET / HTTP/1.1\"",
    b"\n",
    b"\r\n",
    b"\n",
    b"\"",
    b"\\",
    b"[",
    b"]",
    b"{",
    b"}",
    b" ",
    b"-",
    b":",
    b"?",
    b"://",
    b"200",
    b"99999999999999999999",
    b"#",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
];

fn check(bytes: &[u8], format: &str) -> Result<(), TestCaseError> {
    let options = match format {
        "" => LogOptions::default(),
        format => with_format(format),
    };
    match read(bytes, &options) {
        Ok((report, records)) => {
            prop_assert_eq!(report.lines, report.decided + report.skipped);
            prop_assert_eq!(report.decided, records.len() as u64);
            let is_packed = bytes.starts_with(b"\x1f\x8b") || bytes.starts_with(b"\x28\xb5");
            if !is_packed {
                let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
                let lines = text.split(|byte| *byte == b'\n').count();
                let lines = lines - usize::from(text.last() == Some(&b'\n'));
                prop_assert_eq!(report.lines, lines as u64);
            }
        }
        Err(LogError::UnknownFormat { .. } | LogError::Empty(_) | LogError::File { .. }) => {}
        Err(other) => prop_assert!(false, "{other}"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn each_line_is_decided_or_skipped(parts in vec(select(PARTS), 0..40), format in select(FORMATS)) {
        check(&parts.concat(), format)?;
    }

    #[test]
    fn any_bytes_are_read(bytes in vec(any::<u8>(), 0..400), format in select(FORMATS)) {
        check(&bytes, format)?;
    }
}
