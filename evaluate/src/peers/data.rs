//! The data of the trainer comparison: split ratings, and the job files that both sides read.

use std::path::Path;

use celeris_datasets::Rating;
use celeris_model::{Loss, ModelName, VersionId};
use celeris_retrain::{Algorithm, InputFile, Job};

use crate::exported::{Observed, write_observations};

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
    let observed = data.train[..count].iter().map(|rating| Observed {
        user: &rating.user,
        item: &rating.item,
        label: rating.label,
        timestamp: rating.timestamp,
        context: None,
    });
    let sequences = write_observations(&path, observed)?;
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
        user_attributes: None,
        parts: Vec::new(),
        objects: None,
        parent: Some(VersionId(1)),
        warm_start: None,
        watermark: serde_json::to_value(sequences)?,
        limits: None,
        output: folder.join("version"),
    })
}
