//! Encryption of connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;
use ureq::tls::{Certificate, PemItem};

use crate::{certificate, config};

/// Between two looks whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The certificate of the node, read again when its files change.
pub struct Tls {
    files: Files,
    /// What was read, and the settings that it makes.
    current: RwLock<(Contents, Arc<ServerConfig>)>,
}

struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// The bytes of the files.
#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The certificates of the authorities in a file, by which a client of this program verifies a server.
///
/// # Errors
/// If it cannot be read, is not PEM or has no certificate.
pub fn authorities(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    let certificates = ureq::tls::parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error.to_string())),
    });
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(certificates) }
}

/// The certificates in PEM, at least one.
pub(crate) fn chain_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(chain) }
}

/// The first private key in PEM.
pub(crate) fn key_in(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| error.to_string())
}

/// The authorities in PEM, at least one.
pub(crate) fn roots_in(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in chain_in(pem)? {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

impl Tls {
    /// Checks the files that the configuration names.
    ///
    /// # Errors
    /// With the name of the setting and of the file.
    pub fn check(config: &config::Tls) -> Result<(), String> {
        let (Some(cert), Some(key)) = (config.cert.clone(), config.key.clone()) else { return Ok(()) };
        let files = Files { cert, key, client_ca: config.client_ca.clone() };
        files.read()?.settings(&files).map(drop)
    }

    /// Reads the files that the configuration names; `None` if it names none. Must be called in a runtime, which looks for
    /// changes.
    ///
    /// # Errors
    /// With the name of the setting and of the file.
    pub fn open(config: &config::Tls) -> Result<Option<Arc<Self>>, String> {
        let (Some(cert), Some(key)) = (config.cert.clone(), config.key.clone()) else { return Ok(None) };
        let files = Files { cert, key, client_ca: config.client_ca.clone() };
        let contents = files.read()?;
        let settings = contents.settings(&files)?;
        contents.note_expiry();
        let tls = Arc::new(Self { files, current: RwLock::new((contents, settings)) });
        tokio::spawn(reload(Arc::downgrade(&tls)));
        Ok(Some(tls))
    }

    /// Accepts connections by the newest certificate.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().1))
    }

    fn look(&self) -> Result<(), String> {
        let contents = self.files.read()?;
        if contents == self.current.read().0 {
            return Ok(());
        }
        let settings = contents.settings(&self.files)?;
        contents.note_expiry();
        *self.current.write() = (contents, settings);
        tracing::info!(cert = %self.files.cert.display(), "the certificate has changed; new connections use it");
        Ok(())
    }
}

/// Looks for changes while the node serves. A certificate that cannot be used leaves the one before in force.
async fn reload(tls: Weak<Tls>) {
    let mut warned = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(tls) = tls.upgrade() else { return };
        let looked = tokio::task::spawn_blocking(move || tls.look()).await;
        let problem = looked.ok().and_then(Result::err);
        if let Some(problem) = problem.as_ref().filter(|problem| warned.as_ref() != Some(*problem)) {
            tracing::warn!(problem, "the certificate was not read again; the one before stays in force");
        }
        warned = problem;
    }
}

impl Files {
    fn read(&self) -> Result<Contents, String> {
        let read = |setting: &str, path: &Path| {
            std::fs::read(path).map_err(|error| format!("server.tls.{setting}: {}: {error}", path.display()))
        };
        Ok(Contents {
            cert: read("cert", &self.cert)?,
            key: read("key", &self.key)?,
            client_ca: self.client_ca.as_deref().map(|path| read("client_ca", path)).transpose()?,
        })
    }
}

impl Contents {
    /// Says in the metrics when the certificate of the node expires.
    fn note_expiry(&self) {
        let certificate = CertificateDer::pem_slice_iter(&self.cert).next().and_then(Result::ok);
        if let Some(expiry) = certificate.and_then(|certificate| certificate::expiry(&certificate)) {
            metrics::gauge!("celeris_tls_expiry_timestamp_seconds").set(expiry.as_second() as f64);
        }
    }

    fn settings(&self, files: &Files) -> Result<Arc<ServerConfig>, String> {
        let wrong = |setting: &str, path: &Path, problem: &dyn std::fmt::Display| {
            format!("server.tls.{setting}: {}: {problem}", path.display())
        };
        let chain = chain_in(&self.cert).map_err(|problem| wrong("cert", &files.cert, &problem))?;
        let key = key_in(&self.key).map_err(|problem| wrong("key", &files.key, &problem))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| wrong("cert", &files.cert, &error))?;
        let builder = match (&self.client_ca, &files.client_ca) {
            (Some(bytes), Some(path)) => {
                let roots = roots_in(bytes).map_err(|problem| wrong("client_ca", path, &problem))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong("client_ca", path, &error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut settings = builder.with_single_cert(chain, key).map_err(|error| wrong("key", &files.key, &error))?;
        settings.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(settings))
    }
}
