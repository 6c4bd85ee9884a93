//! One input of an import.

use std::path::PathBuf;

/// A file or standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub origin: Origin,
    /// Its name in the ids of observations.
    pub name: String,
    /// The name of the file, where the files of a folder share a name; their equal rows are different.
    pub part: Option<String>,
    pub layout: Layout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    File(PathBuf),
    Stdin,
}

/// Layouts that are known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// As the file says.
    Open,
    /// Ratings of MovieLens, with times in seconds; titles may lie beside them.
    MovieLens {
        /// Whether the first line names the columns.
        header: bool,
    },
}

impl Input {
    /// The input for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.origin {
            Origin::File(path) => path.display().to_string(),
            Origin::Stdin => "standard input".to_owned(),
        }
    }

    /// The name of the file without extensions.
    #[must_use]
    pub fn stem(&self) -> Option<String> {
        let Origin::File(path) = &self.origin else { return None };
        let name = path.file_name()?.to_str()?;
        Some(name.split('.').next().unwrap_or(name).to_owned())
    }

    /// The size in bytes, if it is known in advance.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match &self.origin {
            Origin::File(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len()),
            Origin::Stdin => None,
        }
    }

    /// Whether it can be read only once.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        // A pipe such as `<(zstdcat …)` is a path too.
        self.bytes().is_none()
    }
}
