//! What the registry names, for the export of a store.

use celeris_export::{Contents, ExportedVersion};
use celeris_formats::versions::VersionRow;
use celeris_storage::{RegistryKey, Storage};
use serde::de::DeserializeOwned;

use crate::error::ManagerError;
use crate::registry::{
    ModelRecord, SelectionRecord, VersionRecord, models_key, selections_key, versions_dir, versions_key,
};

/// Reads all models, versions and selections of a store. Documents that cannot be read are left out
/// and listed.
///
/// # Errors
/// `Storage`.
pub fn exportable(storage: &Storage) -> Result<Contents, ManagerError> {
    let mut contents = Contents::default();
    for record in readable::<ModelRecord>(storage, &models_key()?, &mut contents.unreadable)? {
        let (model, id) = record.identity();
        let versions = readable::<VersionRecord>(storage, &versions_key(model)?, &mut contents.unreadable)?;
        let dir = versions_dir(storage, (model, id));
        let exported = versions
            .into_iter()
            .map(|version| ExportedVersion { dir: dir.join(version.version.to_string()), row: row(&record, version) });
        contents.versions.insert(model.clone(), exported.collect());
        contents.deciding.push((model.clone(), id));
        contents.streams.insert(model.clone(), record.config.stream.clone());
        let default_reward = record.config.default_reward.map(|reward| (model.clone(), reward.label));
        contents.default_rewards.extend(default_reward);
    }
    let selections = readable::<SelectionRecord>(storage, &selections_key()?, &mut contents.unreadable)?;
    for record in selections {
        contents.streams.insert(record.name.clone(), record.stream);
        contents.deciding.push((record.name, record.id));
    }
    Ok(contents)
}

fn row(model: &ModelRecord, version: VersionRecord) -> VersionRow {
    VersionRow {
        model: model.config.name.clone(),
        version: version.version,
        is_active: version.version == model.active,
        parent: version.parent,
        algorithm: version.algorithm,
        created: version.created,
        dim: version.dim,
        items: version.items,
        label_range: version.label_range,
        records: version.watermark.map(|watermark| watermark.records()),
        metrics: version.metrics,
    }
}

/// Returns the readable documents under a prefix, and appends the errors of the others to
/// `unreadable`.
fn readable<T: DeserializeOwned>(
    storage: &Storage,
    prefix: &RegistryKey,
    unreadable: &mut Vec<String>,
) -> Result<Vec<T>, ManagerError> {
    let mut read = Vec::new();
    for (_, document) in storage.registry().list::<T>(prefix)? {
        match document {
            Ok(document) => read.push(document),
            Err(error) => {
                tracing::error!(%error, "unreadable document; the data it describes is not exported");
                unreadable.push(error.to_string());
            }
        }
    }
    Ok(read)
}
