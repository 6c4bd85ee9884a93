//! The objects in memory, each decoded once for all pipelines.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Serialize;

use super::{Content, Kind, Object, ObjectId};
use crate::error::PipelineError;

/// Loads the bytes of an object that is not in memory, from a disk for example. `Ok(None)` if there is no such object.
pub type Loader = dyn Fn(ObjectId) -> Result<Option<Vec<u8>>, String> + Send + Sync;

/// Objects by their checksums. An object stays in memory while a plan holds it; [`Objects::insert`] returns the first
/// handle. One that no plan holds is decoded again from what the loader returns.
pub struct Objects {
    by_id: Mutex<HashMap<ObjectId, Weak<Object>>>,
    load: Box<Loader>,
}

/// What is known about an object in memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectFacts {
    pub sha256: ObjectId,
    pub kind: Kind,
    /// Length of its encoding.
    pub bytes: usize,
    /// Number of handles that hold it, one for each use in a plan.
    pub uses: usize,
}

impl Objects {
    /// Objects that live as long as their handles.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::loading(|_| Ok(None))
    }

    /// Objects whose bytes are kept elsewhere too. The store holds no lock while it calls `load`.
    pub fn loading(load: impl Fn(ObjectId) -> Result<Option<Vec<u8>>, String> + Send + Sync + 'static) -> Self {
        Self { by_id: Mutex::default(), load: Box::new(load) }
    }

    /// Decodes these bytes, unless an equal object is in memory.
    ///
    /// # Errors
    /// [`PipelineError::Object`] if they are not those of an object.
    pub fn insert(&self, bytes: &[u8]) -> Result<Arc<Object>, PipelineError> {
        let id = ObjectId::of(bytes);
        match self.in_use(id) {
            Some(object) => Ok(object),
            None => Ok(self.keep(Object::decode_named(id, bytes)?)),
        }
    }

    /// Encodes and inserts an object.
    ///
    /// # Errors
    /// [`PipelineError::Object`] if it is larger than an object may be.
    pub fn add(&self, content: &Content) -> Result<Arc<Object>, PipelineError> {
        self.insert(&content.encode())
    }

    /// The object of this name, from memory or from the loader; `None` if neither has it.
    ///
    /// # Errors
    /// [`PipelineError::Load`] from the loader, [`PipelineError::Checksum`] and [`PipelineError::Object`] for other bytes.
    pub fn get(&self, id: ObjectId) -> Result<Option<Arc<Object>>, PipelineError> {
        if let Some(object) = self.in_use(id) {
            return Ok(Some(object));
        }
        let Some(bytes) = (self.load)(id).map_err(|problem| PipelineError::Load { id, problem })? else {
            return Ok(None);
        };
        let received = ObjectId::of(&bytes);
        if received != id {
            return Err(PipelineError::Checksum { expected: id, received });
        }
        Ok(Some(self.keep(Object::decode_named(id, &bytes)?)))
    }

    /// The objects that plans hold, ascending by name.
    #[must_use]
    pub fn facts(&self) -> Vec<ObjectFacts> {
        let by_id = self.by_id.lock();
        let alive = by_id.values().filter_map(Weak::upgrade);
        let facts = |object: Arc<Object>| ObjectFacts {
            sha256: object.id,
            kind: object.content.kind(),
            bytes: object.bytes,
            // Not the handle that this function has just made.
            uses: Arc::strong_count(&object) - 1,
        };
        let mut all: Vec<ObjectFacts> = alive.map(facts).collect();
        all.sort_by_key(|facts| facts.sha256);
        all
    }

    /// Bytes of the encodings of the objects that plans hold.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.facts().iter().map(|facts| facts.bytes).sum()
    }

    fn in_use(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.by_id.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Keeps this object, unless another thread was faster.
    fn keep(&self, object: Object) -> Arc<Object> {
        let mut by_id = self.by_id.lock();
        if let Some(first) = by_id.get(&object.id).and_then(Weak::upgrade) {
            return first;
        }
        // The names of objects that were dropped go whenever the table would grow.
        if by_id.len() == by_id.capacity() {
            by_id.retain(|_, object| object.strong_count() > 0);
        }
        let object = Arc::new(object);
        by_id.insert(object.id, Arc::downgrade(&object));
        object
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_list().entries(self.facts()).finish()
    }
}
