//! The data directory: whether it is ours, in a format that this version reads, and free.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use celeris_formats::manifest::{MANIFEST_FILE, MANIFEST_FORMAT};
use celeris_storage::DirectoryContents;
use serde_json::Value;

use super::finding::Findings;

/// At most so many version directories are looked into.
const VERSIONS_MAX: usize = 10_000;

/// A longer manifest is none.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Whether another process has the directory open.
pub fn check(dir: &Path, findings: &mut Findings) -> bool {
    let name = "data directory";
    match fs::metadata(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.ok(name, format!("{} does not exist yet, and will be created", dir.display()));
            return false;
        }
        Err(error) => {
            findings.problem(
                name,
                format!("{}: {error}", dir.display()),
                "let the user of the node enter the folders above it, or choose another directory by --data-dir",
            );
            return false;
        }
        Ok(metadata) if !metadata.is_dir() => {
            let remedy = "choose a folder by --data-dir";
            findings.problem(name, format!("{} is a file", dir.display()), remedy);
            return false;
        }
        Ok(_) => {}
    }
    let is_in_use = is_in_use(dir, findings);
    match DirectoryContents::of(dir) {
        Ok(contents) => {
            let contents = match contents {
                DirectoryContents::Nothing => "has no store yet".to_owned(),
                DirectoryContents::Store => "has the store of a node, in a format that this version reads".to_owned(),
                DirectoryContents::Copy { cluster, incarnation } => {
                    format!(
                        "has a copy of the cluster {cluster} (incarnation {incarnation}), in a format that this version reads"
                    )
                }
            };
            let user = if is_in_use { "; a node has it open" } else { "" };
            findings.ok(name, format!("{} {contents}{user}", dir.display()));
            check_versions(dir, findings);
        }
        Err(error) => findings.problem(name, error.to_string(), "docs/run/upgrade.md says how to take the data along"),
    }
    is_in_use
}

/// Asks for the lock and gives it back at once; does not create it.
fn is_in_use(dir: &Path, findings: &mut Findings) -> bool {
    let path = dir.join("LOCK");
    let locked = match File::options().write(true).open(&path) {
        Ok(file) => file.try_lock(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return false,
        Err(error) => Err(TryLockError::Error(error)),
    };
    match locked {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => {
            findings.problem(
                "data directory",
                format!("{}: {error}", path.display()),
                "run this as the user of the node, who must own the directory, on a file system with locks",
            );
            false
        }
    }
}

/// Checks the formats that the manifests of all versions name.
fn check_versions(dir: &Path, findings: &mut Findings) {
    let (mut count, mut unknown) = (0, Vec::new());
    for manifest in manifests(dir) {
        count += 1;
        let format = format_of(&manifest);
        if format != Some(u64::from(MANIFEST_FORMAT)) {
            let folder = manifest.parent().unwrap_or(&manifest).display().to_string();
            unknown.push((folder, format));
        }
    }
    let Some((folder, format)) = unknown.first() else {
        if count > 0 {
            findings.ok("versions", format!("{count} versions of models have manifests of format {MANIFEST_FORMAT}"));
        }
        return;
    };
    let format =
        format.map_or_else(|| "a manifest that cannot be read".to_owned(), |format| format!("format {format}"));
    findings.problem(
        "versions",
        format!(
            "{} of {count} versions cannot be served: {folder} has {format}, this version reads {MANIFEST_FORMAT}",
            unknown.len()
        ),
        "their models will be out of service: retrain them, or restore the directories from a backup",
    );
}

fn manifests(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let folders = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let versions = folders(dir.join("versions")).flat_map(folders);
    versions.map(|version| version.join(MANIFEST_FILE)).filter(|manifest| manifest.exists()).take(VERSIONS_MAX)
}

fn format_of(manifest: &Path) -> Option<u64> {
    if fs::metadata(manifest).ok()?.len() > MANIFEST_BYTES_MAX {
        return None;
    }
    serde_json::from_slice::<Value>(&fs::read(manifest).ok()?).ok()?["format"].as_u64()
}
