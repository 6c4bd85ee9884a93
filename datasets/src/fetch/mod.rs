//! Downloads of MovieLens data sets, verified against the checksums that GroupLens publishes beside them.
//!
//! A data set appears at its destination whole or not at all: it is downloaded, verified and unpacked in a temporary
//! folder beside it, then renamed.

mod archive;
mod download;
mod license;

use std::fs;
use std::path::{Path, PathBuf};

use crate::DatasetError;
use crate::movielens::locate_ratings;

/// The data sets that can be fetched: those that GroupLens publishes as `NAME.zip` with a `NAME.zip.md5`.
pub const NAMES: [&str; 8] =
    ["ml-latest-small", "ml-latest", "ml-100k", "ml-1m", "ml-10m", "ml-20m", "ml-25m", "ml-32m"];

/// Where from, and how much at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// The folder of the archives, with or without a slash at its end.
    pub base_url: String,
    /// The largest archive accepted.
    pub download_bytes_max: u64,
    /// The most that an archive may unpack to.
    pub unpacked_bytes_max: u64,
}

impl Default for FetchOptions {
    /// The publisher's server, and twice the room that the largest published archive needs.
    fn default() -> Self {
        Self {
            base_url: "https://files.grouplens.org/datasets/movielens/".into(),
            download_bytes_max: 1 << 30,
            unpacked_bytes_max: 8 << 30,
        }
    }
}

/// A data set that is now on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its folder: `destination/name`.
    pub folder: PathBuf,
    /// Its documentation, which holds the terms of use.
    pub readme: Option<PathBuf>,
    /// The terms of use, where the documentation is plain text with a section of them. To be shown to the user.
    pub license: Option<String>,
    /// How it came there.
    pub origin: Origin,
}

/// How a data set came to be on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was there before; nothing was downloaded and nothing verified.
    AlreadyPresent,
    /// It was downloaded and verified.
    Downloaded {
        /// Size of the archive.
        bytes: u64,
        /// The archive's MD5 checksum, equal to the published one, in hexadecimal.
        md5: String,
        /// The archive's SHA-256 checksum, for those who want to pin it.
        sha256: String,
    },
}

/// Downloads the data set `name` (one of [`NAMES`]) to the folder `destination/name`, unless it is there already.
///
/// `progress` is told how many bytes of the archive have arrived, and of how many, where the server says.
///
/// # Errors
/// A [`DatasetError`] that says what failed. Nothing is kept then.
pub fn fetch(
    name: &str,
    destination: impl AsRef<Path>,
    options: &FetchOptions,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<Fetched, DatasetError> {
    // The name becomes part of a path and of an address, so only known ones pass.
    if !NAMES.contains(&name) {
        return Err(DatasetError::UnknownName { name: name.to_owned(), known: NAMES.join(", ") });
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
    let work =
        tempfile::Builder::new().prefix(".fetch-").tempdir_in(destination).map_err(DatasetError::io(destination))?;

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
    describe(folder, Origin::Downloaded { bytes: arrived.bytes, md5: arrived.md5, sha256: arrived.sha256 })
}

fn describe(folder: PathBuf, origin: Origin) -> Result<Fetched, DatasetError> {
    let readme = license::find_readme(&folder);
    let license = readme.as_deref().map(license::read_section).transpose()?.flatten();
    Ok(Fetched { folder, readme, license, origin })
}
