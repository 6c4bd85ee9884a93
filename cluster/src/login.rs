//! How a node shows the NATS servers who it is, and how it knows that they are the right ones.

use std::path::{Path, PathBuf};

use async_nats::{Auth, AuthError, ConnectOptions};

use crate::error::ClusterError;

/// The most that a file with a password or token may have, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// What the servers ask a node for. The files are read for each connection, so a changed one counts from the next on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// The name of a user, and the file with the password.
    Password { user: String, file: PathBuf },
    /// The file with a token.
    Token { file: PathBuf },
}

/// The files by which connections to the servers are encrypted, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerTls {
    /// Whether a server that does not encrypt is refused.
    pub is_required: bool,
    /// The authorities of the certificates of the servers; without it those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate of this node and its key, for servers that ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Options of a connection with this login and these files.
///
/// # Errors
/// `Login` if a file cannot be read.
pub(crate) fn begin(login: Option<&Login>, tls: &ServerTls) -> Result<ConnectOptions, ClusterError> {
    let mut connect = match login.cloned() {
        None => ConnectOptions::new(),
        Some(login) => {
            read(&login).map_err(|problem| ClusterError::Login { problem })?;
            ConnectOptions::with_auth_callback(move |_nonce| {
                let read = read(&login).map_err(AuthError::new);
                async move { read }
            })
        }
    };
    connect = connect.require_tls(tls.is_required);
    for file in tls.ca.iter().chain(tls.certificate.iter().flat_map(|(cert, key)| [cert, key])) {
        std::fs::File::open(file)
            .map_err(|error| ClusterError::Login { problem: format!("{}: {error}", file.display()) })?;
    }
    if let Some(ca) = &tls.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    if let Some((cert, key)) = &tls.certificate {
        connect = connect.add_client_certificate(cert.clone(), key.clone());
    }
    Ok(connect)
}

fn read(login: &Login) -> Result<Auth, String> {
    let mut auth = Auth::new();
    match login {
        Login::Password { user, file } => {
            auth.username = Some(user.clone());
            auth.password = Some(secret_in(file)?);
        }
        Login::Token { file } => auth.token = Some(secret_in(file)?),
    }
    Ok(auth)
}

/// The text of a file, without the white space at its end.
fn secret_in(file: &Path) -> Result<String, String> {
    let named = |problem: String| format!("{}: {problem}", file.display());
    let length = std::fs::metadata(file).map_err(|error| named(error.to_string()))?.len();
    if length > SECRET_BYTES_MAX {
        return Err(named(format!("it has more than {SECRET_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let secret = text.trim_end();
    if secret.is_empty() { Err(named("there is nothing in it".to_owned())) } else { Ok(secret.to_owned()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_anew_and_without_the_end_of_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let login = Login::Password { user: "celeris".to_owned(), file: file.clone() };
        assert!(begin(Some(&login), &ServerTls::default()).unwrap_err().to_string().contains("password"));
        for password in ["one", "two words"] {
            std::fs::write(&file, format!("{password}\n")).unwrap();
            let auth = read(&login).unwrap();
            assert_eq!((auth.username.as_deref(), auth.password.as_deref()), (Some("celeris"), Some(password)));
        }
        for wrong in ["", "\n", &"x".repeat(5000)] {
            std::fs::write(&file, wrong).unwrap();
            assert!(read(&Login::Token { file: file.clone() }).is_err());
        }
    }
}
