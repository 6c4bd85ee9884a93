//! An authority and its certificates, made by `openssl`, for tests of encrypted connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use celeris_skip::{Need, unless};

/// An authority. Its files lie in a folder.
pub struct Authority {
    folder: PathBuf,
    name: String,
}

/// A certificate of an authority, and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

fn openssl(arguments: &[&str]) {
    let made = Command::new("openssl").args(arguments).output().expect("there is an openssl");
    assert!(made.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folder of a test is text")
}

/// Of P-256, as most authorities use it.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Authority {
    /// Makes an authority of this name; `None`, and the test is skipped, if there is no `openssl`.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn unless_missing(folder: &Path, name: &str) -> Option<Self> {
        let found = Command::new("openssl").arg("version").output().is_ok().then_some(());
        unless(Need::Commands, found, "there is no `openssl`")?;
        let new = Self { folder: folder.to_owned(), name: name.to_owned() };
        let (cert, key) = (new.file("pem"), new.file("key"));
        let subject = format!("/CN=authority {name}");
        let mut arguments = vec!["req", "-x509", "-days", "2", "-subj", &subject];
        arguments.extend(KEY);
        arguments.extend(["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]);
        arguments.extend(["-keyout", text(&key), "-out", text(&cert)]);
        openssl(&arguments);
        Some(new)
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }

    /// The certificate of the authority itself.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.file("pem")
    }

    /// A certificate for this machine, of servers and clients alike.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn issue(&self, name: &str) -> Certificate {
        let of = |extension: &str| self.folder.join(format!("{}-{name}.{extension}", self.name));
        let (cert, key, request, extensions) = (of("pem"), of("key"), of("csr"), of("ext"));
        let subject = format!("/CN={name}");
        let mut arguments = vec!["req", "-subj", &subject];
        arguments.extend(KEY);
        arguments.extend(["-keyout", text(&key), "-out", text(&request)]);
        openssl(&arguments);
        let wanted = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n\
                      extendedKeyUsage=serverAuth,clientAuth\n";
        fs::write(&extensions, wanted).expect("the folder is ours");
        let (ca, ca_key) = (self.file("pem"), self.file("key"));
        let mut arguments = vec!["x509", "-req", "-days", "2", "-in", text(&request), "-CA", text(&ca)];
        arguments.extend(["-CAkey", text(&ca_key), "-CAcreateserial", "-extfile", text(&extensions)]);
        arguments.extend(["-out", text(&cert)]);
        openssl(&arguments);
        Certificate { cert, key }
    }
}
