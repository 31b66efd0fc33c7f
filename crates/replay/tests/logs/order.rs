//! Order: lines that come late, and several files.

use ratekeeper_core::Nanos;
use ratekeeper_replay::LogOptions;

use crate::{LAX, gzip, line, read, replay, zstd};

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
        assert_eq!(report.out_of_order + report.late, 3);
    }
    // In a later batch, a line that is too late is decided at the time of the one before it.
    let text = line(15, 3) + &line(50, 1).repeat(5_000) + &line(10, 2);
    for (reorder, late) in [(60, 0), (30, 1)] {
        let options = LogOptions {
            reorder: Nanos::from_secs(reorder),
            ..LogOptions::default()
        };
        let (report, records) = read(text.as_bytes(), &options).unwrap();
        assert_eq!((report.out_of_order, report.late), (1 - late, late));
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
