//! Observations as a node exports them to its trainer.

use std::path::Path;

use celeris_formats::{ObservationRow, ObservationsWriter};
use celeris_model::{
    Context, ItemId, Partition, Record, RecordKind, Sequence, StreamFields, Timestamp, UserEpoch, UserId,
};

/// What a user did with an item.
#[derive(Clone, Copy)]
pub(crate) struct Observed<'a> {
    pub(crate) user: &'a UserId,
    pub(crate) item: &'a ItemId,
    pub(crate) label: f32,
    pub(crate) timestamp: Timestamp,
    pub(crate) context: Option<&'a Context>,
}

/// Writes an observations file; returns the last sequence of each partition, which is the watermark of a job.
pub(crate) fn write_observations<'a>(
    path: &Path,
    observed: impl IntoIterator<Item = Observed<'a>>,
) -> anyhow::Result<Vec<u64>> {
    let mut writer = ObservationsWriter::create(path)?;
    let mut sequences = vec![0_u64; Partition::all().count()];
    let mut fields = StreamFields::default();
    for Observed { user, item, label, timestamp, context } in observed {
        let sequence = &mut sequences[usize::from(Partition::of(user).index())];
        *sequence += 1;
        let context = context.and_then(|context| {
            fields = fields.extended(&fields.missing(context));
            fields.numbered(context)
        });
        let record = Record {
            kind: RecordKind::Observe,
            user: user.clone(),
            user_epoch: UserEpoch(*sequence),
            item: Some(item.clone()),
            label,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp,
            observation_id: None,
            decision: None,
            context: context.map(Box::new),
            predictions: Vec::new(),
            targets: Vec::new(),
        };
        let observation_id = celeris_storage::observation_id(Sequence(*sequence), &record);
        writer.push(ObservationRow {
            sequence: Sequence(*sequence),
            observation_id: &observation_id,
            record: &record,
        })?;
    }
    writer.finish()?;
    Ok(sequences)
}
