//! Export of the store of a stopped node as Parquet: observations, decisions and versions.
//!
//! ```text
//! OUT/
//!   observations/stream=NAME/   in the format of sealed segments, with their _watermark.json
//!   decisions/model=NAME/       decisions-000001.parquet, …
//!   versions.parquet            one row per version
//!   versions/MODEL/N/           the version directories
//!   _SUCCESS                    JSON, written last: the number of each
//! ```
//!
//! The columns are in `docs/reference/export.md`.

mod decisions;
mod versions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use celeris_formats::versions::VersionRow;
use celeris_model::{ModelId, ModelName, StreamName, Timestamp};
use celeris_storage::Storage;
use serde::Serialize;

use crate::error::ExportError;
use crate::sealing::seal_into;

/// Version of the export layout.
const FORMAT: u32 = 1;

/// Name of the file that is written last.
pub(crate) const DONE_FILE: &str = "_SUCCESS";

/// Summary of an export, written to `_SUCCESS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exported {
    pub format: u32,
    pub exported: Timestamp,
    /// Number of observations by stream.
    pub observations: BTreeMap<StreamName, u64>,
    /// Number of decisions by model or selection.
    pub decisions: BTreeMap<ModelName, u64>,
    /// Number of versions by model.
    pub versions: BTreeMap<ModelName, u64>,
    /// Errors of registry documents that could not be read; the data they describe is not exported.
    pub unreadable: Vec<String>,
}

/// Progress callback: the current step and its progress from 0 to 1.
pub type Tell<'a> = &'a dyn Fn(&str, f32);

/// What the registry of a store names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contents {
    /// Models and selections, which record decisions.
    pub deciding: Vec<(ModelName, ModelId)>,
    /// The stream of each of them.
    pub streams: BTreeMap<ModelName, StreamName>,
    /// The label of the default reward of each model that has one.
    pub default_rewards: BTreeMap<ModelName, f32>,
    /// Every model, with its versions.
    pub versions: BTreeMap<ModelName, Vec<ExportedVersion>>,
    /// Errors of documents that could not be read.
    pub unreadable: Vec<String>,
}

/// A version to export.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedVersion {
    pub row: VersionRow,
    /// Its version directory.
    pub dir: PathBuf,
}

/// Creates the folder of an export.
///
/// # Errors
/// `FolderNotEmpty`, or `Io`.
pub(crate) fn prepare(out: &Path) -> Result<(), ExportError> {
    fs::create_dir_all(out).map_err(ExportError::io(out))?;
    if fs::read_dir(out).map_err(ExportError::io(out))?.next().is_some() {
        return Err(ExportError::FolderNotEmpty { path: out.to_owned() });
    }
    Ok(())
}

/// Exports everything into the folder `out`, which is created if missing and must be empty.
///
/// # Errors
/// `FolderNotEmpty`; `Io` or `Format` if it cannot be written; `Storage`.
pub fn export_store(storage: &Storage, contents: &Contents, out: &Path, tell: Tell) -> Result<Exported, ExportError> {
    prepare(out)?;
    let mut exported = Exported {
        format: FORMAT,
        exported: SystemTime::now().into(),
        observations: BTreeMap::new(),
        decisions: BTreeMap::new(),
        versions: BTreeMap::new(),
        unreadable: contents.unreadable.clone(),
    };
    let streams = storage.log().streams();
    let never = AtomicBool::new(false);
    for (done, stream) in streams.iter().enumerate() {
        tell("observations", done as f32 / streams.len() as f32);
        let rows = seal_into(storage, stream, &out.join("observations"), &never)?;
        exported.observations.insert(stream.clone(), rows);
    }
    let deciding = &contents.deciding;
    for (done, (name, id)) in deciding.iter().enumerate() {
        tell("decisions", done as f32 / deciding.len() as f32);
        exported.decisions.insert(name.clone(), decisions::export(storage, (name, *id), &out.join("decisions"))?);
    }
    tell("versions", 0.0);
    versions::export(&contents.versions, out)?;
    exported.versions = contents.versions.iter().map(|(model, list)| (model.clone(), list.len() as u64)).collect();
    tell("versions", 1.0);
    let done = out.join(DONE_FILE);
    let text = serde_json::to_vec_pretty(&exported).expect("names and numbers are valid JSON");
    fs::write(&done, text).and_then(|()| fs::File::open(out)?.sync_all()).map_err(ExportError::io(&done))?;
    Ok(exported)
}
