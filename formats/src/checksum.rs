//! Checksums of files.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::FormatError;

/// SHA-256 of a file, in lower-case hexadecimal.
///
/// # Errors
/// [`FormatError::Io`].
pub fn sha256_of(path: &Path) -> Result<String, FormatError> {
    struct Sink(Sha256);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(Sha256::new());
    File::open(path).and_then(|mut file| io::copy(&mut file, &mut sink)).map_err(FormatError::io(path))?;
    Ok(sink.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
