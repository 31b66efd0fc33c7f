//! Any text is a URL of an upstream that names one host and port, or an error; and any path has a
//! normal form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ratekeeper_policy::{UpstreamUrl, normal_path};

fuzz_target!(|text: &str| {
    if let Ok(url) = text.parse::<UpstreamUrl>() {
        assert_eq!(url.to_string().parse(), Ok(url.clone()));
        let (host, port) = url
            .address()
            .rsplit_once(':')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .expect("HOST:PORT");
        assert_eq!((host, port), (url.host, url.port.to_string()));
    }
    let normal = normal_path(text);
    let normal = std::str::from_utf8(normal.as_ref()).expect("a normal path is ASCII");
    assert!(normal.starts_with('/'));
    assert_eq!(normal_path(normal).as_ref(), normal.as_bytes());
});
