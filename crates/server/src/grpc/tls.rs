//! TLS: certificates that are read again while connections go on.
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
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use ratekeeper_policy::Tls as TlsSettings;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use crate::regular_file::open_regular;

/// Maximum number of bytes of a certificate or key file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The certificates of a door.
pub(crate) struct Certificates {
    settings: TlsSettings,
    current: ArcSwap<ServerConfig>,
    seen: Mutex<Files>,
}

/// Contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The result of reading the files again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refreshed {
    Unchanged,
    Replaced,
    Refused(String),
}

impl Certificates {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(crate) fn read(settings: &TlsSettings) -> Result<Self, String> {
        let files = Files::read(settings)?;
        let config = files.config(settings)?;
        Ok(Self {
            settings: settings.clone(),
            current: ArcSwap::from_pointee(config),
            seen: Mutex::new(files),
        })
    }

    /// Returns the acceptor for the next handshake.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reads the files again. Refused contents are not judged again until they change.
    pub(crate) fn refresh(&self) -> Refreshed {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(files) = Files::read(&self.settings) else {
            // The files may be in the middle of being replaced: the next look decides.
            return Refreshed::Unchanged;
        };
        if files == *seen {
            return Refreshed::Unchanged;
        }
        *seen = files;
        match seen.config(&self.settings) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                Refreshed::Replaced
            }
            Err(why) => Refreshed::Refused(why),
        }
    }
}

/// Shows no keys.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Files {
    fn read(settings: &TlsSettings) -> Result<Self, String> {
        let client_ca = settings.client_ca.as_deref().map(read_file);
        Ok(Self {
            certificate: read_file(&settings.certificate)?,
            key: read_file(&settings.key)?,
            client_ca: client_ca.transpose()?,
        })
    }

    fn config(&self, settings: &TlsSettings) -> Result<ServerConfig, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let failed = |path: &Path, why: &dyn fmt::Display| format!("`{}`: {why}", path.display());
        let chain = certificates(&self.certificate, &settings.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| failed(&settings.key, &"no private key in PEM"))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?;
        let builder = match (&self.client_ca, &settings.client_ca) {
            (Some(text), Some(path)) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(text, path)? {
                    roots.add(root).map_err(|why| failed(path, &why))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|why| failed(path, &why))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|why| failed(&settings.certificate, &why))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.ok_or_else(|| format!("`{}`: no certificate in PEM", path.display()))
}

fn read_file(path: impl Into<PathBuf>) -> Result<Vec<u8>, String> {
    let path = path.into();
    let failed = |why: &dyn fmt::Display| format!("`{}`: {why}", path.display());
    let file = open_regular(&path).map_err(|why| failed(&why))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    let length = read.map_err(|why| failed(&why))?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(failed(&format_args!(
            "at most {MAX_FILE_BYTES} bytes are read"
        )));
    }
    Ok(bytes)
}
