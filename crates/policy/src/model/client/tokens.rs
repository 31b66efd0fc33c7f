//! Tokens: `[jwt]`, which tokens are valid, and their claims (RFC 7519).
//!
//! ```text
//!   token --> at most 8 KiB? --> key of its `kid`? --> algorithm of that key, and in `algorithms`?
//!         --> signature right? --> exp, nbf, iss, aud right? --> its claims
//! ```
//!
//! Every "no" means that the request has no token. A key fixes the algorithms that it verifies,
//! so a token cannot choose to be verified by a public key as a shared secret.

use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Validation, crypto, decode, decode_header,
};
use serde_json::{Map, Value};

use super::TokenSettings;
use crate::WallTime;
use crate::http::octets::only;

/// Maximum number of bytes of a token; servers accept headers of about this size.
const MAX_TOKEN: usize = 8 << 10;
/// Maximum number of keys of one file.
const MAX_KEYS: usize = 100;
/// Maximum difference between the clocks of the issuer and of this process, in seconds.
const LEEWAY: u64 = 60;
/// Minimum number of bytes of a shared secret: RFC 7518, section 3.2.
const MIN_SECRET: usize = 32;

/// The tokens that are valid: `[jwt]`. A key hides its bytes from `Debug`.
#[derive(Clone, Debug)]
pub struct Tokens {
    settings: TokenSettings,
    keys: Vec<TokenKey>,
}

/// A key, and the algorithms that it verifies.
#[derive(Clone, Debug)]
struct TokenKey {
    /// `kid` of the tokens that it verifies; `None` if it was written without one.
    id: Option<String>,
    key: DecodingKey,
    validation: Validation,
}

impl Tokens {
    /// Reads the keys: a JWK set, public keys in PEM, or a shared secret.
    ///
    /// # Errors
    /// Returns the reason why no token could be verified.
    pub(crate) fn new(settings: TokenSettings, text: &str) -> Result<Self, String> {
        // Without it, a program with two providers in its tree would panic at the first token.
        let _ = crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        let mut algorithms = Vec::with_capacity(settings.algorithms.len());
        for name in &settings.algorithms {
            let algorithm = name.parse::<Algorithm>();
            algorithms.push(algorithm.map_err(|_| format!("`{name}` is not supported"))?);
        }
        let is_secret = |of: &Algorithm| of.family() == AlgorithmFamily::Hmac;
        if algorithms.iter().any(is_secret) && !algorithms.iter().all(is_secret) {
            let why =
                "algorithms with a shared secret (HS) and with public keys cannot be combined";
            return Err(why.into());
        }
        let text = text.trim();
        let keys = if text.starts_with('{') {
            jwk_set(text, &algorithms)?
        } else if text.contains("-----BEGIN") {
            vec![pem(text, &algorithms)?]
        } else if algorithms.iter().all(is_secret) {
            vec![secret(text, &algorithms)?]
        } else {
            return Err("the file is neither a JWK set nor a public key in PEM".into());
        };
        if keys.is_empty() {
            return Err("no key of the file is for one of the `algorithms`".into());
        }
        Ok(Self { settings, keys })
    }

    /// Returns the name of the header with the token, in lower case.
    pub(crate) fn header(&self) -> &str {
        &self.settings.header
    }

    /// Returns the claims of a token that is valid at `wall`, with numbers and truth values as
    /// text.
    pub(crate) fn verify(&self, token: &[u8], wall: WallTime) -> Option<Map<String, Value>> {
        let now = wall.unix_seconds()?;
        if token.len() > MAX_TOKEN {
            return None;
        }
        let header = decode_header(token).ok()?;
        if header.crit.is_some() {
            return None; // an extension that must be understood: RFC 7515, section 4.1.11
        }
        let key = self.key(header.kid.as_deref(), header.alg)?;
        let token = decode::<Map<String, Value>>(token, &key.key, &key.validation).ok()?;
        let mut claims = Some(token.claims).filter(|claims| self.accept(claims, now))?;
        for value in claims.values_mut() {
            if matches!(value, Value::Number(_) | Value::Bool(_)) {
                *value = Value::String(value.to_string());
            }
        }
        Some(claims)
    }

    /// Returns the key that must have signed a token: that of its `kid`, or the only one that may
    /// be meant.
    fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&TokenKey> {
        let fits = |key: &&TokenKey| key.validation.algorithms.contains(&algorithm);
        let fitting = || self.keys.iter().filter(fits);
        let named = fitting().find(|key| id.is_some() && key.id.as_deref() == id);
        if named.is_some() {
            return named;
        }
        only(fitting().filter(|key| id.is_none() || key.id.is_none()))
    }

    /// Returns true if a token with these claims, which has been signed, is valid.
    fn accept(&self, claims: &Map<String, Value>, now: u64) -> bool {
        let begins = claims.get("nbf").map(seconds);
        let begun = begins.is_none_or(|begin| begin.is_some_and(|begin| begin <= now + LEEWAY));
        let ends = claims.get("exp").and_then(seconds);
        let ended = ends.is_none_or(|end| end.saturating_add(LEEWAY) <= now);
        let stated = claims.get("iss").and_then(Value::as_str);
        let wanted = self.settings.issuer.as_deref();
        let issued = wanted.is_none() || wanted == stated;
        begun && !ended && issued && self.is_addressed(claims.get("aud"))
    }

    fn is_addressed(&self, audience: Option<&Value>) -> bool {
        let Some(own) = &self.settings.audience else {
            return true;
        };
        match audience {
            Some(Value::String(one)) => one == own,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(own)),
            _ => false,
        }
    }
}

/// Returns a `NumericDate` in whole seconds, rounded down; `None` before 1970.
fn seconds(date: &Value) -> Option<u64> {
    date.as_u64().or_else(|| {
        let seconds = Duration::try_from_secs_f64(date.as_f64()?).ok()?;
        Some(seconds.as_secs())
    })
}

impl TokenKey {
    /// Returns `None` if the key verifies none of the policy's `algorithms`.
    fn new(id: Option<String>, key: DecodingKey, algorithms: Vec<Algorithm>) -> Option<Self> {
        let mut validation = Validation::new(*algorithms.first()?);
        validation.algorithms = algorithms;
        // Judged by the time of the decision, in `accept`.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Some(Self {
            id,
            key,
            validation,
        })
    }
}

/// Returns the keys of a JWK set that are for one of the `algorithms`. Others are left out,
/// because issuers publish keys of all their uses in one set.
fn jwk_set(text: &str, algorithms: &[Algorithm]) -> Result<Vec<TokenKey>, String> {
    let set: Value =
        serde_json::from_str(text).map_err(|error| format!("the file is not JSON: {error}"))?;
    let keys = set.get("keys").and_then(Value::as_array);
    let keys = keys.ok_or("the file has no list `keys`, as a JWK set has")?;
    if keys.len() > MAX_KEYS {
        return Err(format!("the file has more than {MAX_KEYS} keys"));
    }
    let mut found: Vec<TokenKey> = Vec::new();
    for key in keys {
        let Ok(jwk) = serde_json::from_value::<Jwk>(key.clone()) else {
            continue;
        };
        let Some(key) = jwk_key(&jwk, algorithms)? else {
            continue;
        };
        if key.id.is_some() && found.iter().any(|other| other.id == key.id) {
            return Err("two keys have the same `kid`".into());
        }
        found.push(key);
    }
    Ok(found)
}

/// Returns a key of a set; `None` if it is for none of the `algorithms`.
fn jwk_key(jwk: &Jwk, algorithms: &[Algorithm]) -> Result<Option<TokenKey>, String> {
    if matches!(&jwk.common.public_key_use, Some(of) if *of != PublicKeyUse::Signature) {
        return Ok(None);
    }
    let fits = |algorithm: &Algorithm| {
        let of_type = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => algorithm.family() == AlgorithmFamily::Rsa,
            AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
                EllipticCurve::P256 => *algorithm == Algorithm::ES256,
                EllipticCurve::P384 => *algorithm == Algorithm::ES384,
                _ => false,
            },
            AlgorithmParameters::OctetKeyPair(pair) => {
                pair.curve == EllipticCurve::Ed25519 && *algorithm == Algorithm::EdDSA
            }
            AlgorithmParameters::OctetKey(_) => algorithm.family() == AlgorithmFamily::Hmac,
            _ => false,
        };
        let own = jwk.common.key_algorithm.map(|own| own.to_string());
        of_type && own.is_none_or(|own| own == format!("{algorithm:?}"))
    };
    let fitting: Vec<_> = algorithms.iter().copied().filter(fits).collect();
    if fitting.is_empty() {
        return Ok(None);
    }
    let id = jwk.common.key_id.clone();
    let key = DecodingKey::from_jwk(jwk).map_err(|error| match &id {
        Some(id) => format!("the key `{id}` cannot be read: {error}"),
        None => format!("a key cannot be read: {error}"),
    })?;
    if key.family() == AlgorithmFamily::Hmac {
        long_enough(key.try_get_as_bytes().unwrap_or_default())?;
    }
    Ok(TokenKey::new(id, key, fitting))
}

/// Returns the public key of a PEM file.
fn pem(text: &str, algorithms: &[Algorithm]) -> Result<TokenKey, String> {
    if text.contains("PRIVATE KEY") {
        return Err("the file holds a private key; only the public key is needed".into());
    }
    let text = text.as_bytes();
    let readers = [
        (
            AlgorithmFamily::Rsa,
            DecodingKey::from_rsa_pem as fn(&[u8]) -> _,
        ),
        (AlgorithmFamily::Ec, DecodingKey::from_ec_pem),
        (AlgorithmFamily::Ed, DecodingKey::from_ed_pem),
    ];
    let found = readers.into_iter().find_map(|(family, read)| {
        let of_family = algorithms.iter().filter(|of| of.family() == family);
        TokenKey::new(None, read(text).ok()?, of_family.copied().collect())
    });
    found.ok_or_else(|| "the file holds no public key for one of the `algorithms`".into())
}

fn secret(text: &str, algorithms: &[Algorithm]) -> Result<TokenKey, String> {
    long_enough(text.as_bytes())?;
    let key = DecodingKey::from_secret(text.as_bytes());
    TokenKey::new(None, key, algorithms.to_vec()).ok_or_else(|| "no algorithm".into())
}

/// Refuses a shared secret that can be guessed.
fn long_enough(secret: &[u8]) -> Result<(), String> {
    if secret.len() >= MIN_SECRET {
        return Ok(());
    }
    Err(format!(
        "the shared secret has {} bytes, at least {MIN_SECRET} are needed",
        secret.len()
    ))
}

#[cfg(test)]
mod tests;
