//! Error type of this crate.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Error of starting or supervising a program. How a program ended is an [`crate::Ending`].
#[derive(Debug, Error)]
pub enum SandboxError {
    /// A file cannot be read or written, or the program at this path cannot be started or waited
    /// for.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Plan { path: PathBuf, source: serde_json::Error },
    #[error("the plan names no program")]
    NoProgram,
    #[error("cannot run {program}: {source}")]
    Execute { program: String, source: io::Error },
    /// The parent of a program that is being started has exited.
    #[error("the supervisor is gone")]
    SupervisorGone,
    #[error("the program ended without a wait status")]
    NoWaitStatus,
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
}

impl SandboxError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { action, source: source.into() }
    }
}
