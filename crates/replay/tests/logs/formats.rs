//! Formats: lines of each program, found or named.

use ratekeeper_replay::{LogFormat, LogOptions};

use crate::{read, with_format};

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
            r#"{"time":"2019-01-22T00:26:14Z","remote_addr":"192.0.2.1","request":"","status":400}"#,
            "json",
            "1548116774000 192.0.2.1  ?  400 0",
        ),
        (
            r#"{"time":"2019-01-22T00:26:14Z","remote_addr":"192.0.2.1","request":"\u0016\u0003","status":400}"#,
            "json",
            "1548116774000 192.0.2.1  ?  400 0",
        ),
        (
            r#"{"time":"2019-01-22T00:26:14Z","remote_addr":"192.0.2.1","request_method":"","request_uri":"","status":400}"#,
            "json",
            "1548116774000 192.0.2.1  ?  400 0",
        ),
        (
            r#"10.0.1.2:33317 [22/Jan/2019:00:26:14.655] in b/s 10/0/30/-1/109 -1 0 - - CC-- 1/1/1/1/0 0/0 "GET / HTTP/1.1""#,
            "haproxy",
            "1548116774655 10.0.1.2 GET /?  0 109",
        ),
        (
            r#"{"timestamp":"2019-01-22T00:26:14.200Z","level":"INFO","target":"ratekeeper_server::observe::denial_log","event":"decision.denied","limit":"login","key":"ip=~5f1c","method":"POST","path":"/login"}"#,
            "json",
            "1548116774200  POST /login?  0 0",
        ),
        (
            r#"{"time":"2019-01-22T00:26:14.200Z","client":"192.0.2.1","method":"GET","host":"h","path":"/a","request_id":"01J9","upstream":"127.0.0.1:3000","upstream_ms":3.120,"status":200,"bytes":13,"duration_ms":3.500}"#,
            "json",
            "1548116774200 192.0.2.1 GET /a? h 200 3",
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

/// Every event has `target`, the module that writes it.
#[test]
fn only_refusals_among_events_are_requests() {
    let event = |rest: &str| {
        format!(
            "{{\"timestamp\":\"2019-01-22T00:26:14.200Z\",\"level\":\"INFO\",\
             \"target\":\"ratekeeper_server::observe::event\",{rest}}}\n"
        )
    };
    let content = [
        event(r#""event":"decision.denied","method":"POST","path":"/login""#),
        event(r#""event":"notice","code":"RK0403""#),
        event(r#""event":"stopped""#),
    ];
    let (_, records) = read(content.concat().as_bytes(), &with_format("json")).unwrap();
    let decided = records.iter().filter(|record| record.starts_with('+'));
    assert_eq!(decided.count(), 1, "{records:?}");
}

/// The words in front of a line are never its client, unless a format says so.
#[test]
fn words_in_front_of_a_line_are_no_client() {
    let common = r#"192.0.2.1 - - [22/Jan/2019:00:26:14 +0000] "GET / HTTP/1.1" 200 5"#;
    let combined = format!(r#"{common} "-" "curl""#);
    let read_as = |content: &str, options: &LogOptions| {
        let read = read(content.as_bytes(), options).map_err(|why| why.to_string());
        read.map(|(report, records)| (report.files.concat(), records))
    };
    for (line, format, client) in [
        (
            format!("h.example:443 {combined}"),
            "vhost_combined",
            "192.0.2.1 GET /? h.example 200",
        ),
        (
            format!("[::1]:443 {combined}"),
            "vhost_combined",
            "192.0.2.1 GET /? [::1] 200",
        ),
        (
            format!("Jan 22 03:56:14 web1 nginx: {common}"),
            "common",
            "192.0.2.1 GET /?  200",
        ),
        (
            common.replace("- -", "- Ann Lee"),
            "common",
            "192.0.2.1 GET /?  200",
        ),
        (
            common.replace("192.0.2.1 - -", "h.example - ann"),
            "common",
            "h.example GET /?  200",
        ),
    ] {
        let (files, records) = read_as(&line, &LogOptions::default()).unwrap();
        assert!(
            files.contains(&format!("format {format};")),
            "{line}: {files}"
        );
        assert_eq!(records, [format!("+ 1548116774000 {client} 0")], "{line}");
    }
    for prefix in [
        "h.example ",
        "web-1  | ",
        "10.9.8.7, ",
        "10.9.8.7,",
        "2019-01-22T00:26:14.001Z stdout F ",
        "\0\0",
    ] {
        let error = read_as(&format!("{prefix}{common}"), &LogOptions::default());
        assert!(error.unwrap_err().contains("no known format"), "{prefix}");
    }
    let options =
        with_format("$service  | $remote_addr - - [$time_local] \"$request\" $status $rest");
    let (_, records) = read_as(&format!("web-1  | {common}"), &options).unwrap();
    assert_eq!(records, ["+ 1548116774000 192.0.2.1 GET /?  200 0"]);
}

#[test]
fn one_odd_value_does_not_hide_the_forwarded_addresses() {
    let line = |forwarded: &str| {
        format!(
            "192.0.2.1 - - [22/Jan/2019:00:26:14 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\" \
             \"{forwarded}\"\n"
        )
    };
    for (values, format) in [
        (
            ["203.0.113.1:511", "unknown", "::1, [::1]:80"],
            "combined with x-forwarded-for",
        ),
        (["203.0.113.1", "0.12", "a.example"], "combined"),
    ] {
        let content: String = values.into_iter().map(line).collect();
        let (report, _) = read(content.as_bytes(), &LogOptions::default()).unwrap();
        assert!(
            report.files[0].contains(&format!("format {format};")),
            "{:?}",
            report.files
        );
    }
}

#[test]
fn a_format_of_haproxy_is_read_as_it_writes() {
    for (format, request) in [
        ("%Tl %ci %HM %HP %ST", "GET /a 200"),
        ("%Tl %ci %{+Q}r %ST", "\"GET /a HTTP/1.1\" 200"),
        (
            "%Tl %ci %ST %bq %hr %hs %{+Q}r",
            "200 0 \"GET /a HTTP/1.1\"",
        ),
        (
            "%Tl %ci %ST %bq %hr %hs %{+Q}r",
            "200 0 {a b|c} {} \"GET /a HTTP/1.1\"",
        ),
    ] {
        let line = format!("22/Jan/2019:03:56:14 +0330 192.0.2.1 {request}");
        let (_, records) = read(line.as_bytes(), &with_format(format)).unwrap();
        assert_eq!(
            records,
            ["+ 1548116774000 192.0.2.1 GET /a?  200 0"],
            "{format}: {line}"
        );
    }
}

#[test]
fn a_format_can_be_copied_from_apache_and_nginx() {
    for (format, line, expected) in [
        (
            r#"%h %l %u %t \"%r\" %>s"#,
            r#"192.0.2.1 - - [22/Jan/2019:00:26:14 +0000] "GET /a HTTP/1.1" 200"#,
            "1548116774000 192.0.2.1 GET /a?  200 0",
        ),
        (
            "%h %{%FT%T%z}t %m %U %>s",
            "192.0.2.1 2019-01-22T00:26:14+0000 GET /a 200",
            "1548116774000 192.0.2.1 GET /a?  200 0",
        ),
        (
            "%h [%{%Y-%m-%d %H:%M:%S}t] %m %U %>s",
            "192.0.2.1 [2019-01-22 00:26:14] GET /a 200",
            "1548116774000 192.0.2.1 GET /a?  200 0",
        ),
        (
            "%h %{begin:sec}t %D %m %U %>s",
            "192.0.2.1 1548116774 250000 GET /a 200",
            "1548116774000 192.0.2.1 GET /a?  200 250",
        ),
        (
            "%h %{end:msec}t %D %m %U %>s",
            "192.0.2.1 1548116774250 250000 GET /a 200",
            "1548116774000 192.0.2.1 GET /a?  200 250",
        ),
        (
            "%{X-Forwarded-For}i %l %t \"%r\" %>s",
            r#"203.0.113.1, 192.0.2.1 - [22/Jan/2019:00:26:14 +0000] "GET /a HTTP/1.1" 200"#,
            "1548116774000  GET /a?  200 0",
        ),
        (
            "$proxy_add_x_forwarded_for [$time_local] \"$request\" $status",
            r#"203.0.113.1, 192.0.2.1 [22/Jan/2019:00:26:14 +0000] "GET /a HTTP/1.1" 200"#,
            "1548116774000  GET /a?  200 0",
        ),
    ] {
        let (_, records) = read(line.as_bytes(), &with_format(format)).unwrap();
        assert_eq!(records, [format!("+ {expected}")], "{format}: {line}");
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
            "%h %t \"%r\" %>s \"%{User-Agent}i\"",
            r#"192.0.2.1 [22/Jan/2019:03:56:14 +0330] "GET /caf\xc3\xa9\"a HTTP/1.1" 200 "\\ \"""#,
            "1548116774000 192.0.2.1 GET /caf\u{e9}\"a?  200 0",
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
            "$remote_addr:$remote_port [$msec] \"$request_method $uri$is_args$args\"",
            r#"2001:db8::1:5000 [1548116774.000] "GET /a?b=c""#,
            "1548116774000 2001:db8::1 GET /a?b=c  0 0",
        ),
        (
            "$host:$server_port $remote_addr [$msec] \"$request_method $uri\"",
            r#"[2001:db8::1]:8443 192.0.2.1 [1548116774.000] "GET /a""#,
            "1548116774000 192.0.2.1 GET /a? [2001:db8::1] 0 0",
        ),
        (
            "%v:%p %h %t %m %U%q %>s",
            "[2001:db8::1]:443 192.0.2.1 [22/Jan/2019:00:26:14 +0000] GET /a 200",
            "1548116774000 192.0.2.1 GET /a? [2001:db8::1] 200 0",
        ),
        (
            "%h:%{remote}p %t %m %U%q %>s",
            "2001:db8::1:5000 [22/Jan/2019:00:26:14 +0000] GET /a?b=c 200",
            "1548116774000 2001:db8::1 GET /a?b=c  200 0",
        ),
        (
            "%ci:%cp [%tr] %HM %HP%HQ %ST",
            "192.0.2.1:5000 [22/Jan/2019:00:26:14.000] GET /a 200",
            "1548116774000 192.0.2.1 GET /a?  200 0",
        ),
        (
            "$time_local $remote_addr \"$request\" $status",
            r#"22/Jan/2019:03:56:14 +0330 192.0.2.1 "GET /a HTTP/1.1" 200"#,
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
        (
            "$remote_addr$request_time [$msec]",
            "\n  | $remote_addr$request_time [$msec]\n  |             ^^^^^^^^^^^^^\n  hint: ",
        ),
        ("$msec $uri$args", "\n  |           ^^^^^\n"),
        ("%t %U%q%s", "\n  |        ^^\n"),
        ("%t \u{e9} %a%{x", "\n  |        ^^^"),
        (
            "$msec $remote_addr:$host",
            "a column of addresses ends at `:`",
        ),
        ("json time", "`time` is not PART=FIELD"),
        ("json when=at", "`when=at` is not PART=FIELD"),
    ] {
        let why = format.parse::<LogFormat>().unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}
