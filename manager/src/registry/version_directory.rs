//! The directories of versions: their paths, reading, and the first one of a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use celeris_features::{LoadedVersion, Theta, VersionContents, read_version_sharing, write_version};
use celeris_formats::Manifest;
use celeris_model::{HalfLife, ModelId, ModelName, Prior, Timestamp, VersionId};
use celeris_predictor::ServingVersion;
use celeris_storage::Storage;

use super::ModelRecord;
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::pipelines::SharedPipelines;
use crate::settings::ModelConfig;

/// The algorithm of the first version of a model.
pub(crate) const UNTRAINED: &str = "untrained";

/// Folder of a model's versions: the name is for readability, the id makes it unique.
pub(crate) fn versions_dir(storage: &Storage, model: (&ModelName, ModelId)) -> PathBuf {
    versions_below(storage.dir(), model)
}

/// The same in another folder than the data directory.
pub(super) fn versions_below(root: &Path, (model, id): (&ModelName, ModelId)) -> PathBuf {
    root.join("versions").join(format!("{model}.{id}"))
}

/// Reads the directory of a model's version.
pub(super) fn load(
    dir: &Path,
    record: &ModelRecord,
    version: (VersionId, Option<HalfLife>),
    pipelines: &SharedPipelines,
) -> Result<ServingVersion, ManagerError> {
    let loaded = read_version_sharing(dir, pipelines.compiled())?;
    check_fits(&record.config, &loaded)?;
    serving(record, version, loaded)
}

/// A loaded version with this half-life as a serving version of this model.
pub(crate) fn serving(
    record: &ModelRecord,
    (version, half_life): (VersionId, Option<HalfLife>),
    loaded: LoadedVersion,
) -> Result<ServingVersion, ManagerError> {
    let LoadedVersion { theta, prior, cold_map, user_map, parts, manifest } = loaded;
    let model = (record.config.name.clone(), record.id);
    let learning = record.config.learning(prior, half_life, manifest.label_range);
    let serving = ServingVersion::new(model, version, theta, learning)?.with_cold_map(cold_map).with_user_map(user_map);
    // The dimension belongs to the version; that of the model is the next version's.
    Ok(serving.with_parts(parts, record.config.features.table_dim(manifest.dim)))
}

pub(super) fn check_fits(config: &ModelConfig, loaded: &LoadedVersion) -> Result<(), ManagerError> {
    if loaded.manifest.model != config.name {
        let (expected, found) = (config.name.to_string(), loaded.manifest.model.to_string());
        return Err(ManagerError::WrongVersion { what: "model", expected, found });
    }
    Ok(())
}

/// Writes an untrained version.
pub(super) fn write_untrained(dir: &Path, config: &ModelConfig, created: Timestamp) -> Result<Manifest, ManagerError> {
    // A directory of this name is left from an interrupted creation: the registry does not name it.
    remove_dir(dir)?;
    let contents = VersionContents {
        model: config.name.clone(),
        theta: &Theta::untrained(config.dim),
        choices: &[],
        // With this prior, one observation of the constant feature moves a new user's bias half of
        // the way to the label.
        prior: &Prior::isotropic(config.dim, 1.0, 1.0)?,
        label_range: None,
        algorithm: UNTRAINED.to_owned(),
        parent: None,
        watermark: serde_json::Value::Null,
        created,
        metrics: BTreeMap::new(),
    };
    Ok(write_version(dir, &contents)?)
}
