//! The log up to a watermark as a trainer's input.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use celeris_model::{ItemId, ModelName, Partition, Sequence, StreamName};
use celeris_retrain::{InputFile, ObservationRow, ObservationsWriter, write_pinned_items};
use celeris_storage::{LogRange, Storage, Watermark, observation_id};

use crate::error::ManagerError;
use crate::gate::Tail;
use crate::pause::{self, Step};
use crate::records::ModelConfig;

/// Items read at a time while given features are collected.
const PAGE_ITEMS: usize = 1000;

/// What a trainer learns from.
pub(crate) struct Export {
    pub(crate) observations: InputFile,
    pub(crate) pinned_items: Option<InputFile>,
    /// Up to where they go.
    pub(crate) watermark: Watermark,
    /// What was left out, to judge by.
    pub(crate) tail: Tail,
}

/// Writes the stream's observations but those held out for the gate, in sequence order partition by partition, and the features that callers gave.
///
/// `progress` is told the share of records written.
pub(crate) fn export(
    storage: &Storage,
    config: &ModelConfig,
    dir: &Path,
    progress: impl Fn(f32),
) -> Result<Export, ManagerError> {
    let log = storage.watermark(&config.stream);
    if log.records() == 0 {
        return Err(ManagerError::NoObservations { stream: config.stream.clone() });
    }
    let tail = Tail::of(log, config.gate.tail_share);
    let watermark = tail.to.clone();
    let records = watermark.records();
    fs::create_dir_all(dir).map_err(ManagerError::io(dir))?;
    let mut writer = ObservationsWriter::create(&dir.join("observations.parquet"))?;
    let mut written: u64 = 0;
    for partition in Partition::all() {
        let range =
            LogRange { stream: config.stream.clone(), partition, after: Sequence(0), up_to: watermark.get(partition) };
        let outcome = storage.scan(&range, |sequence, record| {
            written += 1;
            if tail.holds(partition, sequence) {
                return ControlFlow::Continue(());
            }
            let observation_id = observation_id(sequence, &record);
            match writer.push(ObservationRow { sequence, observation_id: &observation_id, record: &record }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        if let ControlFlow::Break(error) = outcome {
            return Err(error.into());
        }
        progress(written as f32 / records as f32);
        pause::at(Step::Export);
    }
    let observations = writer.finish()?;
    let pinned_items = export_given(storage, &config.stream, &config.name, config.dim, dir)?;
    Ok(Export { observations, pinned_items, watermark, tail })
}

fn export_given(
    storage: &Storage,
    stream: &StreamName,
    model: &ModelName,
    dim: usize,
    dir: &Path,
) -> Result<Option<InputFile>, ManagerError> {
    let mut items: Vec<ItemId> = Vec::new();
    let mut features: Vec<f32> = Vec::new();
    let mut after = None;
    loop {
        let page = storage.items(stream, after.as_ref(), PAGE_ITEMS)?;
        for (item, _) in &page {
            if let Some(given) = storage.item_features(model, item)?.filter(|given| given.features.len() == dim) {
                items.push(item.clone());
                features.extend(given.features);
            }
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE_ITEMS => after = Some(last.clone()),
            _ => break,
        }
    }
    if items.is_empty() {
        return Ok(None);
    }
    Ok(Some(write_pinned_items(&dir.join("pinned_items.parquet"), &items, &features)?))
}
