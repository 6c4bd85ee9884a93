//! A pipeline as a folder: `pipeline.json`, and a file in `objects` for each object, named by its SHA-256.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use celeris_pipelines::{Object, ObjectId, Objects, PipelineSpec};
use serde_json::Value;

use crate::Failure;

const DECLARATION: &str = "pipeline.json";
const OBJECTS: &str = "objects";

pub(super) struct Folder {
    pub(super) spec: PipelineSpec,
    /// The encodings of the objects that the declaration names.
    pub(super) bytes: BTreeMap<ObjectId, Vec<u8>>,
    pub(super) objects: Objects,
    /// Objects live as long as they are held.
    _held: Vec<Arc<Object>>,
}

impl Folder {
    /// Reads a folder, or a declaration alone.
    ///
    /// # Errors
    /// If a file cannot be read, or is damaged.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = if path.is_dir() { path.join(DECLARATION) } else { path.to_owned() };
        let refused = |problem: String| Failure::bad_input(format!("{}: {problem}", file.display()));
        let json = fs::read(&file).map_err(|error| refused(error.to_string()))?;
        let json: Value = serde_json::from_slice(&json).map_err(|error| refused(error.to_string()))?;
        let spec = PipelineSpec::parse(&json).map_err(|error| refused(error.to_string()))?;
        let mut bytes = BTreeMap::new();
        for id in spec.objects() {
            let object = file.with_file_name(OBJECTS).join(id.hex());
            let read =
                fs::read(&object).map_err(|error| Failure::bad_input(format!("{}: {error}", object.display())))?;
            if ObjectId::of(&read) != id {
                return Err(Failure::bad_input(format!("{}: its contents have another SHA-256", object.display())));
            }
            bytes.insert(id, read);
        }
        Self::of(spec, bytes)
    }

    /// A pipeline with its objects.
    ///
    /// # Errors
    /// If one is not an object.
    pub(super) fn of(spec: PipelineSpec, bytes: BTreeMap<ObjectId, Vec<u8>>) -> Result<Self, Failure> {
        let objects = Objects::in_memory();
        let held = bytes.values().map(|bytes| objects.insert(bytes)).collect::<Result<_, _>>()?;
        Ok(Self { spec, bytes, objects, _held: held })
    }

    /// Writes the pipeline into a new folder.
    ///
    /// # Errors
    /// If the folder exists, or cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let objects = folder.join(OBJECTS);
        let refused = |error: std::io::Error| Failure::bad_input(format!("{}: {error}", folder.display()));
        fs::create_dir(folder).and_then(|()| fs::create_dir(&objects)).map_err(refused)?;
        for (id, bytes) in &self.bytes {
            fs::write(objects.join(id.hex()), bytes).map_err(refused)?;
        }
        let mut json = serde_json::to_vec_pretty(&self.spec).map_err(Failure::other)?;
        json.push(b'\n');
        fs::write(folder.join(DECLARATION), json).map_err(refused)
    }
}
