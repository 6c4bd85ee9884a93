//! Whether the store accepts writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::StorageError;

/// Whether the store is open, and the first failure of a write or damage found, which stops all
/// writes until it is opened again.
#[derive(Debug, Default)]
pub(crate) struct Health {
    poisoned: OnceLock<Arc<str>>,
    closed: AtomicBool,
}

impl Health {
    /// # Errors
    /// `Poisoned`, with the first failure.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        match self.poisoned.get() {
            Some(cause) => Err(StorageError::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// # Errors
    /// `Poisoned`, with the first failure, or `Closed`.
    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        self.check()?;
        if self.closed.load(Ordering::Relaxed) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Rejects writes from now on, except those of closing.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Stops all writes; the first cause is kept.
    pub(crate) fn poison(&self, cause: &str) {
        self.poisoned.get_or_init(|| {
            tracing::error!(cause, "no more writes are accepted until the store is opened again");
            Arc::from(cause)
        });
    }
}
