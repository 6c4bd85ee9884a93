//! What the trainers are compared on: ratings split in two, and the job files that both sides read.

use std::path::{Path, PathBuf};

use celeris_datasets::synthetic::SyntheticSettings;
use celeris_datasets::{Dataset, Rating};
use celeris_model::{Loss, ModelName, Partition, Record, RecordKind, Sequence, UserEpoch, VersionId};
use celeris_retrain::{Algorithm, Job, ObservationRow, ObservationsWriter};
use rand::seq::SliceRandom;

use crate::bench::{Settings, scene};
use crate::cli::Failure;

/// One rating in so many is kept to be predicted.
const TEST_ONE_IN: usize = 10;

/// A data set, split.
pub struct Data {
    /// Its name in cases.
    pub name: &'static str,
    /// In random order, so that its beginning is a random part of it.
    pub train: Vec<Rating>,
    pub test: Vec<Rating>,
}

impl Data {
    fn split(name: &'static str, mut ratings: Vec<Rating>) -> Self {
        ratings.shuffle(&mut scene::rng(40));
        let test = ratings.split_off(ratings.len() - ratings.len() / TEST_ONE_IN);
        Self { name, train: ratings, test }
    }

    /// The data sets of this run: MovieLens where it is found, and five million invented ratings.
    pub fn all(settings: &Settings) -> Result<Vec<Self>, Failure> {
        let mut all = Vec::new();
        match movielens() {
            Some(folder) => all.push(Self::split("ml-latest-small", Dataset::load(&folder)?.ratings)),
            None => eprintln!(
                "  no ml-latest-small: its cases are left out; `celeris datasets fetch ml-latest-small` puts it here, or \
                 CELERIS_DATA names the folder that holds it"
            ),
        }
        let settings = SyntheticSettings {
            users: settings.pick(50_000, 300),
            items: settings.pick(10_000, 200),
            ratings: settings.pick(5_000_000, 12_000),
            seed: scene::SEED,
            ..SyntheticSettings::default()
        };
        all.push(Self::split("synthetic-5m", settings.generate()?.dataset.ratings));
        Ok(all)
    }
}

/// Where `ml-latest-small` is, if it is anywhere that is looked at.
fn movielens() -> Option<PathBuf> {
    let named = std::env::var_os("CELERIS_DATA").map(PathBuf::from);
    let places = named.into_iter().chain(["../shared/data", "."].map(PathBuf::from));
    places.map(|place| place.join("ml-latest-small")).find(|folder| folder.join("ratings.csv").exists())
}

/// Writes observations as the node exports them, and returns a job on the first `count` of them, with a watermark there.
pub fn write_job(folder: &Path, data: &Data, count: usize, dim: usize) -> Result<Job, Failure> {
    std::fs::create_dir_all(folder).map_err(Failure::other)?;
    let mut writer = ObservationsWriter::create(&folder.join("observations.parquet")).map_err(Failure::other)?;
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
            predictions: Vec::new(),
            targets: Vec::new(),
        };
        let observation_id = celeris_storage::observation_id(Sequence(*sequence), &record);
        let row = ObservationRow { sequence: Sequence(*sequence), observation_id: &observation_id, record: &record };
        writer.push(row).map_err(Failure::other)?;
    }
    Ok(Job {
        model: ModelName::new("bench").map_err(Failure::other)?,
        version: VersionId(2),
        dim,
        seed: 1,
        threads: Some(super::THREADS),
        algorithm: Algorithm::default(),
        loss: Loss::Squared,
        observations: writer.finish().map_err(Failure::other)?,
        pinned_items: None,
        item_attributes: None,
        parent: Some(VersionId(1)),
        warm_start: None,
        watermark: serde_json::to_value(sequences).map_err(Failure::other)?,
        limits: None,
        output: folder.join("version"),
    })
}
