//! Export of the log up to a watermark as training input.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use celeris_formats::{AttributesWriter, ObservationRow, ObservationsWriter, pinned_items};
use celeris_model::{ItemId, Partition, Sequence, StreamName, UserId};
use celeris_retrain::InputFile;
use celeris_storage::{LogRange, Storage, Watermark, faults, observation_id};

use crate::error::ManagerError;
use crate::promotion::Holdout;
use crate::registry::ModelRecord;
use crate::settings::Engine;

/// Items read at a time while their features and attributes are collected.
const PAGE_ITEMS: usize = 1000;

/// Users read at a time while their attributes are collected.
const PAGE_USERS: usize = 1000;

/// Files of a training input.
pub(super) struct Export {
    pub(super) observations: InputFile,
    /// Observations held out from an external engine, to evaluate its output.
    pub(super) held_out: Option<InputFile>,
    pub(super) pinned_items: Option<InputFile>,
    /// The attributes of items, if any item has some.
    pub(super) item_attributes: Option<InputFile>,
    /// The attributes of users, if any user has some.
    pub(super) user_attributes: Option<InputFile>,
    /// End of the exported part of the log.
    pub(super) watermark: Watermark,
    /// Records left out for the gate.
    pub(super) holdout: Holdout,
}

/// One observation in this many is held out from an external engine, up to [`HELD_OUT_MAX`].
const HELD_OUT_ONE_IN: u64 = 10;

/// Enough to tell one prior from another, whatever the size of the log.
const HELD_OUT_MAX: u64 = 20_000;

/// With fewer records, all are passed to the engine: a held-out part would be too small to measure
/// anything.
const RECORDS_MIN: u64 = 200;

/// Selects the records that are held out from an external engine.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// One in this many; `None` if none are held out.
    one_in: Option<u64>,
}

impl Split {
    fn of(engine: &Engine, records: u64) -> Self {
        let splits = !engine.is_built_in() && records >= RECORDS_MIN;
        Self { one_in: splits.then(|| HELD_OUT_ONE_IN.max(records.div_ceil(HELD_OUT_MAX))) }
    }

    /// Whether the record is held out. Depends only on its position, so equal logs are split
    /// equally.
    fn holds_out(self, partition: Partition, sequence: Sequence) -> bool {
        // Fibonacci hashing: consecutive positions are scattered evenly.
        let place = (u64::from(partition.index()) << 56) ^ sequence.0;
        let scattered = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.one_in.is_some_and(|one_in| scattered.is_multiple_of(one_in))
    }
}

pub(super) struct ExportPlan<'a> {
    pub(super) record: &'a ModelRecord,
    pub(super) engine: &'a Engine,
    /// End of the export, and the records held out for the gate.
    pub(super) holdout: Holdout,
    pub(super) dir: &'a Path,
}

/// Writes the stream's observations except those held out for the gate, in sequence order within
/// each partition, and the features and attributes of items that callers supplied. For an external
/// engine, part of the observations is written to a separate file.
///
/// `progress` receives the share of records written; an error that it returns aborts the export.
pub(super) fn export(
    storage: &Storage,
    plan: &ExportPlan<'_>,
    progress: impl Fn(f32) -> Result<(), ManagerError>,
) -> Result<Export, ManagerError> {
    let ExportPlan { record, engine, holdout, dir } = plan;
    let config = &record.config;
    let watermark = holdout.to.clone();
    let records = watermark.records();
    if records == 0 {
        return Err(ManagerError::NoObservations { stream: config.stream.clone() });
    }
    fs::create_dir_all(dir).map_err(ManagerError::io(dir))?;
    let (file, held_out_file) = (dir.join("observations.parquet"), dir.join("held_out.parquet"));
    let mut writer = ObservationsWriter::create(&file)?;
    let split = Split::of(engine, records);
    let mut held_out = split.one_in.map(|_| ObservationsWriter::create(&held_out_file)).transpose()?;
    let mut written: u64 = 0;
    for partition in Partition::all() {
        let range =
            LogRange { stream: config.stream.clone(), partition, after: Sequence(0), up_to: watermark.get(partition) };
        let outcome = storage.log().scan(&range, |sequence, record| {
            written += 1;
            if holdout.holds(partition, sequence) {
                return ControlFlow::Continue(());
            }
            let observation_id = observation_id(sequence, &record);
            let writer = match &mut held_out {
                Some(held_out) if split.holds_out(partition, sequence) => held_out,
                _ => &mut writer,
            };
            match writer.push(ObservationRow { sequence, observation_id: &observation_id, record: &record }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        if let ControlFlow::Break(error) = outcome {
            return Err(error.into());
        }
        progress(written as f32 / records as f32)?;
        faults::reach("export");
    }
    writer.finish()?;
    let observations = InputFile::sealed(&file)?;
    let held_out = match held_out {
        Some(writer) => {
            writer.finish()?;
            Some(InputFile::sealed(&held_out_file)?)
        }
        None => None,
    };
    let Items { pinned, attributes } = export_items(storage, record, dir)?;
    Ok(Export {
        observations,
        held_out,
        pinned_items: pinned,
        item_attributes: attributes,
        user_attributes: export_users(storage, &config.stream, dir)?,
        watermark,
        holdout: holdout.clone(),
    })
}

/// The attributes of the users who have events. Those of others teach nothing, and would be in the file of a training
/// that their erasure does not know of.
fn export_users(storage: &Storage, stream: &StreamName, dir: &Path) -> Result<Option<InputFile>, ManagerError> {
    let (users, histories) = (storage.user_attributes(), storage.histories());
    let file = dir.join("user_attributes.parquet");
    let mut writer = None;
    let mut after = None;
    loop {
        let page = users.list(stream, after.as_ref(), PAGE_USERS)?;
        let mut active = Vec::with_capacity(page.len());
        for (user, attributes) in &page {
            if histories.last_epoch(stream, user)?.0 > 0 {
                active.push((user, attributes));
            }
        }
        if !active.is_empty() {
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(AttributesWriter::<UserId>::create(&file)?),
            };
            writer.write(active)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE_USERS => after = Some(last.clone()),
            _ => break,
        }
    }
    let Some(writer) = writer else { return Ok(None) };
    writer.finish()?;
    Ok(Some(InputFile::sealed(&file)?))
}

/// Item files of a training input.
struct Items {
    /// Features supplied by callers.
    pinned: Option<InputFile>,
    attributes: Option<InputFile>,
}

fn export_items(storage: &Storage, record: &ModelRecord, dir: &Path) -> Result<Items, ManagerError> {
    let config = &record.config;
    let mut items: Vec<ItemId> = Vec::new();
    let mut features: Vec<f32> = Vec::new();
    let file = dir.join("item_attributes.parquet");
    let mut writer = AttributesWriter::create(&file)?;
    let (mut after, mut described) = (None, false);
    loop {
        let page = storage.items().list(&config.stream, after.as_ref(), PAGE_ITEMS)?;
        let with_attributes = || page.iter().filter(|(_, record)| !record.attributes.is_empty());
        if with_attributes().next().is_some() {
            described = true;
            writer.write(with_attributes().map(|(item, record)| (item, &record.attributes)))?;
        }
        for (item, _) in &page {
            let given = storage.items().given_features(record.id, item)?;
            if let Some(given) = given.filter(|given| given.features.len() == config.table_dim()) {
                items.push(item.clone());
                features.extend(given.features);
            }
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE_ITEMS => after = Some(last.clone()),
            _ => break,
        }
    }
    writer.finish()?;
    let attributes = described.then(|| InputFile::sealed(&file)).transpose()?;
    let pinned = dir.join("pinned_items.parquet");
    if items.is_empty() {
        return Ok(Items { pinned: None, attributes });
    }
    pinned_items::write(&pinned, &items, &features)?;
    Ok(Items { pinned: Some(InputFile::sealed(&pinned)?), attributes })
}
