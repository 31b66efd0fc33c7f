//! Tests of tokens: each way in which a token can be wrong, and the keys that are refused.

use jsonwebtoken::{EncodingKey, Header, encode};
use ratekeeper_core::{Origin, Time};
use serde_json::json;

use super::*;

const SECRET: &str = "a shared secret of 32 bytes or so";
const JWKS: &str = include_str!("../../../../tests/keys/jwks.json");
const RSA: &[u8] = include_bytes!("../../../../tests/keys/rsa.pem");
const RSA_PUBLIC: &str = include_str!("../../../../tests/keys/rsa.pub.pem");
const EC: &[u8] = include_bytes!("../../../../tests/keys/ec.pem");
const EC_PUBLIC: &str = include_str!("../../../../tests/keys/ec.pub.pem");
const ED: &[u8] = include_bytes!("../../../../tests/keys/ed.pem");
const ED_PUBLIC: &str = include_str!("../../../../tests/keys/ed.pub.pem");

/// 2026-01-01T00:00:00Z
const NOW: u64 = 1_767_225_600;

fn wall(seconds: u64) -> WallTime {
    WallTime::new(Origin::UNIX, Time::from_nanos(seconds * 1_000_000_000))
}

fn tokens(algorithms: &[&str], keys: &str) -> Result<Tokens, String> {
    let settings = TokenSettings {
        algorithms: algorithms.iter().map(ToString::to_string).collect(),
        header: "authorization".into(),
        ..TokenSettings::default()
    };
    Tokens::new(settings, keys)
}

/// Returns the key with which tests sign.
fn signer(algorithm: Algorithm) -> EncodingKey {
    match algorithm.family() {
        AlgorithmFamily::Hmac => EncodingKey::from_secret(SECRET.as_bytes()),
        AlgorithmFamily::Rsa => EncodingKey::from_rsa_pem(RSA).unwrap(),
        AlgorithmFamily::Ec => EncodingKey::from_ec_pem(EC).unwrap(),
        AlgorithmFamily::Ed => EncodingKey::from_ed_pem(ED).unwrap(),
    }
}

fn signed(algorithm: Algorithm, id: Option<&str>, claims: &Value) -> String {
    let header = Header {
        kid: id.map(str::to_owned),
        ..Header::new(algorithm)
    };
    encode(&header, claims, &signer(algorithm)).unwrap()
}

fn ada() -> Value {
    json!({ "sub": "ada", "exp": NOW + 600 })
}

/// Returns `sub` of a token; `None` if the token is not valid.
fn subject(tokens: &Tokens, token: &str) -> Option<String> {
    let claims = tokens.verify(token.as_bytes(), wall(NOW))?;
    Some(claims.get("sub")?.as_str()?.to_owned())
}

#[test]
fn each_algorithm_verifies_with_its_key() {
    use Algorithm::{ES256, EdDSA, HS256, HS512, PS256, RS256, RS512};
    for (algorithm, keys, id) in [
        (HS256, SECRET, None),
        (HS512, SECRET, Some("any")),
        (RS256, RSA_PUBLIC, None),
        (RS512, RSA_PUBLIC, None),
        (PS256, RSA_PUBLIC, Some("any")),
        (ES256, EC_PUBLIC, None),
        (EdDSA, ED_PUBLIC, None),
        (RS256, JWKS, Some("rsa-1")),
        (RS256, JWKS, None),
        (ES256, JWKS, Some("ec-1")),
        (EdDSA, JWKS, Some("ed-1")),
    ] {
        let name = format!("{algorithm:?}");
        let tokens = tokens(&[&name], keys).unwrap();
        let token = signed(algorithm, id, &ada());
        assert_eq!(subject(&tokens, &token).as_deref(), Some("ada"), "{name}");
        let unknown = tokens.verify(token.as_bytes(), WallTime::UNKNOWN);
        assert!(unknown.is_none(), "no token is valid at an unknown time");
    }
}

#[test]
fn a_token_cannot_choose_its_algorithm() {
    let with_rsa = tokens(&["RS256"], RSA_PUBLIC).unwrap();
    let with_set = tokens(&["RS256", "ES256"], JWKS).unwrap();
    let public_as_secret = EncodingKey::from_secret(RSA_PUBLIC.as_bytes());
    let confused = encode(&Header::new(Algorithm::HS256), &ada(), &public_as_secret).unwrap();
    let claims = confused.split('.').nth(1).unwrap();
    // {"alg":"none"}, {"alg":"None"}, {"typ":"JWT"}, and no header
    let headers = [
        "eyJhbGciOiJub25lIn0",
        "eyJhbGciOiJOb25lIn0",
        "eyJ0eXAiOiJKV1QifQ",
        "",
    ];
    let unsigned = headers.map(|header| format!("{header}.{claims}."));
    let others = [
        confused,
        signed(Algorithm::RS512, None, &ada()),
        signed(Algorithm::PS256, None, &ada()),
        signed(Algorithm::EdDSA, None, &ada()),
        signed(Algorithm::HS256, Some("rsa-1"), &ada()),
        signed(Algorithm::ES256, Some("rsa-1"), &ada()),
        signed(Algorithm::RS256, Some("ec-1"), &ada()),
        signed(Algorithm::RS256, Some("rsa-enc"), &ada()),
        signed(Algorithm::RS256, Some("unknown"), &ada()),
        signed(Algorithm::RS256, Some(""), &ada()),
    ];
    for token in unsigned.iter().chain(&others) {
        assert_eq!(subject(&with_set, token), None, "{token}");
    }
    for token in unsigned.iter().chain(&others[..5]) {
        assert_eq!(subject(&with_rsa, token), None, "{token}");
    }
    assert!(subject(&with_set, &signed(Algorithm::ES256, None, &ada())).is_some());
}

#[test]
fn a_changed_token_is_not_valid() {
    let tokens = tokens(&["ES256"], EC_PUBLIC).unwrap();
    let token = signed(Algorithm::ES256, None, &ada());
    let other = signed(
        Algorithm::ES256,
        None,
        &json!({ "sub": "eve", "exp": NOW + 600 }),
    );
    let [header, claims, signature] =
        <[&str; 3]>::try_from(token.split('.').collect::<Vec<_>>()).unwrap();
    let eve = other.split('.').nth(1).unwrap();
    let long = "a".repeat(1 << 20);
    for wrong in [
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
        "\u{0}".into(),
        format!("{header}.{eve}.{signature}"),
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!("{header}.{claims}.{signature}.{signature}"),
        format!("{header}.{claims}.{}", &signature[1..]),
        format!("{header}.{claims}.{signature}="),
        format!(" {token}"),
        format!("{header}.{claims}.{long}"),
        format!("{long}.{claims}.{signature}"),
        long,
    ] {
        assert_eq!(subject(&tokens, &wrong), None, "{wrong:.40}");
    }
    assert!(
        tokens
            .verify(&[0xff, 0xfe, b'.', b'.'], wall(NOW))
            .is_none()
    );
    for length in 0..token.len() {
        assert_eq!(subject(&tokens, &token[..length]), None, "{length}");
    }
}

#[test]
fn a_token_is_valid_between_its_times_and_a_minute_around_them() {
    let tokens = tokens(&["HS256"], SECRET).unwrap();
    for (times, expected) in [
        (json!({ "exp": NOW + 1 }), true),
        (json!({ "exp": NOW - 59 }), true),
        (json!({ "exp": NOW - 60 }), false),
        (json!({ "exp": u64::MAX }), true),
        (json!({ "exp": 1.8e9 }), true),
        (json!({ "exp": 1.7e9 }), false),
        (json!({ "exp": 1e300 }), false),
        (json!({ "exp": -1 }), false),
        (json!({ "exp": "1800000000" }), false),
        (json!({ "exp": null }), false),
        (json!({}), false),
        (json!({ "exp": NOW + 9, "nbf": NOW }), true),
        (json!({ "exp": NOW + 9, "nbf": NOW + 60 }), true),
        (json!({ "exp": NOW + 9, "nbf": NOW + 61 }), false),
        (json!({ "exp": NOW + 9, "nbf": "now" }), false),
        (json!({ "exp": NOW + 9, "nbf": -1.5 }), false),
    ] {
        let token = signed(Algorithm::HS256, None, &times);
        let valid = tokens.verify(token.as_bytes(), wall(NOW)).is_some();
        assert_eq!(valid, expected, "{times}");
    }
    let token = signed(Algorithm::HS256, None, &json!({ "exp": NOW }));
    let valid = |at| tokens.verify(token.as_bytes(), wall(at)).is_some();
    assert!(
        valid(NOW + 59) && !valid(NOW + 60),
        "by the time of the decision"
    );
    assert!(valid(NOW + 59), "and again after the clock was set back");
}

#[test]
fn a_token_is_for_the_audience_and_from_the_issuer() {
    let settings = TokenSettings {
        algorithms: vec!["HS256".into()],
        issuer: Some("https://issuer.example".into()),
        audience: Some("api".into()),
        header: "authorization".into(),
    };
    let tokens = Tokens::new(settings, SECRET).unwrap();
    let issuer = "https://issuer.example";
    for (claims, expected) in [
        (json!({ "iss": issuer, "aud": "api" }), true),
        (json!({ "iss": issuer, "aud": ["web", "api"] }), true),
        (json!({ "iss": issuer, "aud": "web" }), false),
        (json!({ "iss": issuer, "aud": ["web", 7] }), false),
        (json!({ "iss": issuer, "aud": [] }), false),
        (json!({ "iss": issuer }), false),
        (json!({ "iss": [issuer], "aud": "api" }), false),
        (
            json!({ "iss": "https://issuer.example/", "aud": "api" }),
            false,
        ),
        (json!({ "aud": "api" }), false),
    ] {
        let mut all = claims.clone();
        all["exp"] = json!(NOW + 60);
        let token = signed(Algorithm::HS256, None, &all);
        let valid = tokens.verify(token.as_bytes(), wall(NOW)).is_some();
        assert_eq!(valid, expected, "{claims}");
    }
}

#[test]
fn claims_are_text() {
    let tokens = tokens(&["HS256"], SECRET).unwrap();
    let claims = json!({
        "exp": NOW + 60, "id": 4711, "admin": true, "https://a.example/plan": "pro", "empty": "",
        "roles": ["a"], "realm": { "role": "a" }, "nothing": null,
    });
    let token = signed(Algorithm::HS256, None, &claims);
    let claims = tokens.verify(token.as_bytes(), wall(NOW)).unwrap();
    for (name, expected) in [
        ("id", Some("4711")),
        ("admin", Some("true")),
        ("https://a.example/plan", Some("pro")),
        ("empty", Some("")),
        ("roles", None),
        ("realm", None),
        ("nothing", None),
        ("sub", None),
    ] {
        let claim = claims.get(name).and_then(Value::as_str);
        assert_eq!(claim, expected, "{name}");
    }
}

#[test]
fn an_extension_that_must_be_understood_is_refused() {
    let tokens = tokens(&["HS256"], SECRET).unwrap();
    let header = Header {
        crit: Some(vec!["b64".into()]),
        ..Header::new(Algorithm::HS256)
    };
    let token = encode(&header, &ada(), &signer(Algorithm::HS256)).unwrap();
    assert_eq!(subject(&tokens, &token), None);
}

#[test]
fn keys_that_verify_nothing_are_refused() {
    let private = std::str::from_utf8(RSA).unwrap();
    let twice = r#"{"keys":[{"kty":"oct","kid":"a","k":"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE"},
        {"kty":"oct","kid":"a","k":"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE"}]}"#;
    let many = format!("{{\"keys\":[{}0]}}", "0,".repeat(MAX_KEYS));
    for (algorithms, keys, reason) in [
        (&["RS256", "HS256"][..], JWKS, "cannot be combined"),
        (&["RS257"], JWKS, "`RS257` is not supported"),
        (&["ES512"], JWKS, "`ES512` is not supported"),
        (&["HS256"], "too short", "has 9 bytes, at least 32"),
        (&["HS256"], RSA_PUBLIC, "no public key for one of"),
        (&["HS256"], JWKS, "no key of the file"),
        (&["ES384"], JWKS, "no key of the file"),
        (&["RS512"], JWKS, "no key of the file"),
        (&["RS256"], SECRET, "neither a JWK set nor a public key"),
        (&["RS256"], "", "neither a JWK set nor a public key"),
        (&["RS256"], EC_PUBLIC, "no public key for one of"),
        (&["RS256"], private, "holds a private key"),
        (&["RS256"], "{", "is not JSON"),
        (&["RS256"], "{}", "no list `keys`"),
        (&["RS256"], "{\"keys\":[]}", "no key of the file"),
        (&["HS256"], twice, "the same `kid`"),
        (&["RS256"], &many, "more than 100 keys"),
        (
            &["HS256"],
            r#"{"keys":[{"kty":"oct","k":"YQ"}]}"#,
            "has 1 bytes, at least 32",
        ),
    ] {
        let refused = tokens(algorithms, keys).err().unwrap_or_default();
        assert!(refused.contains(reason), "{algorithms:?}: {refused}");
    }
}

#[test]
fn no_key_is_shown() {
    let shown = format!("{:?}", tokens(&["HS256"], SECRET).unwrap());
    assert!(
        shown.contains("HS256") && !shown.contains(SECRET),
        "{shown}"
    );
}
