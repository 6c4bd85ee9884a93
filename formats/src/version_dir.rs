//! The directory of one model version: written once, immutable, complete once its manifest exists.
//!
//! | file | contents |
//! |---|---|
//! | `item_features.parquet` | [`item_features`] |
//! | `prior.parquet` | [`prior`] |
//! | `cold_map.parquet`, `cold_map.json` | optional: the map from attributes to features, [`cold_map`] |
//! | `user_map.parquet`, `user_map.json` | optional: the map from attributes of users to their prior means, [`user_map`] |
//! | `trainer_state.json`, `trainer_items.parquet` | optional: state of the trainer for the next training, [`trainer_items`] |
//! | `parts.json`, `part_attributes.parquet`, `object-SHA256` | optional: computed parts of the features, the attributes and the objects that they need |
//! | `part_moments.parquet` | with parts that depend on item and context: [`part_moments`] |
//! | `_SUCCESS` | the [`Manifest`], JSON, written last |
//!
//! No other files are allowed, and none contains data of a single user, so an erasure need not
//! search versions.
//!
//! Rationale: `docs/rfcs/001-version-directory.md`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use crate::checksum::sha256_of;
use crate::columns::ParquetOut;
use crate::error::FormatError;
use crate::manifest::{FileEntry, MANIFEST_FILE, MANIFEST_FORMAT, Manifest};
use crate::{cold_map, item_features, part_moments, prior, trainer_items, user_map};

/// File name of the rules of a cold map.
pub const ENCODER_FILE: &str = "cold_map.json";
/// File name of the rules of a map from attributes of users.
pub const USER_ENCODER_FILE: &str = "user_map.json";
/// File name of the trainer's settings for the next training.
pub const TRAINER_STATE_FILE: &str = "trainer_state.json";

/// File name of the declarations of computed parts.
pub const PARTS_FILE: &str = "parts.json";
/// File name of the attributes of the items that computed parts need.
pub const PART_ATTRIBUTES_FILE: &str = "part_attributes.parquet";
/// Beginning of the names of the files of objects, which the hexadecimal digits of the checksum follow.
const OBJECT_FILE: &str = "object-";

/// The largest dimension: a user's matrix then takes 1 MiB, or 2 MiB in `f64`.
pub const DIM_MAX: usize = 512;

/// The files that a manifest may list, apart from objects.
const VERSION_FILES: [&str; 11] = [
    item_features::FILE,
    prior::FILE,
    cold_map::FILE,
    ENCODER_FILE,
    user_map::FILE,
    USER_ENCODER_FILE,
    TRAINER_STATE_FILE,
    trainer_items::FILE,
    PARTS_FILE,
    PART_ATTRIBUTES_FILE,
    part_moments::FILE,
];

/// The name of the file of an object with this checksum, 64 lower-case hexadecimal digits.
#[must_use]
pub fn object_file(checksum: &str) -> String {
    format!("{OBJECT_FILE}{checksum}")
}

fn is_object_file(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(OBJECT_FILE).is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}

/// Error text for any other file.
pub const NO_VERSION_FILE: &str =
    "which is no file of a version; a version holds nothing of single users, so write it without";

/// Whether a version may have a file of this name.
#[must_use]
pub fn is_version_file(name: &str) -> bool {
    VERSION_FILES.contains(&name) || is_object_file(name)
}

/// Writes a version directory; without [`VersionDirWriter::finish`], the directory is not a
/// version.
pub struct VersionDirWriter {
    dir: PathBuf,
    files: BTreeMap<String, FileEntry>,
}

impl VersionDirWriter {
    /// Creates `dir`, which must not contain a version yet.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Manifest`].
    pub fn create(dir: &Path) -> Result<Self, FormatError> {
        fs::create_dir_all(dir).map_err(FormatError::io(dir))?;
        let path = dir.join(MANIFEST_FILE);
        if path.exists() {
            let problem = "already holds a version; versions are immutable, so choose another directory".to_owned();
            return Err(FormatError::Manifest { path, problem });
        }
        Ok(Self { dir: dir.to_owned(), files: BTreeMap::new() })
    }

    /// Writes a table in batches of one schema; without a batch, there is no file.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn table(&mut self, name: &str, batches: impl IntoIterator<Item = RecordBatch>) -> Result<(), FormatError> {
        let mut batches = batches.into_iter().peekable();
        let Some(schema) = batches.peek().map(RecordBatch::schema) else { return Ok(()) };
        let path = self.dir.join(name);
        let mut out = ParquetOut::create(&path, schema.clone())?;
        for batch in batches {
            out.write(&batch)?;
        }
        let rows = Some(out.finish()?);
        let column = |field: &arrow_schema::FieldRef| format!("{}: {}", field.name(), field.data_type());
        let schema = schema.fields().iter().map(column).collect();
        self.files.insert(name.to_owned(), FileEntry { rows, schema, sha256: sha256_of(&path)? });
        Ok(())
    }

    /// Writes a file that is no table.
    ///
    /// # Errors
    /// [`FormatError::Io`].
    pub fn text(&mut self, name: &str, bytes: &[u8]) -> Result<(), FormatError> {
        let path = self.dir.join(name);
        write_durably(&self.dir, name, bytes).map_err(FormatError::io(&path))?;
        let entry = FileEntry { rows: None, schema: Vec::new(), sha256: sha256_of(&path)? };
        self.files.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Writes the manifest, which lists the files written so far.
    ///
    /// # Errors
    /// [`FormatError::Io`], or [`FormatError::Manifest`] if it cannot be serialised.
    pub fn finish(self, manifest: Manifest) -> Result<Manifest, FormatError> {
        let path = self.dir.join(MANIFEST_FILE);
        let manifest = Manifest { files: self.files, ..manifest };
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|source| FormatError::Manifest { path: path.clone(), problem: source.to_string() })?;
        write_durably(&self.dir, MANIFEST_FILE, &text).map_err(FormatError::io(path))?;
        Ok(manifest)
    }
}

/// Writes to a temporary file, syncs, renames and syncs the directory, so that the file is either
/// complete or absent.
fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    File::open(dir)?.sync_all()
}

/// The path of one file of a version directory after its checksum has been verified; `None` if the
/// version has no such file.
///
/// # Errors
/// [`FormatError::Io`] or [`FormatError::Mismatch`].
pub fn checked_file(dir: &Path, manifest: &Manifest, name: &str) -> Result<Option<PathBuf>, FormatError> {
    let Some(entry) = manifest.files.get(name) else { return Ok(None) };
    let path = dir.join(name);
    let found = sha256_of(&path)?;
    if found == entry.sha256 {
        return Ok(Some(path));
    }
    Err(FormatError::Mismatch { path, what: "the SHA-256", expected: entry.sha256.clone(), found })
}

/// Checks the number of rows of a table that the manifest lists.
///
/// # Errors
/// [`FormatError::Mismatch`].
pub fn check_rows(dir: &Path, manifest: &Manifest, name: &str, found: usize) -> Result<(), FormatError> {
    let expected = manifest.files.get(name).and_then(|entry| entry.rows);
    if expected == Some(found as u64) {
        return Ok(());
    }
    Err(FormatError::Mismatch {
        path: dir.join(name),
        what: "the number of rows",
        expected: expected.map_or("none".to_owned(), |rows| rows.to_string()),
        found: found.to_string(),
    })
}

/// Reads the manifest of a version directory and checks that this program supports it.
///
/// # Errors
/// [`FormatError::Manifest`] or [`FormatError::Io`].
pub fn read_manifest(dir: &Path) -> Result<Manifest, FormatError> {
    let path = dir.join(MANIFEST_FILE);
    let text = match fs::read(&path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            let problem = "is missing; the directory is not a finished version".to_owned();
            return Err(FormatError::Manifest { path, problem });
        }
        other => other.map_err(FormatError::io(&path))?,
    };
    let error = |problem: String| FormatError::Manifest { path: path.clone(), problem };
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|source| error(source.to_string()))?;
    if manifest.format != MANIFEST_FORMAT {
        return Err(error(format!("has format {}, this program reads {MANIFEST_FORMAT}", manifest.format)));
    }
    if !(1..=DIM_MAX).contains(&manifest.dim) {
        return Err(error(format!("dim must be from 1 to {DIM_MAX}, got {}", manifest.dim)));
    }
    for name in [item_features::FILE, prior::FILE] {
        if !manifest.files.contains_key(name) {
            return Err(error(format!("does not list {name}")));
        }
    }
    if let Some(name) = manifest.files.keys().find(|name| !is_version_file(name)) {
        return Err(error(format!("lists {name:?}, {NO_VERSION_FILE}")));
    }
    Ok(manifest)
}
