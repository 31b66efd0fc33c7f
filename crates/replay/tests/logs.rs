//! Logs of each format, odd and broken ones, and policies that decide them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use jiff::tz::TimeZone;
use ratekeeper_core::Nanos;
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_replay::report::ReplayReport;
use ratekeeper_replay::{Log, LogError, LogFormat, LogOptions, ORIGIN, Record, Replay};

/// Returns a record in words: time, client, method, path, query, host, status, duration in ms.
fn words(record: &Record) -> String {
    let (path, query) = record.path_and_query();
    format!(
        "{} {} {} {path}?{query} {} {} {}",
        record.at() / 1_000_000,
        record.client(),
        record.method(),
        record.host(),
        record.status().unwrap_or(0),
        record.duration().unwrap_or(0) / 1_000_000,
    )
}

fn policy(limits: &str) -> Replay {
    let text = format!("version = 1\n{limits}");
    let loaded = parse(&text, Context { origin: ORIGIN }).unwrap();
    Replay::new(loaded.policy, 64 << 20)
}

/// Decides the files; returns the report, and each record in words with `+` if it was allowed.
fn replay(
    paths: &[PathBuf],
    options: &LogOptions,
    limits: &str,
) -> Result<(ReplayReport, Vec<String>), LogError> {
    let mut log = Log::open(paths, options)?;
    let mut replay = policy(limits);
    let mut records = Vec::new();
    for record in log.by_ref() {
        let record = record?;
        let sign = if replay.decide(&record).allowed() {
            '+'
        } else {
            '-'
        };
        records.push(format!("{sign} {}", words(&record)));
    }
    Ok((ReplayReport::new(&log, &replay, &options.zone), records))
}

/// A limit that refuses nothing here.
const LAX: &str = "[[limit]]\nname = 'lax'\nkey = ['all']\nlimit = '1000000/1s'";

/// Decides a log of this content by a limit that refuses nothing.
fn read(content: &[u8], options: &LogOptions) -> Result<(ReplayReport, Vec<String>), LogError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, content).unwrap();
    replay(&[path], options, LAX)
}

fn with_format(format: &str) -> LogOptions {
    LogOptions {
        format: Some(format.parse::<LogFormat>().unwrap()),
        ..LogOptions::default()
    }
}

#[test]
fn each_format_is_found_from_its_lines() {
    for (line, format, expected) in [
        (
            r#"wall.example.org - - [01/Aug/1995:02:00:00 -0400] "GET /a.gif HTTP/1.0" 200 1713"#,
            "common",
            "807256800000 wall.example.org GET /a.gif?  200 0",
        ),
        (
            r#"::1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.0" 200 -"#,
            "common",
            "1548116774000 ::1 GET /?  200 0",
        ),
        (
            r#"192.0.2.1 - ann [22/Jan/2019:03:56:14 +0330] "GET /a?b=c HTTP/1.1" 200 5 "-" "x \" y""#,
            "combined",
            "1548116774000 192.0.2.1 GET /a?b=c  200 0",
        ),
        (
            r#"192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "GET /a b HTTP/1.1" 200 5 "-" "x" "extra" 1 2"#,
            "combined",
            "1548116774000 192.0.2.1 GET /a b?  200 0",
        ),
        (
            r#"192.0.2.1 - - [22/Jan/2019:03:56:14 +0330] "\x16\x03\x01" 400 5 "-" "-" "198.51.100.7, 10.0.0.1""#,
            "combined with x-forwarded-for",
            "1548116774000 192.0.2.1  ?  400 0",
        ),
        (
            r#"[2019-01-22T00:26:14.500Z] "POST /api/v1 HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80""#,
            "envoy",
            "1548116774500  POST /api/v1? locations 204 226",
        ),
        (
            r#"Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [22/Jan/2019:00:26:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#,
            "haproxy",
            "1548116774655 10.0.1.2 GET /index.html?  200 109",
        ),
        (
            r#"2001:db8::1:33317 [22/Jan/2019:00:26:14.655] in~ b/<NOSRV> -1/-1/-1/-1/+7 503 217 - - SC-- 1/1/0/0/0 0/0 "GET https://h.example/a?b HTTP/2.0""#,
            "haproxy",
            "1548116774655 2001:db8::1 GET /a?b h.example 503 7",
        ),
        (
            r#"{"level":"info","ts":1548116774.75,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","remote_port":"1","proto":"HTTP/1.1","method":"GET","host":"localhost","uri":"/a?b","headers":{"User-Agent":["curl"],"X-A":["1","2"]}},"duration":0.25,"size":0,"status":200}"#,
            "caddy",
            "1548116774500 192.0.2.1 GET /a?b localhost 200 250",
        ),
        (
            r#"{"time":"2019-01-22T00:26:14Z","client_ip":"192.0.2.1","method":"GET","path":"/a\u00e9","status":"404"}"#,
            "json",
            "1548116774000 192.0.2.1 GET /a\u{e9}?  404 0",
        ),
        (
            r#"{"start_time":"2019-01-22T00:26:14.000Z","method":"GET","path":"/","response_code":200,"duration":12,"authority":"h","downstream_remote_address":"192.0.2.1:4000","x_forwarded_for":null}"#,
            "json",
            "1548116774000 192.0.2.1:4000 GET /? h 200 12",
        ),
        (
            r#"{"timestamp":"2019-01-22T00:26:14.200Z","level":"INFO","event":"decision.denied","limit":"login","key":"ip=~5f1c","method":"POST","path":"/login"}"#,
            "json",
            "1548116774200  POST /login?  0 0",
        ),
    ] {
        let (report, records) = read(line.as_bytes(), &LogOptions::default()).unwrap();
        let found = report.files[0].split_once(": format ").unwrap().1;
        let found = found.split_once(';').unwrap().0;
        assert_eq!(
            (found, &*records),
            (format, &[format!("+ {expected}")][..]),
            "{line}"
        );
    }
}

#[test]
fn a_format_can_be_written() {
    for (format, line, expected) in [
        (
            "$http_x_id ${remote_addr} [$msec] $request_time \"$request_method $request_uri\" $status",
            r#"abc 192.0.2.1 [1548116775.000] 0.250 "GET /a" 200"#,
            "1548116774750 192.0.2.1 GET /a?  200 250",
        ),
        (
            "%a %v %t %D \"%m %U\" \"%q\" %>s %{X-A}i",
            r#"192.0.2.1 host [22/Jan/2019:03:56:14 +0330] 250000 "GET /a" "?b" 200 v"#,
            "1548116774000 192.0.2.1 GET /a?b host 200 250",
        ),
        (
            "%a %t \"%r\" %>s",
            r#"192.0.2.1 [22/Jan/2019:03:56:14 +0330] "GET http://other/a?b HTTP/1.1" 200"#,
            "1548116774000 192.0.2.1 GET /a?b other 200 0",
        ),
        (
            "%START_TIME(%s)% %DOWNSTREAM_REMOTE_ADDRESS% %REQ(:METHOD)% %REQ(X?:PATH)%",
            "1548116774 192.0.2.1:5000 GET /a",
            "1548116774000 192.0.2.1:5000 GET /a?  0 0",
        ),
        (
            "%ci:%cp [%tr] %HM %HU %ST",
            "192.0.2.1:5000 [22/Jan/2019:00:26:14.000] GET /a 200",
            "1548116774000 192.0.2.1 GET /a?  200 0",
        ),
        (
            "json time=at client=peer.ip path=url duration_s=took",
            r#"{"at":1548116774,"ip":"198.51.100.1","peer":{"ip":"192.0.2.1"},"url":"/a","took":0.5}"#,
            "1548116774000 192.0.2.1  /a?  0 500",
        ),
    ] {
        let (_, records) = read(line.as_bytes(), &with_format(format)).unwrap();
        assert_eq!(records, [format!("+ {expected}")], "{format}");
    }
    for (format, part) in [
        (
            "nginx",
            "there is no format `nginx`; write one of caddy, json",
        ),
        ("$status", "it has no time"),
        ("json time", "`time` is not PART=FIELD"),
        ("json when=at", "`when=at` is not PART=FIELD"),
    ] {
        let why = format.parse::<LogFormat>().unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}

/// A line of the common log format.
fn line(second: u32, client: u32) -> String {
    format!("192.0.2.{client} - - [22/Jan/2019:00:26:{second:02} +0000] \"GET / HTTP/1.1\" 200 5\n")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(text.as_bytes(), level)
}

type Expected = Result<(u64, u64, u64, &'static str), &'static str>;

/// Each row: a log, and its lines, decided and skipped ones, with words of the report; or the words
/// of its error.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of logs")]
fn no_line_of_an_odd_log_is_lost_or_counted_twice() {
    let good = line(1, 1);
    let cut = |packed: Vec<u8>| packed[..packed.len() - 9].to_vec();
    let with = |odd: &str| format!("{good}{odd}\n{good}").into_bytes();
    let many = good.repeat(40_000);
    let long = format!("{good}{}", "x".repeat(700_000));
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(good.bytes().flat_map(|b| [b, 0]))
        .collect();
    let ok = |lines, decided, skipped, words| Ok((lines, decided, skipped, words));
    let rows: Vec<(&str, Vec<u8>, Expected)> = vec![
        ("empty", vec![], Err("has no lines")),
        ("only remarks", b"#a\n\n \n".to_vec(), Err("has no lines")),
        (
            "prose",
            b"hello world\n".to_vec(),
            Err("which begin `hello world`"),
        ),
        (
            "control characters",
            b"\0\x1b[31m\n".to_vec(),
            Err("which begin `  [31m`"),
        ),
        (
            "a page of an error",
            b"<html>\n<body>\n".to_vec(),
            Err("which begin `<html>`"),
        ),
        (
            "JSON without a time",
            b"{\"path\":\"/\"}\n".to_vec(),
            Err("no known format"),
        ),
        (
            "a JSON array",
            b"[{\"time\":1,\"path\":\"/\"},\n".to_vec(),
            Err("no known format"),
        ),
        ("UTF-16", utf16, Err("its text is UTF-16")),
        ("bzip2", b"BZh91AY".to_vec(), Err("compressed by bzip2")),
        ("xz", b"\xfd7zXZ\0".to_vec(), Err("compressed by xz")),
        ("zip", b"PK\x03\x04".to_vec(), Err("zip archive")),
        ("gzip cut", cut(gzip(&many)), Err("cannot read")),
        ("gzip of nothing", gzip(""), Err("has no lines")),
        (
            "gzip with rubbish",
            [&gzip(&good)[..], b"\x1f\x8bxx"].concat(),
            Err("cannot read"),
        ),
        ("zstd cut", cut(zstd(&many)), Err("cannot read")),
        ("one line", good.clone().into(), ok(1, 1, 0, "")),
        ("no line end", good.trim_end().into(), ok(1, 1, 0, "")),
        ("CRLF", good.replace('\n', "\r\n").into(), ok(1, 1, 0, "")),
        (
            "byte order mark",
            format!("\u{feff}{good}").into(),
            ok(1, 1, 0, ""),
        ),
        ("many lines", many.clone().into(), ok(40_000, 40_000, 0, "")),
        ("gzip", gzip(&many), ok(40_000, 40_000, 0, "")),
        (
            "two gzip members",
            [gzip(&good), gzip(&good)].concat(),
            ok(2, 2, 0, ""),
        ),
        (
            "two zstd frames",
            [zstd(&good), zstd(&many)].concat(),
            ok(40_001, 40_001, 0, ""),
        ),
        (
            "another line",
            with("not a request"),
            ok(3, 2, 1, "not in the format of the log; 2: not a"),
        ),
        (
            "remark",
            with("# a"),
            ok(3, 2, 1, "empty, or a remark; 2: # a"),
        ),
        (
            "day 99",
            with(&good.trim_end().replace("22/", "99/")),
            ok(3, 2, 1, "without a time"),
        ),
        (
            "before 1970",
            with(&good.trim_end().replace("2019", "1960")),
            ok(3, 2, 1, "without a time"),
        ),
        (
            "year 9999",
            with(&good.trim_end().replace("2019", "9999")),
            ok(3, 2, 1, "without a time"),
        ),
        (
            "offset",
            with(&good.trim_end().replace("+0000", "+9999")),
            ok(3, 2, 1, "without a time"),
        ),
        (
            "no time",
            with(&good.trim_end().replace("22/Jan", "-")),
            ok(3, 2, 1, "without a time"),
        ),
        ("leap second", with(line(60, 1).trim_end()), ok(3, 3, 0, "")),
        (
            "cut line",
            with(&good[..50]),
            ok(3, 2, 1, "not in the format"),
        ),
        (
            "two in one",
            with(&good.trim_end().repeat(2)),
            ok(3, 3, 0, ""),
        ),
        (
            "trailing backslash",
            with(&format!("{}\\", &good[..55])),
            ok(3, 2, 1, "not in the format"),
        ),
        (
            "invalid UTF-8",
            [&good[..], "192.0.2.2 - \u{e9}"].concat().into_bytes()[..].to_vec(),
            ok(2, 1, 1, "not in"),
        ),
        (
            "long line",
            with(&"x".repeat(70_000)),
            ok(3, 2, 1, "longer than 64 KiB; 2: xxx"),
        ),
        (
            "very long line",
            with(&"x".repeat(700_000)),
            ok(3, 2, 1, "longer than 64 KiB; 2: xxx"),
        ),
        (
            "long last line",
            long.into(),
            ok(2, 1, 1, "longer than 64 KiB; 2: xxx"),
        ),
        (
            "a NUL",
            with("\0"),
            ok(3, 2, 1, "not in the format of the log; 2:  "),
        ),
        (
            "JSON cut",
            b"{\"ts\":1,\"path\":\"/\"}\n{\"ts\":2,".to_vec(),
            ok(2, 1, 1, "not in the format"),
        ),
        (
            "JSON and text",
            format!("{good}{good}{{\"ts\":1,\"path\":\"/\"}}\n").into(),
            ok(3, 2, 1, "not in"),
        ),
    ];
    for (name, content, expected) in rows {
        match (read(&content, &LogOptions::default()), expected) {
            (Ok((report, records)), Ok((lines, decided, skipped, words))) => {
                let counts = (report.lines, report.decided, report.skipped);
                assert_eq!(counts, (lines, decided, skipped), "{name}");
                assert_eq!(records.len() as u64, decided, "{name}");
                let first = report.skipped_lines.iter();
                let first: Vec<String> = first
                    .map(|it| format!("{}; {}: {}", it.reason, it.line, it.text))
                    .collect();
                assert!(first.concat().contains(words), "{name}: {first:?}");
                assert_eq!(first.is_empty(), words.is_empty(), "{name}: {first:?}");
            }
            (Err(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{name}: {error}");
            }
            (result, expected) => panic!("{name}: {result:?} is not {expected:?}"),
        }
    }
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, line(1, 1)).unwrap();
    let link = directory
        .path()
        .join("../")
        .join(directory.path().file_name().unwrap());
    let rows: [(Vec<PathBuf>, &str); 4] = [
        (
            vec!["/nowhere/access.log".into()],
            "cannot read `/nowhere/access.log`: ",
        ),
        (vec![directory.path().to_owned()], "is a directory"),
        (
            vec![path.clone(), link.join("access.log")],
            "is named twice",
        ),
        (vec![path; 257], "257 files are more than 256"),
    ];
    for (paths, words) in rows {
        let error = Log::open(&paths, &LogOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}

fn clients(records: &[String]) -> Vec<u32> {
    let client = |record: &String| record.split(['.', ' ']).nth(5).unwrap().parse().unwrap();
    records.iter().map(client).collect()
}

#[test]
fn lines_are_put_in_order_within_the_time_for_it() {
    let text = [
        line(30, 1),
        line(25, 2),
        line(30, 3),
        line(5, 4),
        line(27, 5),
    ]
    .concat();
    for (reorder, order, late) in [
        (60, [4, 2, 5, 1, 3], 0),
        (0, [4, 2, 5, 1, 3], 0), // one batch is always sorted
    ] {
        let options = LogOptions {
            reorder: Nanos::from_secs(reorder),
            ..LogOptions::default()
        };
        let (report, records) = read(text.as_bytes(), &options).unwrap();
        assert_eq!((clients(&records), report.late), (order.to_vec(), late));
        assert_eq!(report.out_of_order, 3);
    }
    // In a later batch, a line that is too late is decided at the time of the one before it.
    let text = line(15, 3) + &line(50, 1).repeat(5_000) + &line(10, 2);
    for (reorder, late) in [(60, 0), (30, 1)] {
        let options = LogOptions {
            reorder: Nanos::from_secs(reorder),
            ..LogOptions::default()
        };
        let (report, records) = read(text.as_bytes(), &options).unwrap();
        assert_eq!((report.out_of_order, report.late), (1, late));
        assert_eq!(clients(&records)[usize::from(late > 0)], 2);
    }
    let options = LogOptions {
        waiting_bytes: 1 << 16,
        ..LogOptions::default()
    };
    let error = read(line(50, 1).repeat(5_000).as_bytes(), &options).unwrap_err();
    assert!(
        error.to_string().contains("do not fit into 65536 bytes"),
        "{error}"
    );
}

#[test]
fn several_files_are_merged_and_unpacked() {
    let directory = tempfile::tempdir().unwrap();
    let part = |first| {
        (first..60)
            .step_by(3)
            .map(|second| line(second, second))
            .collect::<String>()
    };
    let files = [
        ("c.zst", zstd(&part(2))),
        ("a.log", part(0).into()),
        ("b.gz", gzip(&part(1))),
    ];
    let paths = files.map(|(name, content)| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    });
    let (report, records) = replay(&paths, &LogOptions::default(), LAX).unwrap();
    assert_eq!((clients(&records), report.lines), ((0..60).collect(), 60));
}

/// Runs a policy over lines `(time, client, status, path)`; returns the refused ones by their places.
fn refused(limits: &str, lines: &[(&str, &str, u16, &str)]) -> (Vec<usize>, ReplayReport) {
    let lines = lines.iter().map(|(time, client, status, path)| {
        format!("{client} - - [{time}] \"GET {path} HTTP/1.1\" {status} 5 \"-\" \"curl\" \"-\"\n")
    });
    let text = lines.collect::<Vec<String>>().concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    let (report, records) = replay(&[path], &LogOptions::default(), limits).unwrap();
    let refused = records
        .iter()
        .enumerate()
        .filter(|(_, record)| record.starts_with('-'));
    (refused.map(|(index, _)| index).collect(), report)
}

#[test]
fn policies_decide_as_in_service() {
    const A: &str = "22/Jan/2019:00:26:59 +0000";
    const B: &str = "22/Jan/2019:00:27:00 +0000"; // the next minute
    const C: &str = "31/Jan/2019:23:30:00 +0000"; // in Oslo, February
    for (limits, lines, expected) in [
        (
            "[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1m'\nalgorithm = 'fixed-window'",
            &[
                (A, "h.org", 200, "/"),
                (A, "h.org", 200, "/"),
                (A, "g.org", 200, "/"),
                (B, "h.org", 200, "/"),
            ][..],
            &[1][..],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1m'\nalgorithm = 'sliding-window-log'",
            &[
                (A, "::1", 200, "/"),
                (B, "::1", 200, "/"),
                (B, "::2", 200, "/"),
            ],
            &[1, 2], // one /64
        ),
        (
            "timezone = 'Europe/Oslo'\n[[limit]]\nname = 'a'\nkey = ['all']\nlimit = '1/month'",
            &[
                (A, "::1", 200, "/"),
                (B, "::1", 200, "/"),
                (C, "::1", 200, "/"),
            ],
            &[1],
        ),
        (
            "[[limit]]\nname = 'a'\nmatch = { path = '/a/**' }\nkey = ['path']\nlimit = '1/1m'",
            &[
                (A, "::1", 200, "/a/1"),
                (A, "::1", 200, "/a/2"),
                (A, "::9", 200, "/a/%31"),
                (A, "::1", 200, "/"),
            ],
            &[2],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['ip']\nbucket = { size = 1, refill = '1/1h' }\ncount = { status = ['4xx', '5xx'] }",
            &[
                (A, "::1", 200, "/"),
                (A, "::1", 404, "/"),
                (A, "::1", 200, "/"),
                (B, "::1", 404, "/"),
            ],
            &[2, 3],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['all']\nlimit = '2/1m'\n[[limit]]\nname = 'b'\nkey = ['ip']\nlimit = '1/1m'",
            &[
                (A, "::1", 200, "/"),
                (A, "::1", 200, "/"),
                (A, "9.9.9.9", 200, "/"),
                (A, "8.8.8.8", 200, "/"),
            ],
            &[1, 3],
        ),
    ] {
        let (refused, report) = refused(limits, lines);
        assert_eq!(refused, expected, "{limits}");
        assert_eq!(report.all.refused, expected.len() as u64);
    }
}

#[test]
fn a_report_says_what_the_log_does_not_have() {
    let limits = "[[limit]]\nname = 'a'\nkey = ['header:x-user']\nlimit = '1/1m'\nmissing_key = 'shared'\n\
                  [[limit]]\nname = 'b'\nmatch = { path = '/never' }\nkey = ['ip']\nlimit = '1/1m'";
    let time = "22/Jan/2019:00:26:59 +0000";
    let (refused, report) = refused(
        limits,
        &[(time, "h.org", 200, "/"), (time, "::1", 200, "/")],
    );
    assert_eq!(refused, [1]);
    let notes = report.notes.join("\n");
    for words in [
        "1 of the clients are named by a text that is no address",
        "limit a: the log has no `header:x-user`; `missing_key` decided 2 of 2 requests",
        "limit b: no request of the log is for it",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
    let limit = &report.limits[0];
    assert_eq!(limit.worst_clients, [("::1".to_owned(), 1)]);
    assert_eq!((limit.counts.clients, limit.counts.clients_hit), (2, 1));
    assert_eq!(report.from.as_deref(), Some("2019-01-22T00:26:59+00:00"));
}

/// The result of a request comes when it ends, so a request that is in flight holds its permit.
#[test]
fn durations_hold_permits() {
    let limits = "[[limit]]\nname = 'a'\nkey = ['all']\nconcurrency = 1";
    let format = "$remote_addr [$msec] $request_time \"$request\" $status";
    let text = ["::1 [12.0] 2.0", "::1 [13.0] 2.0", "::1 [14.5] 2.0"];
    let text = text
        .map(|text| format!("{text} \"GET / HTTP/1.1\" 200\n"))
        .concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    let (report, records) = replay(&[path], &with_format(format), limits).unwrap();
    let signs: Vec<&str> = records.iter().map(|record| &record[..1]).collect();
    assert_eq!(signs, ["+", "-", "+"], "{:?}", report.notes);
}

#[test]
fn clients_behind_a_trusted_proxy_are_told_apart() {
    let limits = "[client_ip]\ntrusted_proxies = ['10.0.0.0/8']\n[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1h'";
    let text: String = ["192.0.2.1", "192.0.2.2", "192.0.2.1"]
        .map(|client| {
            format!("10.0.0.1 - - [22/Jan/2019:00:26:59 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" \"{client}\"\n")
        })
        .concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    let (report, _) = replay(&[path], &LogOptions::default(), limits).unwrap();
    assert_eq!(
        (
            report.all.refused,
            report.all.clients,
            report.all.clients_hit
        ),
        (1, 2, 1)
    );
    assert_eq!(report.limits[0].worst[0].key, "ip=192.0.2.1");
}

#[test]
fn the_zone_of_a_reader_applies_to_times_without_one() {
    let options = LogOptions {
        zone: TimeZone::get("Europe/Oslo").unwrap(),
        ..with_format("json")
    };
    let text = r#"{"time":"2019-01-22 01:26:14","path":"/"}"#;
    let (report, records) = read(text.as_bytes(), &options).unwrap();
    assert!(records[0].starts_with("+ 1548116774000 "), "{records:?}");
    assert!(
        report.notes.concat().contains("without an offset"),
        "{:?}",
        report.notes
    );
}
