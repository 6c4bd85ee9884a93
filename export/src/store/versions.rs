//! Export of versions: a table of all versions, and their directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use celeris_formats::{MANIFEST_FILE, read_manifest, versions};
use celeris_model::ModelName;

use super::ExportedVersion;
use crate::error::ExportError;

/// Writes `versions.parquet` and `versions/` into `out`.
///
/// # Errors
/// `Io` or `Format`.
pub(super) fn export(models: &BTreeMap<ModelName, Vec<ExportedVersion>>, out: &Path) -> Result<(), ExportError> {
    for version in models.values().flatten() {
        let folder = out.join("versions").join(version.row.model.as_str());
        copy_version(&version.dir, &folder.join(version.row.version.to_string()))?;
    }
    let rows = models.values().flatten().map(|version| &version.row);
    Ok(versions::write(&out.join(versions::FILE), rows)?)
}

/// Copies the files that the manifest of a version directory lists, then the manifest. Other files
/// are not part of the version.
fn copy_version(from: &Path, to: &Path) -> Result<(), ExportError> {
    let manifest = read_manifest(from)?;
    fs::create_dir_all(to).map_err(ExportError::io(to))?;
    for name in manifest.files.keys().map(String::as_str).chain([MANIFEST_FILE]) {
        let file = from.join(name);
        fs::copy(&file, to.join(name)).map_err(ExportError::io(file))?;
    }
    Ok(())
}
