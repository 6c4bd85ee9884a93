//! Downloads MovieLens data sets, verified by the checksums that GroupLens publishes.
//!
//! A data set appears at its destination completely or not at all: it is downloaded, verified and
//! unpacked in a temporary folder next to it, then renamed.

mod archive;
mod download;
mod license;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::DatasetError;
use crate::movielens::locate_ratings;
use crate::temporary_folder::TemporaryFolder;

/// The data sets that can be downloaded: those that GroupLens publishes as `NAME.zip` with a
/// `NAME.zip.md5`.
pub const PUBLISHED: [Published; 8] = [
    Published { name: "ml-latest-small", ratings: 100_836, archive_mb: 1, terms: Terms::ShareAlike },
    Published { name: "ml-latest", ratings: 33_832_162, archive_mb: 335, terms: Terms::ShareAlike },
    Published { name: "ml-100k", ratings: 100_000, archive_mb: 5, terms: Terms::NotRedistributed },
    Published { name: "ml-1m", ratings: 1_000_209, archive_mb: 6, terms: Terms::NotRedistributed },
    Published { name: "ml-10m", ratings: 10_000_054, archive_mb: 63, terms: Terms::NotRedistributed },
    Published { name: "ml-20m", ratings: 20_000_263, archive_mb: 190, terms: Terms::ShareAlike },
    Published { name: "ml-25m", ratings: 25_000_095, archive_mb: 250, terms: Terms::ShareAlike },
    Published { name: "ml-32m", ratings: 32_000_204, archive_mb: 239, terms: Terms::ShareAlike },
];

/// A published data set. `ml-latest` and `ml-latest-small` change from time to time; their figures
/// are those of July 2023 and September 2018.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    pub name: &'static str,
    /// Number of ratings.
    pub ratings: u64,
    /// Size of the archive in megabytes, as its page says.
    pub archive_mb: u32,
    pub terms: Terms,
}

/// The terms of use, in short; [`Fetched::license`] has them in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// For research; may be passed on under the same terms.
    ShareAlike,
    /// For research; may not be passed on without permission.
    NotRedistributed,
}

impl Terms {
    /// A description for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ShareAlike => "research only, may be passed on under the same terms",
            Self::NotRedistributed => "research only, may not be passed on",
        }
    }
}

/// Source and limits of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// URL of the folder with the archives, with or without a trailing slash.
    pub base_url: String,
    /// Maximum size of an archive, in bytes.
    pub download_bytes_max: u64,
    /// Maximum unpacked size of an archive, in bytes.
    pub unpacked_bytes_max: u64,
}

impl Default for FetchOptions {
    /// The publisher's server, and twice the size of the largest published archive.
    fn default() -> Self {
        Self {
            base_url: "https://files.grouplens.org/datasets/movielens/".into(),
            download_bytes_max: 1 << 30,
            unpacked_bytes_max: 8 << 30,
        }
    }
}

/// A data set on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its folder: `destination/name`.
    pub folder: PathBuf,
    /// Its documentation, which contains the terms of use.
    pub readme: Option<PathBuf>,
    /// The terms of use, if the documentation is plain text with such a section. To be shown to the
    /// user.
    pub license: Option<String>,
    pub origin: Origin,
}

/// Whether a data set was downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It existed before; nothing was downloaded or verified.
    AlreadyPresent,
    Downloaded {
        /// Size of the archive, in bytes.
        bytes: u64,
        /// MD5 checksum of the archive, equal to the published one, in hexadecimal.
        md5: String,
        /// SHA-256 checksum of the archive, in hexadecimal, for pinning.
        sha256: String,
    },
}

/// Downloads the data set `name` (one of [`PUBLISHED`]) to the folder `destination/name`, unless it
/// exists already.
///
/// `progress` receives the number of bytes downloaded, and the total if the server sends it.
///
/// # Errors
/// A [`DatasetError`]; nothing is kept then.
pub fn fetch(
    name: &str,
    destination: impl AsRef<Path>,
    options: &FetchOptions,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<Fetched, DatasetError> {
    // The name becomes part of a path and of a URL, so only known names are accepted.
    let names = PUBLISHED.map(|published| published.name);
    if !names.contains(&name) {
        return Err(DatasetError::UnknownName { name: name.to_owned(), known: names.join(", ") });
    }
    let destination = destination.as_ref();
    let folder = destination.join(name);
    if folder.exists() {
        return match locate_ratings(&folder) {
            Ok(_) => describe(folder, Origin::AlreadyPresent),
            Err(_) => Err(DatasetError::Occupied { folder }),
        };
    }
    fs::create_dir_all(destination).map_err(DatasetError::io(destination))?;
    let work = TemporaryFolder::new_in(destination, ".fetch").map_err(DatasetError::io(destination))?;

    let url = format!("{}/{name}.zip", options.base_url.trim_end_matches('/'));
    let expected = download::published_md5(&format!("{url}.md5"))?;
    let file = work.path().join("archive.zip");
    let arrived = download::to_file(&url, &file, options.download_bytes_max, progress)?;
    if arrived.md5 != expected {
        return Err(DatasetError::Checksum { url, expected, received: arrived.md5 });
    }
    let unpacked = archive::unpack(&url, &file, &work.path().join("unpacked"), options.unpacked_bytes_max)?;
    locate_ratings(&unpacked)
        .map_err(|_| DatasetError::Archive { url, problem: "the archive holds no ratings file".into() })?;
    fs::rename(&unpacked, &folder).map_err(DatasetError::io(&folder))?;
    File::open(destination).and_then(|parent| parent.sync_all()).map_err(DatasetError::io(destination))?;
    describe(folder, Origin::Downloaded { bytes: arrived.bytes, md5: arrived.md5, sha256: arrived.sha256 })
}

fn describe(folder: PathBuf, origin: Origin) -> Result<Fetched, DatasetError> {
    let readme = license::find_readme(&folder);
    let license = readme.as_deref().map(license::read_section).transpose()?.flatten();
    Ok(Fetched { folder, readme, license, origin })
}
