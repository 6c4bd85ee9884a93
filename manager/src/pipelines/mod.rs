//! Pipelines: declared once for the cluster, compiled on each node that runs them.
//!
//! The registry has the declarations; objects, which are large, are files (`object_files`). Both are written by the
//! node that leads. The others get the objects of declared pipelines from it when they need them: an object is named by
//! its checksum, so it does not matter where its bytes come from.

mod object_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{Context, ModelName, Timestamp};
use celeris_pipelines::engine::{Engine, EngineSettings, OwnedRecord};
use celeris_pipelines::graph::Outline;
use celeris_pipelines::limits::OBJECT_BYTES_MAX;
use celeris_pipelines::plan::Explanation;
use celeris_pipelines::{
    Catalog, Object, ObjectId, Objects, PipelineError, PipelineSpec, Plan, Record, Scratch, SubPlans,
};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::object_files::ObjectFiles;
use crate::cluster::{Peers, VersionSource};
use crate::error::ManagerError;
use crate::leadership::Leadership;

/// Maximum number of pipelines.
pub const PIPELINES_MAX: usize = 1000;

/// Maximum bytes of all objects together: pipelines that run hold them in memory.
pub const OBJECTS_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of records of one request to run a pipeline.
pub const RECORDS_MAX: usize = 1000;

/// Maximum number of outputs of one request to run a pipeline, of all records together.
const NUMBERS_MAX: usize = 1 << 20;

/// A request of more records is run by the batch engine, so that it does not hold one thread for long.
const RECORDS_INLINE: usize = 16;

/// Bytes for results of stages that several pipelines share.
const SHARED_RESULTS_BYTES: usize = 32 << 20;

/// Maximum length of a declaration as JSON, in bytes.
const DECLARATION_BYTES_MAX: usize = 256 << 10;

const KIND: &str = "pipeline";

fn key(name: &str) -> Result<RegistryKey, StorageError> {
    RegistryKey::new([KIND, name])
}

/// A declared pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineRecord {
    pub spec: PipelineSpec,
    /// Counts the declarations of this name, from 1.
    pub revision: u64,
    /// Of this revision.
    pub declared: Timestamp,
}

/// A pipeline, and what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedPipeline {
    pub record: PipelineRecord,
    pub outline: Outline,
    /// Its stages, if they were asked for and all parameters are there.
    pub explanation: Option<Explanation>,
}

/// One input of a pipeline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PipelineInput {
    /// The attributes of the item.
    pub item: Map<String, Value>,
    pub context: Context,
}

/// An object that is on the disk of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    pub id: ObjectId,
    pub bytes: u64,
    /// The pipelines that name it.
    pub used_by: Vec<String>,
}

/// Whether the stages of a pipeline are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explained {
    Yes,
    No,
}

/// What all pipelines of a node and all versions share: objects, in memory and on the disk, and compiled stages.
pub(crate) struct SharedPipelines {
    files: Arc<ObjectFiles>,
    peers: Option<Peers>,
    objects: Objects,
    stages: Catalog,
}

impl SharedPipelines {
    /// # Errors
    /// `Io`.
    pub(crate) fn open(storage: &Storage, peers: Option<Peers>) -> Result<Arc<Self>, ManagerError> {
        let files = Arc::new(ObjectFiles::open(storage.dir())?);
        let (here, others) = (Arc::clone(&files), peers.clone());
        let objects = Objects::loading(move |id| load(&here, others.as_ref(), id).map_err(|error| error.to_string()));
        Ok(Arc::new(Self { files, peers, objects, stages: Catalog::default() }))
    }

    /// Objects and stages in memory.
    pub(crate) fn compiled(&self) -> (&Objects, &Catalog) {
        (&self.objects, &self.stages)
    }
}

/// The pipelines of a node.
pub struct Pipelines {
    storage: Storage,
    leadership: Arc<Leadership>,
    shared: Arc<SharedPipelines>,
    shared_results: Arc<SubPlans>,
    /// Runs large requests, on one thread: they yield to the requests of users.
    engine: Engine,
    /// Held by the large request that runs.
    running: Mutex<()>,
    /// Plans by the names of their pipelines, with what they were compiled from: a name may be deleted and declared again.
    plans: Mutex<BTreeMap<String, (PipelineRecord, Arc<Plan>)>>,
    /// Held while declarations or files are changed.
    changing: Mutex<()>,
}

impl Pipelines {
    /// # Errors
    /// `Io`.
    pub(crate) fn open(
        storage: Storage,
        leadership: Arc<Leadership>,
        shared: Arc<SharedPipelines>,
    ) -> Result<Self, ManagerError> {
        let shared_results = Arc::new(SubPlans::new(SHARED_RESULTS_BYTES));
        let engine = Engine::new(EngineSettings { kept: Some(shared_results.clone()), ..EngineSettings::default() })?;
        let pipelines = Self {
            storage,
            leadership,
            shared,
            shared_results,
            engine,
            running: Mutex::default(),
            plans: Mutex::default(),
            changing: Mutex::default(),
        };
        pipelines.remove_unused();
        Ok(pipelines)
    }

    /// Takes in documents of the registry that another node has changed.
    pub(crate) fn take_in(&self, documents: &[RegistryKey]) {
        for document in documents {
            if let [kind, name] = document.parts()
                && kind == KIND
            {
                self.plans.lock().remove(name);
            }
        }
    }

    /// Stores an object under its checksum; durable when it returns.
    ///
    /// # Errors
    /// `Pipeline` if the bytes are not those of an object or have another checksum, `TooManyObjects`, `ObjectsFull`, `Io`,
    /// or `Storage(NotOwner)` unless this node leads.
    pub fn put_object(&self, id: ObjectId, bytes: &[u8]) -> Result<StoredObject, ManagerError> {
        self.leadership.term()?;
        let received = ObjectId::of(bytes);
        if received != id {
            return Err(PipelineError::Checksum { expected: id, received }.into());
        }
        Object::decode(bytes)?;
        let _changing = self.changing.lock();
        let mut others = self.shared.files.bytes_without(id)?;
        if others.saturating_add(bytes.len() as u64) > OBJECTS_BYTES_MAX {
            self.remove_unused();
            others = self.shared.files.bytes_without(id)?;
        }
        if others.saturating_add(bytes.len() as u64) > OBJECTS_BYTES_MAX {
            return Err(ManagerError::TooManyObjects { bytes: others, max: OBJECTS_BYTES_MAX });
        }
        self.shared.files.write(id, bytes)?;
        self.object(id)
    }

    /// An object on the disk of this node.
    ///
    /// # Errors
    /// `UnknownObject`, or `Storage`.
    pub fn object(&self, id: ObjectId) -> Result<StoredObject, ManagerError> {
        let bytes = self.shared.files.length(id).ok_or(ManagerError::UnknownObject { id })?;
        let names = |record: PipelineRecord| record.spec.objects().contains(&id).then_some(record.spec.name);
        Ok(StoredObject { id, bytes, used_by: self.records()?.into_iter().filter_map(names).collect() })
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// `UnknownObject` or `Io`.
    pub fn object_bytes(&self, id: ObjectId) -> Result<Vec<u8>, ManagerError> {
        let read = self.shared.files.read(id).map_err(ManagerError::io(self.storage.dir().join("objects")))?;
        // Damaged bytes are of no use to another node.
        read.filter(|bytes| ObjectId::of(bytes) == id).ok_or(ManagerError::UnknownObject { id })
    }

    /// Declares a pipeline, or its next revision. The same declaration again changes nothing. `accepted` fails unless the
    /// models with a part of the pipeline can be trained with it.
    ///
    /// # Errors
    /// `Pipeline` if the declaration is invalid or names an object that is not there, `TooManyPipelines`, or `Storage`,
    /// with `NotOwner` unless this node leads; or the error of `accepted`.
    pub(crate) fn declare(
        &self,
        spec: PipelineSpec,
        accepted: impl FnOnce(&str, &Outline) -> Result<(), ManagerError>,
    ) -> Result<DescribedPipeline, ManagerError> {
        check_name(&spec.name)?;
        let bytes = serde_json::to_vec(&spec).map_or(usize::MAX, |json| json.len());
        if bytes > DECLARATION_BYTES_MAX {
            let problem =
                format!("it has {bytes} bytes, the maximum is {DECLARATION_BYTES_MAX}; make objects of its parameters");
            return Err(PipelineError::Declaration { problem }.into());
        }
        // Objects that it names are not removed meanwhile.
        let _changing = self.changing.lock();
        self.leadership.term()?;
        let outline = Outline::of(&spec, &self.shared.objects)?;
        accepted(&spec.name, &outline)?;
        self.keep_files(&spec)?;
        let before = self.record(&spec.name)?;
        if before.is_none() && self.records()?.len() >= PIPELINES_MAX {
            return Err(ManagerError::TooManyPipelines { max: PIPELINES_MAX });
        }
        let record = match before {
            Some(before) if before.spec == spec => before,
            before => {
                let revision = before.map_or(1, |before| before.revision + 1);
                let record = PipelineRecord { spec, revision, declared: SystemTime::now().into() };
                let mut batch = RegistryBatch::new();
                batch.put(key(&record.spec.name)?, &record)?;
                self.storage.registry().commit(&batch)?;
                self.remove_unused();
                record
            }
        };
        Ok(DescribedPipeline { record, outline, explanation: None })
    }

    /// What is known of a pipeline; `None` if there is none of the name.
    ///
    /// # Errors
    /// `Pipeline` if an object cannot be read, or `Storage`.
    pub(crate) fn outline(&self, name: &str) -> Result<Option<Outline>, ManagerError> {
        let Some(record) = self.record(name)? else { return Ok(None) };
        Ok(Some(Outline::of(&record.spec, &self.shared.objects)?))
    }

    /// The declaration of a pipeline, whose objects are written into a folder, each named by its checksum.
    ///
    /// # Errors
    /// `UnknownPipeline`, `UnknownObject` if the file of an object is not there or damaged, `Io`, or `Storage`.
    pub(crate) fn export(&self, name: &str, folder: &Path) -> Result<PipelineSpec, ManagerError> {
        let spec = self.known(name)?.spec;
        for id in spec.objects() {
            let path = folder.join(id.hex());
            fs::write(&path, self.object_bytes(id)?).map_err(ManagerError::io(path))?;
        }
        Ok(spec)
    }

    /// Deletes a pipeline, and the objects that no other one names. The caller guarantees that no model has a part of it.
    ///
    /// # Errors
    /// `UnknownPipeline`, or `Storage`, with `NotOwner` unless this node leads.
    pub(crate) fn delete(&self, name: &str) -> Result<(), ManagerError> {
        let _changing = self.changing.lock();
        self.leadership.term()?;
        self.known(name)?;
        let mut batch = RegistryBatch::new();
        batch.delete(key(name)?);
        self.storage.registry().commit(&batch)?;
        self.plans.lock().remove(name);
        self.remove_unused();
        Ok(())
    }

    /// Writes the files of objects that are in memory only: they were removed while a plan held them.
    fn keep_files(&self, spec: &PipelineSpec) -> Result<(), ManagerError> {
        for id in spec.objects().into_iter().filter(|id| self.shared.files.length(*id).is_none()) {
            if let Some(object) = self.shared.objects.get(id)? {
                self.shared.files.write(id, &object.content().encode())?;
            }
        }
        Ok(())
    }

    /// Removes the objects that no pipeline names. What cannot be removed now is removed another time, and keeps nothing
    /// else from being done.
    fn remove_unused(&self) {
        let used = self.objects_of_pipelines();
        if let Err(error) = used.and_then(|used| self.shared.files.remove_unused(|id| used.contains(&id))) {
            tracing::warn!(%error, "objects that no pipeline names are not removed");
        }
    }

    fn objects_of_pipelines(&self) -> Result<BTreeSet<ObjectId>, ManagerError> {
        Ok(self.records()?.iter().flat_map(|record| record.spec.objects()).collect())
    }

    /// All pipelines, by name.
    ///
    /// # Errors
    /// `Storage`.
    pub fn list(&self) -> Result<Vec<PipelineRecord>, ManagerError> {
        Ok(self.records()?)
    }

    /// A pipeline; with its stages if `explained`, and all of its parameters are there.
    ///
    /// # Errors
    /// `UnknownPipeline`, `Pipeline` if an object cannot be read, or `Storage`.
    pub fn describe(&self, name: &str, explained: Explained) -> Result<DescribedPipeline, ManagerError> {
        let record = self.known(name)?;
        let outline = Outline::of(&record.spec, &self.shared.objects)?;
        let explanation = match explained {
            Explained::Yes if outline.unfitted.is_empty() => Some(self.plan(&record)?.explain()),
            _ => None,
        };
        Ok(DescribedPipeline { record, outline, explanation })
    }

    /// Runs a pipeline on some inputs; one row for each.
    ///
    /// # Errors
    /// `UnknownPipeline`, `Pipeline` if it is not fitted, an object cannot be read or there would be too many outputs,
    /// `RunningPipeline` if another large request runs, or `Storage`.
    pub fn run(&self, name: &str, inputs: Vec<PipelineInput>) -> Result<Vec<Vec<f32>>, ManagerError> {
        let plan = self.plan(&self.known(name)?)?;
        let dim = plan.dim();
        let numbers = inputs.len().saturating_mul(dim);
        if numbers > NUMBERS_MAX {
            return Err(PipelineError::BatchSize { received: numbers, max: NUMBERS_MAX }.into());
        }
        if inputs.len() > RECORDS_INLINE {
            // A client that has gone away leaves its request running; it must not take the threads of others.
            let _running = self.running.try_lock().ok_or(ManagerError::RunningPipeline)?;
            let record =
                |PipelineInput { item, context }| OwnedRecord { item: Arc::new(item), context: Arc::new(context) };
            let outputs = self.engine.submit(&plan, inputs.into_iter().map(record).collect())?.wait()?;
            return Ok(outputs.chunks(dim.max(1)).map(<[f32]>::to_vec).collect());
        }
        let mut scratch = Scratch::default();
        let run = |PipelineInput { item, context }: &PipelineInput| {
            let mut row = vec![0.0; dim];
            plan.run_keeping(Record { item, context }, &mut scratch, Some(&self.shared_results), &mut row)?;
            Ok(row)
        };
        inputs.iter().map(run).collect()
    }

    /// Gets the objects of declared pipelines that are not here from other nodes, and removes those that none names. Blocks
    /// the thread.
    ///
    /// # Errors
    /// `Storage`, `Io`, or `Pipeline` if a node has sent something else.
    pub(crate) fn fetch_objects(&self) -> Result<(), ManagerError> {
        for id in self.objects_of_pipelines()? {
            if self.shared.files.length(id).is_none() {
                load(&self.shared.files, self.shared.peers.as_ref(), id)?;
            }
        }
        let _changing = self.changing.lock();
        self.remove_unused();
        Ok(())
    }

    /// The plan of a pipeline, compiled when it is first needed.
    fn plan(&self, record: &PipelineRecord) -> Result<Arc<Plan>, ManagerError> {
        let name = &record.spec.name;
        if let Some((compiled, plan)) = self.plans.lock().get(name)
            && compiled == record
        {
            return Ok(Arc::clone(plan));
        }
        // Not under the lock: objects may come from another node.
        let plan = Arc::new(Plan::compile(&record.spec, &self.shared.objects, &self.shared.stages)?);
        let mut plans = self.plans.lock();
        // It may have been deleted meanwhile, or declared again.
        if self.record(name)?.as_ref() == Some(record) {
            plans.insert(name.clone(), (record.clone(), Arc::clone(&plan)));
        }
        Ok(plan)
    }

    fn record(&self, name: &str) -> Result<Option<PipelineRecord>, StorageError> {
        self.storage.registry().get(&key(name)?)
    }

    fn known(&self, name: &str) -> Result<PipelineRecord, ManagerError> {
        self.record(name)?.ok_or_else(|| ManagerError::UnknownPipeline { pipeline: name.to_owned() })
    }

    fn records(&self) -> Result<Vec<PipelineRecord>, StorageError> {
        let records = self.storage.registry().list::<PipelineRecord>(&RegistryKey::new([KIND])?)?;
        let mut records: Vec<PipelineRecord> =
            records.into_iter().map(|(_, record)| record).collect::<Result<_, _>>()?;
        // Keys are ordered by the lengths of names first.
        records.sort_by(|left, right| left.spec.name.cmp(&right.spec.name));
        Ok(records)
    }
}

/// Gets every object that the pipelines of the store name, and that is not in `objects/` of `folder`, from `source`.
/// Blocks the thread. Returns the ids of those that are not to be had.
///
/// # Errors
/// `Io` if one is not to be had from a source, or `Storage`.
pub(crate) fn complete_objects(
    storage: &Storage,
    folder: &Path,
    source: Option<&dyn VersionSource>,
) -> Result<Vec<String>, ManagerError> {
    let files = ObjectFiles::open(folder)?;
    let records = storage.registry().list::<PipelineRecord>(&RegistryKey::new([KIND])?)?;
    let mut ids = BTreeSet::new();
    for (_, record) in records {
        // One that cannot be read is in the copy as it is.
        ids.extend(record.iter().flat_map(|record| record.spec.objects()));
    }
    let mut missing = Vec::new();
    for id in ids.into_iter().filter(|id| files.length(*id).is_none()) {
        let Some(source) = source else {
            missing.push(format!("object {id}"));
            continue;
        };
        let bytes = source.object(id, OBJECT_BYTES_MAX).map_err(ManagerError::io(id.to_string()))?;
        files.write(id, &bytes)?;
    }
    Ok(missing)
}

/// Checks the name of a pipeline, which is part of paths.
fn check_name(name: &str) -> Result<(), ManagerError> {
    ModelName::new(name).map(drop).map_err(|_| {
        let problem = format!("its name has up to 64 ASCII letters, digits, - and _, got {name:?}");
        PipelineError::Declaration { problem }.into()
    })
}

/// The bytes of an object: from the disk, or else from another node, and then on the disk too.
fn load(files: &ObjectFiles, peers: Option<&Peers>, id: ObjectId) -> Result<Option<Vec<u8>>, ManagerError> {
    let here = files.read(id).map_err(ManagerError::io(id.to_string()))?;
    let is_damaged = here.as_ref().is_some_and(|bytes| ObjectId::of(bytes) != id);
    if here.is_some() && !is_damaged {
        return Ok(here);
    }
    match peers.map(|peers| peers.source.object(id, OBJECT_BYTES_MAX)) {
        Some(Ok(bytes)) => {
            files.write(id, &bytes)?;
            Ok(Some(bytes))
        }
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ManagerError::io(id.to_string())(error))
        }
        _ if is_damaged => {
            let problem = format!("its file is damaged; send it again by PUT /v1/objects/{id}");
            Err(PipelineError::Load { id, problem }.into())
        }
        _ => Ok(None),
    }
}
