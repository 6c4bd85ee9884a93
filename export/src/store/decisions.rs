//! Export of decisions as Parquet.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use celeris_formats::DecisionsWriter;
use celeris_model::{Decision, ModelId, ModelName};
use celeris_storage::Storage;

use crate::error::ExportError;
use crate::sealing::model_folder_name;

const ROWS_A_FILE: u64 = 1 << 20;

/// The files of one model's decisions, in order.
struct Files {
    folder: PathBuf,
    open: Option<DecisionsWriter>,
    files: u32,
    rows: u64,
}

impl Files {
    fn push(&mut self, decision: &Decision) -> Result<(), ExportError> {
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => {
                self.files += 1;
                DecisionsWriter::create(&self.folder.join(format!("decisions-{:06}.parquet", self.files)))?
            }
        };
        writer.push(decision)?;
        self.rows += 1;
        if writer.rows() < ROWS_A_FILE {
            self.open = Some(writer);
            return Ok(());
        }
        Ok(writer.finish()?)
    }

    fn finish(self) -> Result<u64, ExportError> {
        if let Some(writer) = self.open {
            writer.finish()?;
        }
        Ok(self.rows)
    }
}

/// Writes a model's decisions below `root` and returns their number.
///
/// # Errors
/// `Io`, `Format` or `Storage`.
pub(super) fn export(storage: &Storage, (model, id): (&ModelName, ModelId), root: &Path) -> Result<u64, ExportError> {
    let folder = root.join(model_folder_name(model));
    fs::create_dir_all(&folder).map_err(ExportError::io(&folder))?;
    let mut files = Files { folder, open: None, files: 0, rows: 0 };
    let outcome = storage.decisions().scan(id, |decision| match files.push(&decision) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    })?;
    match outcome {
        ControlFlow::Continue(()) => files.finish(),
        ControlFlow::Break(error) => Err(error),
    }
}
