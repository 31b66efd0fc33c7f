//! Odd logs: no line is lost or counted twice, and each error has its words.

use std::path::PathBuf;

use ratekeeper_replay::{LogOptions, RequestLog};

use crate::{gzip, line, read, zstd};

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
    let skippable = b"\x5a\x2a\x4d\x18\x03\0\0\0abc";
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
        (
            "zstd cut in metadata",
            [&zstd(&good)[..], &skippable[..10]].concat(),
            Err("cannot read"),
        ),
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
            "zstd with frames of metadata",
            [
                skippable,
                &zstd(&good)[..],
                skippable,
                &zstd(&good)[..],
                skippable,
            ]
            .concat(),
            ok(2, 2, 0, ""),
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
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let content = format!("\u{feff}{}", line(1, 1).repeat(2));
    let (_, records) = read(content.as_bytes(), &LogOptions::default()).unwrap();
    assert_eq!(records[0], records[1]);
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
        let error = RequestLog::open(&paths, &LogOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}
