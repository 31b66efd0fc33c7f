//! What it costs to find the charges of a request: run with `--release`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "measures and prints"
)]

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use jiff::tz::TimeZone;
use ratekeeper_core::{Origin, Time};
use ratekeeper_policy::calendar::{MonthDay, Word, YearDay, calendar};
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_policy::{Charges, ClientIp, Facts, Policy, WallTime, network};

fn main() {
    let headers = [
        ("host", &b"api.example.com"[..]),
        ("user-agent", b"curl/8"),
        ("x-api-key", b"0123456789abcdef"),
    ];
    let facts = Facts {
        method: "GET",
        host: "api.example.com",
        path: "/p7/items",
        ip: Some([192, 0, 2, 1].into()),
        headers: &headers,
        ..Facts::default()
    };
    for count in [1, 10, 1_000] {
        let exact = |i| format!("key = [\"ip\"]\nmatch = {{ path = \"/p{}/items\" }}", i + 7);
        report(
            &format!("{count} rules, a path each"),
            &policy(count, exact),
            &facts,
        );
    }
    for count in [10, 1_000] {
        let tree = |i| format!("key = [\"ip\"]\nmatch = {{ path = \"/p{}/**\" }}", i + 7);
        report(
            &format!("{count} rules, a tree each"),
            &policy(count, tree),
            &facts,
        );
        let all = |_| "key = [\"ip\"]".to_owned();
        report(
            &format!("{count} rules, all match"),
            &policy(count, all),
            &facts,
        );
        let header = |i| format!("key = [\"ip\"]\nmatch = {{ header.x-{i} = \"a\" }}");
        report(
            &format!("{count} rules, a header each"),
            &policy(count, header),
            &facts,
        );
    }
    let ipv6 = Facts {
        ip: Some("2001:db8::1".parse().unwrap_or([0; 16].into())),
        ..facts
    };
    let odd = Facts {
        path: "//p7/./%69tems;v=1",
        ..facts
    };
    let one = |key: &'static str| policy(1, move |_| format!("key = [\"{key}\"]"));
    report("key ip, IPv6", &one("ip"), &ipv6);
    report("key path", &one("path"), &facts);
    report("key path, to be normalised", &one("path"), &odd);
    report("key api_key, hashed", &one("api_key"), &facts);

    let chain = [("x-forwarded-for", &b"1.1.1.1, 203.0.113.9, 10.0.0.2"[..])];
    let client_ip = ClientIp {
        trusted_proxies: network("10.0.0.0/8").into_iter().collect(),
        ..ClientIp::default()
    };
    measure("identify behind two proxies", || {
        black_box(client_ip.identify(black_box([10, 0, 0, 1].into()), black_box(&chain)));
    });
    for word in [
        Word::Hour,
        Word::Day,
        Word::Month(MonthDay::FIRST),
        Word::Year(YearDay::FIRST),
    ] {
        for zone in ["UTC", "Europe/Oslo"] {
            let Ok(zone) = TimeZone::get(zone) else {
                continue;
            };
            let origin = Origin::from_unix_nanos(1_780_000_000_000_000_000);
            let windows = calendar(word, zone.clone(), origin);
            measure(&format!("made once: {}", windows.name()), || {
                black_box(calendar(word, black_box(zone.clone()), origin));
            });
            let mut now = 0_u64;
            measure(&format!("window_at, {}", windows.name()), || {
                now = (now + 977_000_000_000_000) & ((1 << 57) - 1);
                black_box(windows.window_at(black_box(Time::from_nanos(now))));
            });
        }
    }
}

fn policy(count: usize, limit: impl Fn(usize) -> String) -> Policy {
    let mut text = String::from("version = 1\n");
    for index in 0..count {
        let lines = limit(index);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[limit]]\nname = \"l{index}\"\nlimit = \"5/1m\"\n{lines}\n"
        );
    }
    match parse(&text, Context::default()) {
        Ok(loaded) => loaded.policy,
        Err(errors) => panic!("the policy is written above: {errors:?}"),
    }
}

fn report(name: &str, policy: &Policy, facts: &Facts<'_>) {
    let mut charges = Charges::default();
    measure(name, || {
        policy.charges(black_box(facts), WallTime::UNKNOWN, &mut charges);
        black_box(&charges);
    });
}

/// Prints the best of some rounds: the time without interference from other programs.
fn measure(name: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 1_000;
    const ROUNDS: usize = 25;
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed() / CALLS
    });
    let best = rounds.min().unwrap_or_default();
    println!("{name:34} {:>8} ns", best.as_nanos());
}
