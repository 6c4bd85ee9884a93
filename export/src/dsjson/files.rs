//! The files of one model's decisions, in order.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use celeris_model::ModelName;

use crate::error::ExportError;
use crate::sealing::model_folder_name;

/// Maximum number of decisions of a file.
const LINES_A_FILE: u64 = 1 << 20;

pub(super) struct Files {
    cb: Parts,
    ccb: Parts,
}

impl Files {
    pub(super) fn new(root: &Path, model: &ModelName) -> Result<Self, ExportError> {
        let folder = root.join(model_folder_name(model));
        fs::create_dir_all(&folder).map_err(ExportError::io(&folder))?;
        Ok(Self { cb: Parts::new(&folder, "cb"), ccb: Parts::new(&folder, "ccb") })
    }

    pub(super) fn one_slot(&mut self, line: &[u8]) -> Result<(), ExportError> {
        self.cb.push(line)
    }

    /// Vowpal Wabbit reads these by another reduction, so they are in files of their own.
    pub(super) fn several_slots(&mut self, line: &[u8]) -> Result<(), ExportError> {
        self.ccb.push(line)
    }

    pub(super) fn finish(self) -> Result<(), ExportError> {
        let Self { mut cb, mut ccb } = self;
        cb.close()?;
        ccb.close()
    }
}

/// Files of one kind, one after the other.
struct Parts {
    folder: PathBuf,
    kind: &'static str,
    open: Option<(PathBuf, BufWriter<File>)>,
    files: u32,
    /// Lines of the open file.
    lines: u64,
}

impl Parts {
    fn new(folder: &Path, kind: &'static str) -> Self {
        Self { folder: folder.to_owned(), kind, open: None, files: 0, lines: 0 }
    }

    fn push(&mut self, line: &[u8]) -> Result<(), ExportError> {
        let (path, out) = match &mut self.open {
            Some(open) => open,
            none => {
                self.files += 1;
                self.lines = 0;
                let path = self.folder.join(format!("{}-{:06}.dsjson", self.kind, self.files));
                let out = BufWriter::new(File::create(&path).map_err(ExportError::io(&path))?);
                none.insert((path, out))
            }
        };
        out.write_all(line).and_then(|()| out.write_all(b"\n")).map_err(ExportError::io(path.as_path()))?;
        self.lines += 1;
        if self.lines == LINES_A_FILE { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<(), ExportError> {
        let Some((path, mut out)) = self.open.take() else { return Ok(()) };
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(ExportError::io(path))
    }
}
