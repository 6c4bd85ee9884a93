//! The data of the trainer comparison: split ratings, and the job files that both sides read.

use std::path::Path;

use celeris_datasets::Rating;
use celeris_formats::{ObservationRow, ObservationsWriter};
use celeris_model::{Loss, ModelName, Partition, Record, RecordKind, Sequence, UserEpoch, VersionId};
use celeris_retrain::{Algorithm, InputFile, Job};

/// A split data set.
pub struct Data {
    /// The name in case names.
    pub name: &'static str,
    /// In random order, so that every prefix is a random sample.
    pub train: Vec<Rating>,
    pub test: Vec<Rating>,
}

/// Writes observations as the node exports them; returns a job on the first `count` of them, with a
/// watermark there.
pub fn write_job(folder: &Path, data: &Data, count: usize, dim: usize) -> anyhow::Result<Job> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join("observations.parquet");
    let mut writer = ObservationsWriter::create(&path)?;
    let mut sequences = vec![0_u64; Partition::all().count()];
    for rating in &data.train[..count] {
        let sequence = &mut sequences[usize::from(Partition::of(&rating.user).index())];
        *sequence += 1;
        let record = Record {
            kind: RecordKind::Observe,
            user: rating.user.clone(),
            user_epoch: UserEpoch(*sequence),
            item: Some(rating.item.clone()),
            label: rating.label,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: rating.timestamp,
            observation_id: None,
            decision: None,
            context: None,
            predictions: Vec::new(),
            targets: Vec::new(),
        };
        let observation_id = celeris_storage::observation_id(Sequence(*sequence), &record);
        let row = ObservationRow { sequence: Sequence(*sequence), observation_id: &observation_id, record: &record };
        writer.push(row)?;
    }
    writer.finish()?;
    Ok(Job {
        model: ModelName::new("bench")?,
        version: VersionId(2),
        dim,
        seed: 1,
        threads: Some(super::THREADS),
        algorithm: Algorithm::default(),
        loss: Loss::Squared,
        observations: InputFile::sealed(&path)?,
        pinned_items: None,
        item_attributes: None,
        parts: Vec::new(),
        objects: None,
        parent: Some(VersionId(1)),
        warm_start: None,
        watermark: serde_json::to_value(sequences)?,
        limits: None,
        output: folder.join("version"),
    })
}
