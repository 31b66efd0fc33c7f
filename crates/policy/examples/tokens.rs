//! What it costs to verify the token of a request: run with `--release`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "measures and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ratekeeper_core::{Origin, Time};
use ratekeeper_policy::config::{Context, PolicyFiles, parse_file};
use ratekeeper_policy::{Charges, Facts, Policy, WallTime};
use serde_json::json;

/// Number of requests of a measurement.
const ROUNDS: u32 = 2_000;
/// 2026-01-01T00:00:00Z
const NOW: u64 = 1_767_225_600;
const SECRET: &str = "a shared secret of 32 bytes or so";
const LIMIT: &str = "[[limit]]\nname = \"per-user\"\nkey = [\"jwt:sub\"]\nmissing_key = \"use:ip\"\n\
                     limit = \"60/1m\"\n";

fn main() -> Result<(), jsonwebtoken::errors::Error> {
    let rsa = EncodingKey::from_rsa_pem(include_bytes!("../tests/keys/rsa.pem"))?;
    let ec = EncodingKey::from_ec_pem(include_bytes!("../tests/keys/ec.pem"))?;
    let ed = EncodingKey::from_ed_pem(include_bytes!("../tests/keys/ed.pem"))?;
    let secret = EncodingKey::from_secret(SECRET.as_bytes());
    for (algorithm, signer, keys) in [
        (Algorithm::HS256, &secret, SECRET),
        (
            Algorithm::RS256,
            &rsa,
            include_str!("../tests/keys/rsa.pub.pem"),
        ),
        (
            Algorithm::ES256,
            &ec,
            include_str!("../tests/keys/ec.pub.pem"),
        ),
        (
            Algorithm::EdDSA,
            &ed,
            include_str!("../tests/keys/ed.pub.pem"),
        ),
    ] {
        let claims = json!({ "sub": "ada", "plan": "pro", "exp": NOW + 600 });
        let token = encode(&Header::new(algorithm), &claims, signer)?;
        let policy = policy(algorithm, keys);
        let name = format!("{algorithm:?}");
        measure(&name, &policy, &format!("Bearer {token}"));
        measure(&format!("{name}, no token"), &policy, "");
    }
    Ok(())
}

fn policy(algorithm: Algorithm, keys: &str) -> Policy {
    let text = format!(
        "version = 1\n[jwt]\nkeys = \"file:keys\"\nalgorithms = [\"{algorithm:?}\"]\n{LIMIT}"
    );
    let files = PolicyFiles::read(&text, |_, _| Ok(keys.to_owned()));
    let loaded = parse_file(&text, &files, Context::default(), Time::ZERO);
    loaded.expect("the policy is right").policy
}

/// Prints the mean time of a request.
fn measure(name: &str, policy: &Policy, authorization: &str) {
    let wall = WallTime::new(Origin::UNIX, Time::from_nanos(NOW * 1_000_000_000));
    let facts = Facts {
        ip: Some([192, 0, 2, 1].into()),
        headers: &[("authorization", authorization.as_bytes())],
        ..Facts::default()
    };
    let mut charges = Charges::default();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        policy.charges(black_box(&facts), wall, &mut charges);
        black_box(&charges);
    }
    println!("{name:18} {:>9.2?}", start.elapsed() / ROUNDS);
}
