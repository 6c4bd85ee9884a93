//! The train job on the first half of the stream, with parts and without.

use std::path::PathBuf;

use anyhow::Context as _;
use celeris_datasets::TemporaryFolder;
use celeris_datasets::synthetic::clicks::{ClickRow, Clicks, GENRES};
use celeris_datasets::synthetic::{DEVICES, HOUR_EDGES};
use celeris_features::{LoadedVersion, read_version};
use celeris_formats::attributes::AttributesWriter;
use celeris_model::{Context, Loss, ModelName, VersionId};
use celeris_retrain::{Algorithm, InputFile, Job, JobPart, run_job};
use serde_json::{Value, json};

use crate::EvaluateSettings;
use crate::exported::{Observed, write_observations};
use crate::progress::Part;

/// Bits of the columns of crosses: two of the fifty combinations share one with a probability of a few per cent.
const HASH_BITS: u32 = 14;

/// The parts of the model: main effects of the context and of the genre, and a linear model of their combinations.
pub(super) fn parts() -> anyhow::Result<Vec<JobPart>> {
    let device = json!({"op": "one_hot", "input": "context.device", "categories": DEVICES});
    let hours = json!({"op": "bucketize", "input": "context.hour", "edges": HOUR_EDGES});
    let genre = json!({"op": "one_hot", "input": "item.genre", "categories": GENRES});
    let cross = |inputs: [&str; 2]| json!({"op": "cross", "inputs": inputs, "hash_bits": HASH_BITS});
    let crosses = json!({
        "by_device": cross(["genre", "device"]),
        "by_hours": cross(["genre", "hours"]),
        "all": {"op": "concat", "inputs": ["by_device", "by_hours"]},
        "fit": {"op": "linear", "input": "all", "fit": "label"},
        "genre": genre, "device": device, "hours": hours,
    });
    let whens = json!({"hours": hours, "when": {"op": "one_hot", "input": "hours"}});
    [
        part("genre", GENRES.len(), "genre", &json!({"genre": genre})),
        part("device", DEVICES.len(), "device", &json!({"device": device})),
        part("when", HOUR_EDGES.len() + 1, "when", &whens),
        part("crosses", 1, "fit", &crosses),
    ]
    .into_iter()
    .collect()
}

fn part(name: &str, dim: usize, output: &str, nodes: &Value) -> anyhow::Result<JobPart> {
    let pipeline = json!({"name": name, "output": output, "nodes": nodes});
    Ok(serde_json::from_value(json!({"part": name, "dim": dim, "pipeline": pipeline}))?)
}

/// The files of the training data, for several jobs.
pub(super) struct Training {
    folder: TemporaryFolder,
    observations: InputFile,
    attributes: InputFile,
    watermark: Value,
}

impl Training {
    /// Writes these rows of the stream as a node exports them.
    pub(super) fn new(clicks: &Clicks, rows: &[ClickRow]) -> anyhow::Result<Self> {
        let folder = TemporaryFolder::new().context("no temporary folder")?;
        let observations = folder.path().join("observations.parquet");
        let contexts: Vec<Context> = rows.iter().map(|row| row.circumstances.context()).collect();
        let observed = rows.iter().zip(&contexts).map(|(row, context)| Observed {
            user: &clicks.users[row.user],
            item: &clicks.items[row.item].id,
            label: if row.clicked { 1.0 } else { 0.0 },
            timestamp: row.timestamp,
            context: Some(context),
        });
        let sequences = write_observations(&observations, observed)?;
        let attributes = folder.path().join("item_attributes.parquet");
        let described: Vec<_> = clicks.items.iter().map(|item| (&item.id, item.attributes())).collect();
        let mut writer = AttributesWriter::create(&attributes)?;
        writer.write(described.iter().map(|(id, attributes)| (*id, attributes)))?;
        writer.finish()?;
        Ok(Self {
            observations: InputFile::sealed(&observations)?,
            attributes: InputFile::sealed(&attributes)?,
            watermark: serde_json::to_value(sequences)?,
            folder,
        })
    }

    /// Runs the job of a model with these parts, and reads its version back as a node does.
    pub(super) fn run(
        &self,
        name: &str,
        parts: Vec<JobPart>,
        settings: &EvaluateSettings,
        progress: Part,
    ) -> anyhow::Result<LoadedVersion> {
        let output: PathBuf = self.folder.path().join(name);
        let job = Job {
            model: ModelName::new(name)?,
            version: VersionId(2),
            dim: settings.dim,
            seed: settings.seed,
            threads: Some(settings.threads),
            algorithm: Algorithm::default(),
            loss: Loss::Logistic,
            observations: self.observations.clone(),
            pinned_items: None,
            item_attributes: Some(self.attributes.clone()),
            user_attributes: None,
            parts,
            objects: None,
            parent: Some(VersionId(1)),
            warm_start: None,
            watermark: self.watermark.clone(),
            limits: None,
            output: output.clone(),
        };
        let file = self.folder.path().join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec(&job)?)?;
        run_job(&file, &progress)?;
        Ok(read_version(&output)?)
    }

    /// A folder for other files, which exists as long as this.
    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}
