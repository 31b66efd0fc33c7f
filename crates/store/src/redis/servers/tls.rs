//! TLS: the trusted authorities, the client certificate, and the handshake.
//!
//! ```text
//!   TCP --> handshake: their certificate, by `ca` and `server_name`; ours, if they ask
//!       --> PING: with TLS 1.3 they say only now whether ours will do
//!
//!   renewed: the next handshake uses the new ones; open connections go on
//! ```

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::StoreError;
use crate::redis::config::RedisTls;

/// Maximum bytes of an answer to PING: an error is a line.
const MAX_PONG: usize = 1 << 10;

/// How encrypted connections are made; clones are renewed together.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("ServerTls(..)")]
pub(crate) struct ServerTls {
    /// `None` if no server is reached by TLS.
    terms: Option<Arc<RwLock<Terms>>>,
}

/// The trusted authorities and the client certificate, and the configured name of the server.
#[derive(Clone)]
struct Terms {
    client: TlsConnector,
    name: Option<ServerName<'static>>,
}

impl ServerTls {
    /// Creates the TLS settings as configured.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] that names the certificate or key that is invalid.
    pub(crate) fn new(config: &RedisTls) -> Result<Self, StoreError> {
        let terms = RwLock::new(Terms::new(config)?);
        Ok(Self {
            terms: Some(Arc::new(terms)),
        })
    }

    /// Uses this configuration for new connections; checks nothing without TLS.
    ///
    /// # Errors
    /// As [`ServerTls::new`]; nothing has changed then.
    pub(crate) fn renew(&self, config: &RedisTls) -> Result<(), StoreError> {
        let Some(terms) = &self.terms else {
            return Ok(());
        };
        let new = Terms::new(config)?;
        *terms.write() = new;
        Ok(())
    }

    /// Encrypts a connection to `host`, and checks that the server accepts the client.
    pub(crate) async fn shake_hands(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let Some(terms) = &self.terms else {
            return Err(io::Error::other("TLS is not set up"));
        };
        let Terms { client, name } = terms.read().clone();
        let name = match name {
            Some(name) => name,
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let handshake = client.connect(name, stream).await;
        let mut stream = handshake.map_err(|why| named("TLS handshake", &why))?;
        greet(&mut stream)
            .await
            .map_err(|why| named("TLS refused by the server", &why))?;
        Ok(stream)
    }
}

impl Terms {
    fn new(config: &RedisTls) -> Result<Self, StoreError> {
        let misconfigured = |why: String| StoreError::Misconfigured(why);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| misconfigured(why.to_string()))?
            .with_root_certificates(roots(config.ca.as_deref())?);
        let client = match &config.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(&identity.key);
                let key =
                    key.map_err(|_| misconfigured("`client_key`: no private key in PEM".into()))?;
                let chain = chain("client_certificate", &identity.certificate)?;
                let client = builder.with_client_auth_cert(chain, key);
                client.map_err(|why| {
                    misconfigured(format!(
                        "`client_certificate` and `client_key` do not match: {why}"
                    ))
                })?
            }
        };
        let name = config.server_name.clone().map(|name| {
            let parsed = ServerName::try_from(name.clone());
            parsed.map_err(|_| misconfigured(format!("`server_name` `{name}` is not a host name")))
        });
        Ok(Self {
            client: TlsConnector::from(Arc::new(client)),
            name: name.transpose()?,
        })
    }
}

fn named(what: &str, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{what}: {why}"))
}

/// Checks that the server answers, whatever the answer is.
async fn greet(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(b"PING\r\n").await?;
    let mut answer = Vec::new();
    while answer.last() != Some(&b'\n') {
        if answer.len() >= MAX_PONG {
            return Err(io::Error::other("the server does not speak Redis"));
        }
        answer.push(stream.read_u8().await?);
    }
    Ok(())
}

/// Returns the authorities that may sign a server's certificate.
fn roots(ca: Option<&[u8]>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = ca {
        for root in chain("ca", pem)? {
            roots
                .add(root)
                .map_err(|why| StoreError::Misconfigured(format!("`ca`: {why}")))?;
        }
        return Ok(roots);
    }
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        let why = "the system has no CA certificates: set `ca` to a file of them";
        return Err(StoreError::Misconfigured(why.into()));
    }
    Ok(roots)
}

fn chain(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.ok_or_else(|| StoreError::Misconfigured(format!("`{what}`: no certificate in PEM")))
}
