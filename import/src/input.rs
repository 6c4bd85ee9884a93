//! One input of an import.

use std::path::{Path, PathBuf};

use celeris_location::Location;

use crate::layout::Layout;

/// A file, an object of an object store, or standard input.
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
    Object(Object),
    Stdin,
}

/// An object behind a URL.
#[derive(Debug, Clone)]
pub struct Object {
    pub location: Location,
    /// Its length when it was found.
    pub bytes: u64,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.location.to_string() == other.location.to_string() && self.bytes == other.bytes
    }
}

impl Eq for Object {}

impl Input {
    /// The input for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.origin {
            Origin::File(path) => path.display().to_string(),
            Origin::Object(object) => object.location.to_string(),
            Origin::Stdin => "standard input".to_owned(),
        }
    }

    /// The name of the file without extensions.
    #[must_use]
    pub fn stem(&self) -> Option<String> {
        if self.origin == Origin::Stdin {
            return None;
        }
        let shown = self.shown();
        let name = Path::new(&shown).file_name()?.to_str()?;
        Some(name.split('.').next().unwrap_or(name).to_owned())
    }

    /// The size in bytes, if it is known in advance.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match &self.origin {
            Origin::File(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len()),
            Origin::Object(object) => Some(object.bytes),
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
