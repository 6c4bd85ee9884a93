//! What a worker on another machine needs for the trials of a study: what they have in common, then the records and
//! items, as they are stored.

use std::io::{self, Read, Write};

use celeris_model::ModelId;
use celeris_storage::{CopyError, StreamCopy, Watermark};
use serde::{Deserialize, Serialize};

use crate::comparison::HeldOutLoss;
use crate::metric::Metric;
use crate::promotion::Holdout;
use crate::registry::ModelRecord;
use crate::settings::{ModelConfig, Triggers};
use crate::study_id::StudyId;

/// Maximum bytes of the head: losses of trial 0 by user are most of it.
const HEAD_BYTES_MAX: usize = 256 << 20;

/// The version of this program: stored forms are read by the same version alone.
pub(super) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// The head of the data of a study: what its trials have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialData {
    /// [`PROGRAM`] of the node.
    pub(super) program: String,
    pub(super) study: StudyId,
    /// Which data: another number if users were erased who are in it.
    pub(super) number: u64,
    pub(super) record: ModelRecord,
    pub(super) metric: Metric,
    /// The losses of trial 0.
    pub(super) baseline: Option<HeldOutLoss>,
    pub(super) holdout_from: Watermark,
    pub(super) watermark: Watermark,
}

impl TrialData {
    /// Which data it is.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The id that the model must have where its trials run: its features of items are stored under it.
    pub(crate) fn model_id(&self) -> ModelId {
        self.record.id
    }

    /// The settings of the model, which retrains nothing by itself there.
    pub(crate) fn config(&self) -> ModelConfig {
        ModelConfig { triggers: Triggers::default(), default_reward: None, ..self.record.config.clone() }
    }

    pub(super) fn holdout(&self) -> Holdout {
        Holdout { from: self.holdout_from.clone(), to: self.watermark.clone() }
    }

    /// The records and items that follow the head.
    #[must_use]
    pub fn copy(&self) -> StreamCopy {
        let stream = self.record.config.stream.clone();
        StreamCopy { stream, watermark: self.watermark.clone(), model: self.record.id }
    }

    /// Writes the head.
    ///
    /// # Errors
    /// Those of `into`.
    pub fn write(&self, into: &mut dyn Write) -> io::Result<()> {
        let head = serde_json::to_vec(self)?;
        let length = u32::try_from(head.len()).map_err(io::Error::other)?;
        into.write_all(&length.to_le_bytes())?;
        into.write_all(&head)
    }

    /// Reads the head; the copy follows.
    ///
    /// # Errors
    /// `Transfer`, also if the node runs another version of this program.
    pub fn read(from: &mut dyn Read) -> Result<Self, CopyError> {
        #[derive(Deserialize)]
        struct Program {
            program: String,
        }
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
        if length > HEAD_BYTES_MAX {
            return Err(invalid(format!("its head has {length} bytes")).into());
        }
        let mut head = Vec::new();
        from.take(length as u64).read_to_end(&mut head)?;
        let unreadable = |error: serde_json::Error| invalid(format!("its head cannot be read: {error}"));
        let Program { program } = serde_json::from_slice(&head).map_err(unreadable)?;
        if program != PROGRAM {
            let problem = format!("the node runs celeris {program} and this is {PROGRAM}; use the same version");
            return Err(invalid(problem).into());
        }
        Ok(serde_json::from_slice(&head).map_err(unreadable)?)
    }
}
