//! What the documents call not built is refused, so that no such sentence outlives the work.

use std::path::Path;

use ratekeeper_policy::config::{Context, parse};

/// Document, sentence, and lines of a policy that ask for it.
const CLAIMS: [(&str, &str, &[&str]); 3] = [
    (
        "docs/guide/gateway.md",
        "## Not built\n\nClient certificates on either side.\n",
        &[
            "[listen.proxy]\nupstream = \"https://a\"\n[listen.proxy.tls]\ncertificate = \"a.pem\"\n\
             key = \"a.key\"\nclient_ca = \"clients.pem\"",
            "[listen.proxy]\nupstream = \"https://a\"\n[listen.proxy.upstream_tls]\n\
             certificate = \"a.pem\"\nkey = \"a.key\"",
        ],
    ),
    (
        "CHANGELOG.md",
        "Shared stores other than Redis and Valkey.",
        &["[store.memcached]\nurl = \"a:11211\""],
    ),
    (
        "CHANGELOG.md",
        "- statsd,",
        &["[statsd]\naddress = \"127.0.0.1:8125\""],
    ),
];

#[test]
fn what_is_called_not_built_is_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, sentence, policies) in CLAIMS {
        let text = std::fs::read_to_string(root.join(file)).expect("the document is there");
        assert!(text.contains(sentence), "{file}: {sentence}");
        for lines in policies {
            let text = format!(
                "version = 1\n{lines}\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1s\"\n"
            );
            let errors = parse(&text, Context::default()).expect_err(lines);
            assert!(
                errors.iter().all(|it| it.code == "RK0103"),
                "{lines}: {errors:?}"
            );
        }
    }
}

/// Each sentence of the guides has its row above.
#[test]
fn no_other_sentence_calls_a_feature_not_built() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    for entry in std::fs::read_dir(guide).expect("the guides are there") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let claims = text.lines().filter(|line| {
            let line = line.to_lowercase();
            line.contains("not built") && !line.contains("not built in")
        });
        let name = path.display().to_string();
        let known = CLAIMS.iter().filter(|(file, text, _)| {
            name.ends_with(file.trim_start_matches("docs")) && text.contains("Not built")
        });
        assert_eq!(claims.count(), known.count(), "{name}");
    }
}
