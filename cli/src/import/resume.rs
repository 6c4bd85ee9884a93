//! How far an import has come, in a file from which the same import goes on.
//!
//! For each input the file has a digest of all lines that the node has acknowledged. The next import reads these lines again,
//! and leaves them out if the digest is the same: whatever changed, the rows, the options or the ids made of both,
//! changes it. Then it begins again, and ids keep the node from taking a row twice. An input that is complete is not read
//! again while its size, its time and both of its ends are the same. The last line that was acknowledged is sent once more, to
//! see that the node still has it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use celeris_import::{Input, Origin, Rules};
use serde::{Deserialize, Serialize};

use super::bad_rows::is_file_of;
use super::node::Node;
use crate::Failure;

const FORMAT: u32 = 1;

/// The size of the file, at most: the state of a hundred thousand inputs.
const BYTES_MAX: u64 = 256 << 20;

/// Time between two writes.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Bytes of each end of a file that are compared.
const END_BYTES: u64 = 64 << 10;

/// How far one input has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// Rows that were read, bad ones too.
    pub rows: u64,
    /// Lines that the node has acknowledged.
    pub lines: u64,
    /// A digest of these lines.
    pub digest: String,
    /// The last of them that it has taken.
    pub last: String,
    /// Whether all of the input was sent.
    pub complete: bool,
    /// What a complete file looked like, and how it was read.
    pub fingerprint: Option<Fingerprint>,
    /// The length of the file of bad rows before the input, and when this was written.
    pub bad_rows: (u64, u64),
}

impl Reached {
    /// The beginning of an input, when the file of bad rows has this length.
    pub fn nothing(bad_rows: u64) -> Self {
        Self {
            rows: 0,
            lines: 0,
            digest: String::new(),
            last: String::new(),
            complete: false,
            fingerprint: None,
            bad_rows: (bad_rows, bad_rows),
        }
    }
}

/// A file as far as it is compared without reading all of it, and the options of the import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    bytes: u64,
    /// Of a file on a disk.
    modified_ns: Option<u64>,
    ends: String,
    options: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: u32,
    model: String,
    model_id: Option<u64>,
    inputs: BTreeMap<String, Reached>,
}

/// The file, and what is in it.
pub struct Resume {
    path: PathBuf,
    written: Written,
    saved: Instant,
    /// Whether there is something to write.
    changed: bool,
}

/// The input in the file.
fn key(input: &Input) -> String {
    match &input.part {
        None => input.name.clone(),
        Some(part) => format!("{}/{part}", input.name),
    }
}

/// A digest as it is written.
pub fn shown(digest: u128) -> String {
    format!("{digest:032x}")
}

impl Resume {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// If it is an input, no state of an import, of another model, or cannot be read or written.
    pub fn open(path: &Path, inputs: &[Input], node: &Node) -> Result<Self, Failure> {
        let problem =
            |problem: &dyn std::fmt::Display| Failure::bad_input(format!("--resume {}: {problem}", path.display()));
        if let Some(input) = inputs.iter().find(|input| is_file_of(path, input)) {
            let input = input.shown();
            return Err(problem(&format!("is the input {input}, which it would overwrite; name another file")));
        }
        let model = node.model.to_string();
        let written = match read(path).map_err(|error| problem(&error))? {
            None => Written { format: FORMAT, model, model_id: node.id, inputs: BTreeMap::new() },
            Some(text) => {
                let written: Written = serde_json::from_slice(&text)
                    .map_err(|error| problem(&format!("is no state of an import ({error}); name another file")))?;
                if written.format != FORMAT {
                    return Err(problem(&format!("has format {}, expected {FORMAT}; delete it", written.format)));
                }
                if written.model != model || written.model_id != node.id {
                    return Err(problem(&format!(
                        "is of another model, {} with the id {}, not {model} with the id {}; name another file, or delete it to \
                         begin again",
                        written.model,
                        written.model_id.unwrap_or_default(),
                        node.id.unwrap_or_default()
                    )));
                }
                written
            }
        };
        let mut resume = Self { path: path.to_owned(), written, saved: Instant::now(), changed: true };
        // A file that cannot be written is found before anything is sent.
        resume.save()?;
        Ok(resume)
    }

    /// How far an input had come.
    pub fn reached(&self, input: &Input) -> Option<&Reached> {
        self.written.inputs.get(&key(input))
    }

    /// The length that the file of bad rows had at the latest.
    pub fn bad_rows(&self) -> Option<u64> {
        self.written.inputs.values().map(|reached| reached.bad_rows.1).max()
    }

    /// Notes how far an input has come; writes it now and then, and when the input is complete.
    pub fn note(&mut self, input: &Input, reached: Reached) -> Result<(), Failure> {
        let complete = reached.complete;
        self.written.inputs.insert(key(input), reached);
        self.changed = true;
        if complete || self.saved.elapsed() >= SAVE_EVERY { self.save() } else { Ok(()) }
    }

    /// Begins an input from its start.
    pub fn forget(&mut self, input: &Input) -> Result<(), Failure> {
        self.written.inputs.remove(&key(input));
        self.changed = true;
        self.save()
    }

    /// Writes the file, whole or not at all.
    pub fn save(&mut self) -> Result<(), Failure> {
        if !self.changed {
            return Ok(());
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let written = serde_json::to_vec_pretty(&self.written).map_err(Failure::other)?;
        let write = || {
            // It quotes a row of each input.
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&written)?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        };
        let problem = |error| Failure::bad_input(format!("--resume {}: {error}", self.path.display()));
        write().map_err(problem)?;
        (self.saved, self.changed) = (Instant::now(), false);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !metadata.is_file() || metadata.len() > BYTES_MAX {
        return Err("is no state of an import; name another file".to_owned());
    }
    fs::read(path).map(Some).map_err(|error| error.to_string())
}

/// What an input looks like; `None` if it can be read only once.
///
/// # Errors
/// If it cannot be read.
pub fn fingerprint(input: &Input, rules: &Rules) -> Result<Option<Fingerprint>, Failure> {
    let (bytes, modified_ns, ends) = match &input.origin {
        Origin::Stdin => return Ok(None),
        Origin::File(_) if input.is_stream() => return Ok(None),
        Origin::File(path) => {
            let ends = || {
                let mut file = fs::File::open(path)?;
                let metadata = file.metadata()?;
                let modified = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
                let modified = u64::try_from(modified).unwrap_or(u64::MAX);
                let mut ends = Vec::new();
                (&mut file).take(END_BYTES).read_to_end(&mut ends)?;
                file.seek(SeekFrom::Start(metadata.len().saturating_sub(END_BYTES)))?;
                (&mut file).take(END_BYTES).read_to_end(&mut ends)?;
                Ok((metadata.len(), Some(modified), ends))
            };
            let problem = |error: io::Error| Failure::bad_input(format!("{}: {error}", path.display()));
            ends().map_err(problem)?
        }
        Origin::Object(object) => {
            let (location, bytes) = (&object.location, object.bytes);
            let first = location.read_range(0..END_BYTES.min(bytes)).map_err(Failure::bad_input)?;
            let last = location.read_range(bytes.saturating_sub(END_BYTES)..bytes).map_err(Failure::bad_input)?;
            (bytes, None, [first, last].concat())
        }
    };
    // The latest time that is taken is another one in every run.
    let options = format!("{:?}", Rules { latest: 0, ..rules.clone() });
    let hash = |bytes: &[u8]| shown(celeris_import::ids::hash(bytes));
    Ok(Some(Fingerprint { bytes, modified_ns, ends: hash(&ends), options: hash(options.as_bytes()) }))
}
