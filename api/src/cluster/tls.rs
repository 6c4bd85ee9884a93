//! Encryption of connections to other nodes, whose URLs begin with `https://`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::config;
use crate::tls::{chain_in, key_in, roots_in};

/// Between two looks whether the files have changed; they are looked at when a connection is opened.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The authorities of other nodes, and the certificate that this one shows to them.
#[derive(Clone, Default)]
pub struct NodeTls(Option<Arc<Shared>>);

struct Shared {
    files: Files,
    current: Mutex<Current>,
}

struct Files {
    ca: PathBuf,
    certificate: Option<(PathBuf, PathBuf)>,
}

/// What was read, and the settings that it makes.
struct Current {
    contents: Contents,
    settings: Arc<ClientConfig>,
    looked: Instant,
}

/// The bytes of the files.
#[derive(PartialEq, Eq)]
struct Contents {
    ca: Vec<u8>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl NodeTls {
    /// Reads the files of `cluster.tls`; without an authority no node is reached by `https://`.
    ///
    /// # Errors
    /// With the name of the setting and of the file.
    pub fn open(config: &config::ClusterTls) -> Result<Self, String> {
        let Some(ca) = config.ca.clone() else { return Ok(Self::default()) };
        Self::of(Files { ca, certificate: config.cert.clone().zip(config.key.clone()) })
    }

    fn of(files: Files) -> Result<Self, String> {
        let contents = files.read()?;
        let settings = files.settings(&contents)?;
        let current = Mutex::new(Current { contents, settings, looked: Instant::now() });
        Ok(Self(Some(Arc::new(Shared { files, current }))))
    }

    /// Whether nodes are reached by `https://`.
    #[must_use]
    pub fn has_authorities(&self) -> bool {
        self.0.is_some()
    }

    /// The settings of a connection that is opened now. Reads the files from time to time; those that cannot be used leave the
    /// ones before in force.
    ///
    /// # Errors
    /// Without an authority.
    pub(super) async fn settings(&self) -> Result<Arc<ClientConfig>, String> {
        let Some(shared) = &self.0 else {
            return Err("cluster.tls.ca is not set, so its certificate cannot be checked".to_owned());
        };
        {
            let mut current = shared.current.lock();
            if current.looked.elapsed() < LOOK_EVERY {
                return Ok(Arc::clone(&current.settings));
            }
            // Other connections that are opened meanwhile do not read them as well.
            current.looked = Instant::now();
        }
        let looking = Arc::clone(shared);
        let looked = tokio::task::spawn_blocking(move || looking.look()).await;
        if let Err(problem) = looked.unwrap_or_else(|error| Err(error.to_string())) {
            tracing::warn!(problem, "the files of cluster.tls were not read again; those before stay in force");
        }
        Ok(Arc::clone(&shared.current.lock().settings))
    }
}

impl Shared {
    fn look(&self) -> Result<(), String> {
        let contents = self.files.read()?;
        if contents == self.current.lock().contents {
            return Ok(());
        }
        let settings = self.files.settings(&contents)?;
        let mut current = self.current.lock();
        (current.contents, current.settings) = (contents, settings);
        tracing::info!("the files of cluster.tls have changed; new connections to other nodes use them");
        Ok(())
    }
}

impl Files {
    fn read(&self) -> Result<Contents, String> {
        let read = |setting: &str, path: &PathBuf| {
            std::fs::read(path).map_err(|error| format!("cluster.tls.{setting}: {}: {error}", path.display()))
        };
        let certificate = match &self.certificate {
            Some((cert, key)) => Some((read("cert", cert)?, read("key", key)?)),
            None => None,
        };
        Ok(Contents { ca: read("ca", &self.ca)?, certificate })
    }

    fn settings(&self, contents: &Contents) -> Result<Arc<ClientConfig>, String> {
        let wrong = |setting: &str, path: &PathBuf, problem: String| {
            format!("cluster.tls.{setting}: {}: {problem}", path.display())
        };
        let roots = roots_in(&contents.ca).map_err(|problem| wrong("ca", &self.ca, problem))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| wrong("ca", &self.ca, error.to_string()))?.with_root_certificates(roots);
        let mut settings = match (&self.certificate, &contents.certificate) {
            (Some((cert_file, key_file)), Some((cert, key))) => {
                let chain = chain_in(cert).map_err(|problem| wrong("cert", cert_file, problem))?;
                let key = key_in(key).map_err(|problem| wrong("key", key_file, problem))?;
                let builder = builder.with_client_auth_cert(chain, key);
                builder.map_err(|error| wrong("key", key_file, error.to_string()))?
            }
            _ => builder.with_no_client_auth(),
        };
        settings.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(settings))
    }
}
