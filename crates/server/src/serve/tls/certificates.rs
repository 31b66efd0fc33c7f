//! Certificates: files that are read again while connections go on.
//!
//! ```text
//!   files --read--> same bytes? --> nothing
//!               --> good?       --> the next handshake uses them; open connections keep theirs
//!               --> bad?        --> the old ones stay, one line in the log
//! ```
//!
//! Files are compared by their content, every few seconds, because symlink swaps, renames and
//! writes in place all show there, on every file system.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper_policy::Tls as TlsSettings;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, ServerConfig, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsAcceptor;

use crate::regular_file::open_regular;

/// Maximum number of bytes of a certificate or key file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How long before the expiry of a certificate its warnings begin.
const EXPIRES_SOON: u64 = 14 * DAY;
const DAY: u64 = 86_400;
/// The library gives one reason for all of them.
const UNUSABLE_KEY: &str =
    "the key cannot be used; expected RSA of at least 2048 bits, ECDSA or Ed25519";

/// The certificates of a listener.
#[derive(derive_more::Debug)]
#[debug("Certificates({:?})", current.load().names)]
pub(crate) struct Certificates {
    /// Protocols that are offered to clients, by their names in ALPN.
    protocols: &'static [&'static [u8]],
    current: ArcSwap<Current>,
    /// The files that are read, and their contents.
    seen: Mutex<(Vec<TlsSettings>, Files)>,
    /// The error of the last look, and how many looks in a row had it.
    failing: Mutex<(String, u32)>,
}

/// Certificates that were read without an error.
struct Current {
    /// Names of the files.
    names: Vec<PathBuf>,
    server: Arc<ServerConfig>,
    /// Seconds since 1970 at which each expires; `None` if that cannot be read.
    expiries: Vec<Option<u64>>,
    /// Key files that every user of the machine can read.
    exposed: Vec<PathBuf>,
}

/// Contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    identities: Vec<Identity>,
    client_ca: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
    is_exposed: bool,
}

impl Certificates {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(super) fn read(
        settings: &[TlsSettings],
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, String> {
        let files = Files::read(settings)?;
        let current = files.current(settings, protocols)?;
        Ok(Self {
            protocols,
            current: ArcSwap::from_pointee(current),
            seen: Mutex::new((settings.to_vec(), files)),
            failing: Mutex::default(),
        })
    }

    /// Uses the files of `next` from the next handshake on.
    pub(crate) fn replace(&self, next: Self) {
        let mut seen = self.seen.lock();
        *seen = next.seen.into_inner();
        self.current.store(next.current.into_inner());
    }

    /// Returns the acceptor for the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.load().server))
    }

    /// Returns the seconds since 1970 at which each certificate expires, if that can be read.
    pub(crate) fn expiries(&self) -> Vec<Option<u64>> {
        self.current.load().expiries.clone()
    }

    /// Returns a sentence for each certificate that expires soon, and each key that is exposed.
    pub(crate) fn warnings(&self, unix_seconds: u64) -> Vec<String> {
        let current = self.current.load();
        let expiring = current.expiries.iter().zip(&current.names);
        let expiring = expiring.filter_map(|(expiry, name)| {
            let name = name.display();
            let expiry = (*expiry)?;
            match expiry.checked_sub(unix_seconds) {
                None => Some(format!("the certificate `{name}` has expired")),
                Some(left) if left < EXPIRES_SOON => {
                    let days = left / DAY; // rounded down, so that the warning is never late
                    Some(format!("the certificate `{name}` expires in {days} days"))
                }
                Some(_) => None,
            }
        });
        let exposed = current.exposed.iter().map(|path| {
            let name = path.display();
            format!("every user of this machine can read the key `{name}`: run chmod 600 {name}")
        });
        expiring.chain(exposed).collect()
    }

    /// Reads the files again; returns true if there are new certificates.
    ///
    /// # Errors
    /// A sentence about the new contents. They are not judged again until they change; files that
    /// cannot be read are refused once, at the second look with the same error.
    pub(super) fn refresh(&self) -> Result<bool, String> {
        let mut seen = self.seen.lock();
        let mut failing = self.failing.lock();
        let (settings, seen) = &mut *seen;
        let files = match Files::read(settings) {
            Ok(files) => files,
            Err(why) => {
                let before = if failing.0 == why { failing.1 } else { 0 };
                *failing = (why.clone(), before.saturating_add(1));
                // The files may be in the middle of being replaced: the second look decides.
                return if before == 1 { Err(why) } else { Ok(false) };
            }
        };
        *failing = (String::new(), 0);
        if files == *seen {
            return Ok(false);
        }
        *seen = files;
        let current = seen.current(settings, self.protocols)?;
        self.current.store(Arc::new(current));
        Ok(true)
    }
}

impl Files {
    fn read(settings: &[TlsSettings]) -> Result<Self, String> {
        let identity = |settings: &TlsSettings| {
            let (key, is_exposed) = read_file(&settings.key)?;
            Ok(Identity {
                certificate: read_file(&settings.certificate)?.0,
                key,
                is_exposed,
            })
        };
        let identities: Result<_, String> = settings.iter().map(identity).collect();
        let client_ca = client_ca(settings).map(read_file).transpose()?;
        Ok(Self {
            identities: identities?,
            client_ca: client_ca.map(|(bytes, _)| bytes),
        })
    }

    fn current(&self, settings: &[TlsSettings], protocols: &[&[u8]]) -> Result<Current, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let keys: Result<Vec<_>, _> = self
            .identities
            .iter()
            .zip(settings)
            .map(|(identity, settings)| identity.certified_key(settings, &provider))
            .collect();
        let keys = keys?;
        let expiries = keys.iter().map(|key| expiry(key.cert.first()?, &provider));
        let expiries = expiries.collect();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?;
        let builder = match (&self.client_ca, client_ca(settings)) {
            (Some(text), Some(path)) => {
                let mut roots = RootCertStore::empty();
                for root in read_certificates(text, path)? {
                    roots.add(root).map_err(|why| failed(path, &why))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|why| failed(path, &why))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut server = builder.with_cert_resolver(Arc::new(ByName(keys)));
        server.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let exposed = self.identities.iter().zip(settings);
        let exposed = exposed.filter(|(identity, _)| identity.is_exposed);
        let names = settings.iter().map(|settings| settings.certificate.clone());
        Ok(Current {
            names: names.collect(),
            server: Arc::new(server),
            expiries,
            exposed: exposed.map(|(_, settings)| settings.key.clone()).collect(),
        })
    }
}

impl Identity {
    fn certified_key(
        &self,
        settings: &TlsSettings,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, String> {
        let chain = read_certificates(&self.certificate, &settings.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| failed(&settings.key, &"no private key in PEM"))?;
        let key = CertifiedKey::from_der(chain, key, provider);
        let key = key.map_err(|why| match why {
            rustls::Error::General(_) => failed(&settings.key, &UNUSABLE_KEY),
            why => failed(&settings.certificate, &why),
        })?;
        if let Some(certificate) = key.cert.first() {
            ParsedCertificate::try_from(certificate)
                .map_err(|why| failed(&settings.certificate, &why))?;
        }
        Ok(Arc::new(key))
    }
}

/// Chooses a certificate by the names that it has itself; for other names, and for clients that ask
/// for none, the first.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let usable = || {
            let keys = self.0.iter();
            keys.filter(|key| key.key.choose_scheme(schemes).is_some())
        };
        let name = hello.server_name().map(ServerName::try_from);
        let named = name.and_then(Result::ok).and_then(|name| {
            usable().find(|key| {
                let certificate = key.cert.first().map(ParsedCertificate::try_from);
                certificate.is_some_and(|it| {
                    it.is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
                })
            })
        });
        named.or_else(|| usable().next()).cloned()
    }
}

/// Returns the seconds since 1970 at which a certificate expires. Its expiry is the first thing
/// that is wrong with it at the latest representable time, and the error has the date.
fn expiry(certificate: &CertificateDer<'_>, provider: &Arc<CryptoProvider>) -> Option<u64> {
    const END_OF_TIME: Duration = Duration::from_secs(u64::MAX);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone().into_owned()).ok()?;
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let name = ServerName::try_from("localhost").ok()?;
    let end = UnixTime::since_unix_epoch(END_OF_TIME);
    let verifier = verifier.build().ok()?;
    match verifier.verify_server_cert(certificate, &[], &name, &[], end) {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => Some(not_after.as_secs()),
        _ => None,
    }
}

fn client_ca(settings: &[TlsSettings]) -> Option<&Path> {
    settings.iter().find_map(|it| it.client_ca.as_deref())
}

fn failed(path: &Path, why: &dyn fmt::Display) -> String {
    format!("`{}`: {why}", path.display())
}

/// Returns the contents of a file, and whether every user of the machine can read it.
fn read_file(path: &Path) -> Result<(Vec<u8>, bool), String> {
    const READ_BY_OTHERS: u32 = 0o004;
    let file = open_regular(path).map_err(|why| failed(path, &why))?;
    let mode = file.metadata().map(|it| it.permissions().mode());
    let is_exposed = mode.is_ok_and(|mode| mode & READ_BY_OTHERS != 0);
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    let length = read.map_err(|why| failed(path, &why))?;
    if length as u64 > MAX_FILE_BYTES {
        let why = format_args!("at most {MAX_FILE_BYTES} bytes are read");
        return Err(failed(path, &why));
    }
    Ok((bytes, is_exposed))
}

/// Returns the configuration of a client that trusts the authorities in `ca`, or those of the
/// system.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn trusting(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        let (pem, _) = read_file(path)?;
        for root in read_certificates(&pem, path)? {
            roots.add(root).map_err(|why| failed(path, &why))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("the system trusts no authority: name a PEM file of authorities".into());
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the certificates of a PEM text, at least one; `path` is for the error.
fn read_certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.ok_or_else(|| failed(path, &"no certificate in PEM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED: &[&[u8]] = &[b"http/1.1"];

    /// Writes a certificate that is valid to the end of 2040, and returns its settings.
    fn written(directory: &Path) -> TlsSettings {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2041, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        let settings = TlsSettings {
            certificate: directory.join("site.pem"),
            key: directory.join("site.key"),
            client_ca: None,
        };
        std::fs::write(&settings.certificate, certificate.pem()).unwrap();
        std::fs::write(&settings.key, key.serialize_pem()).unwrap();
        settings
    }

    #[test]
    fn a_certificate_that_expires_soon_and_an_exposed_key_are_warned_of() {
        const END: u64 = 2_240_611_200; // 2041-01-01
        let directory = tempfile::tempdir().unwrap();
        let settings = written(directory.path());
        let mode = |bits| std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(&settings.key, mode(0o640)).unwrap();
        let certificates = Certificates::read(std::slice::from_ref(&settings), OFFERED).unwrap();
        assert_eq!(certificates.expiries(), [Some(END)]);
        let name = settings.certificate.display();
        for (before, expected) in [
            (15 * DAY, vec![]),
            (
                3 * DAY + 5,
                vec![format!("the certificate `{name}` expires in 3 days")],
            ),
        ] {
            assert_eq!(certificates.warnings(END - before), expected);
        }
        let expired = format!("the certificate `{name}` has expired");
        assert_eq!(certificates.warnings(END + 1), [expired]);

        std::fs::set_permissions(&settings.key, mode(0o644)).unwrap();
        assert_eq!(certificates.refresh(), Ok(true));
        let warnings = certificates.warnings(0);
        assert!(warnings[0].contains("run chmod 600"), "{warnings:?}");
        assert!(!format!("{certificates:?}").contains("PRIVATE"));
    }

    /// RSA of 512 bits.
    const WEAK: &str = "-----BEGIN PRIVATE KEY-----
MIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6AgEAAkEAvMYBfKe1R9RkREQx
r4mhMHQgjrQkztp3cgdXCwYH6gd2LmOiYp9ssdOHgEhNlkzrB7CAC9MvWFOulgWO
/M6ayQIDAQABAkBEvyttdToMpam6PseFcO7V0YTF048QEfmr+kZVymV5cYuQt/FK
6J3EB16J9qqxLmUywBvg/c7WOtDpHNTAWgQtAiEA7mWZlvqocoaYDWKKcqqUblxy
eOY8qJ5YKhK0xKzGoQsCIQDKtmC2zNhC2lApXdEysbPDcC5ZruKxt2E4mCYBW2c/
+wIgcL9GY3xKvFdhhDsNhWudZZB9ZyZkm86/na5ZJgccrb8CIEcxoGvzK6znEapF
mdhtEs58ErtKsbFqz0laHlbxrCSLAiEAipmlmVrhKa+N91DGxPC68Fwz1tiYjbtJ
kXNcs3wvCMI=
-----END PRIVATE KEY-----
";

    #[test]
    fn a_weak_key_is_refused_by_its_name_and_the_kinds_that_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let settings = written(directory.path());
        std::fs::write(&settings.key, WEAK).unwrap();
        let refused = Certificates::read(std::slice::from_ref(&settings), OFFERED).unwrap_err();
        assert_eq!(
            refused,
            format!("`{}`: {UNUSABLE_KEY}", settings.key.display())
        );
    }

    #[test]
    fn files_that_become_unreadable_are_refused_once() {
        let directory = tempfile::tempdir().unwrap();
        let settings = written(directory.path());
        let certificates = Certificates::read(std::slice::from_ref(&settings), OFFERED).unwrap();
        let away = directory.path().join("away.key");
        for _ in 0..2 {
            std::fs::rename(&settings.key, &away).unwrap();
            assert_eq!(certificates.refresh(), Ok(false));
            let why = certificates.refresh().unwrap_err();
            assert!(why.contains("site.key"), "{why}");
            assert_eq!(certificates.refresh(), Ok(false));
            std::fs::rename(&away, &settings.key).unwrap();
            assert_eq!(certificates.refresh(), Ok(false));
        }
    }
}
