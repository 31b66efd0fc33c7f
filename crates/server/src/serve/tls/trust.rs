//! Trust: the authorities that sign for the servers we call.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::certificates::read_file;

/// Returns the configuration of a client that trusts the authorities in `ca`, or those of the
/// system.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn trusting(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        let failed = |why: &dyn fmt::Display| format!("`{}`: {why}", path.display());
        let (pem, _) = read_file(path)?;
        for root in read_certificates(&pem, path)? {
            roots.add(root).map_err(|why| failed(&why))?;
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
pub(super) fn read_certificates(
    pem: &[u8],
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.ok_or_else(|| format!("`{}`: no certificate in PEM", path.display()))
}
