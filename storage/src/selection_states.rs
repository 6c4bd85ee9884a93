//! Stored states of selections, so that a start need not read the log from its beginning.
//!
//! Each is a file, `selections/ID` in the data directory, with contents chosen by the caller. It is
//! a cache of the log: a missing or damaged one is ignored. It is not in the database because it is
//! replaced as a whole, and because damage in the database fails the opening.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use celeris_model::ModelId;

use crate::directory::replace_file;
use crate::disk_space::SpaceGuard;
use crate::error::StorageError;
use crate::layout::envelope::{opened, sealed};

/// The stored states of selections.
pub struct SelectionStates {
    folder: PathBuf,
    space: Arc<SpaceGuard>,
}

impl SelectionStates {
    pub(crate) fn new(folder: PathBuf, space: Arc<SpaceGuard>) -> Self {
        Self { folder, space }
    }

    fn file(&self, selection: ModelId) -> PathBuf {
        self.folder.join(selection.to_string())
    }

    /// Stores the state of a selection, atomically and durably, in place of the previous one.
    ///
    /// The caller guarantees that it reflects only durable records, and that no other thread stores
    /// a state of this selection.
    ///
    /// # Errors
    /// `StorageFull` or `Io`; the previous state remains then.
    pub fn put(&self, selection: ModelId, state: &[u8]) -> Result<(), StorageError> {
        self.space.check()?;
        fs::create_dir_all(&self.folder).map_err(StorageError::io("create", &self.folder))?;
        replace_file(&self.file(selection), &sealed(&key(selection), state))
    }

    /// The stored state of a selection; `None` if there is none, or it cannot be read, which is
    /// logged.
    #[must_use]
    pub fn get(&self, selection: ModelId) -> Option<Vec<u8>> {
        let file = self.file(selection);
        let read = match fs::read(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => Err(error.to_string()),
            Ok(content) => opened(&key(selection), &content).map(<[u8]>::to_vec),
        };
        read.inspect_err(|reason| {
            tracing::warn!(file = %file.display(), reason, "the stored state of a selection is unreadable and ignored");
        })
        .ok()
    }

    /// Deletes the stored state of a selection that cannot be used, if there is one. An error is logged.
    pub fn discard(&self, selection: ModelId) {
        if let Err(error) = self.delete(selection) {
            tracing::warn!(%selection, %error, "the stored state of a selection cannot be used, nor deleted");
        }
    }

    /// Deletes the stored state of a selection, if there is one.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn delete(&self, selection: ModelId) -> Result<(), StorageError> {
        let file = self.file(selection);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StorageError::io("remove", file)(error)),
            _ => Ok(()),
        }
    }
}

/// What the checksum covers besides the contents, so that the file of another selection is
/// detected.
fn key(selection: ModelId) -> [u8; 8] {
    selection.0.to_be_bytes()
}
