//! Many pipelines over the same objects, in memory and as a folder.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use celeris_cli::Failure;
use celeris_model::Context;
use celeris_pipelines::{Catalog, Graph, Level, Object, ObjectId, Objects, PipelineSpec, Plan, Record};
use serde_json::{Map, Value};

/// The attributes of an item.
pub type Item = Map<String, Value>;

const OBJECTS: &str = "objects";
const PIPELINES: &str = "pipelines.json";
const ITEMS: &str = "items.json";

/// Pipelines of one output each, with the items that they are run on.
pub struct Fleet {
    pub specs: Vec<PipelineSpec>,
    pub objects: Objects,
    /// Objects live as long as they are held.
    pub held: Vec<Arc<Object>>,
    pub items: Vec<Item>,
}

/// Whether pipelines share what is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Sharing {
    /// Objects and stages are in memory once, and plans are optimised.
    Shared,
    /// Every pipeline has its own objects and stages: one for each operator.
    Apart,
}

impl Fleet {
    /// The checked declarations.
    ///
    /// # Errors
    /// If one is not valid.
    pub fn graphs(&self) -> Result<Vec<Graph>, Failure> {
        self.specs.iter().map(|spec| Ok(Graph::declared(spec, &self.objects)?)).collect()
    }

    /// The plans of all pipelines. They share objects and, within this call, stages.
    ///
    /// # Errors
    /// If a declaration is not valid.
    pub fn plans(&self, level: Level) -> Result<Vec<Plan>, Failure> {
        let catalog = Catalog::default();
        Ok(self.graphs()?.into_iter().map(|graph| Plan::of_graph(graph, level, &catalog)).collect())
    }

    /// The item of a run. The first run of pipeline `n` is on item `n`.
    pub fn item(&self, pipeline: usize, run: usize) -> &Item {
        &self.items[self.position(pipeline, run)]
    }

    /// The position of the item of a run.
    pub fn position(&self, pipeline: usize, run: usize) -> usize {
        (pipeline + run) % self.items.len()
    }

    /// Writes declarations, objects and items into a folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        let objects = folder.join(OBJECTS);
        fs::create_dir_all(&objects).map_err(Failure::other)?;
        for object in &self.held {
            fs::write(objects.join(object.id().to_string()), object.content().encode()).map_err(Failure::other)?;
        }
        let write = |file: &str, json: Result<Vec<u8>, serde_json::Error>| {
            fs::write(folder.join(file), json.map_err(Failure::other)?).map_err(Failure::other)
        };
        write(PIPELINES, serde_json::to_vec(&self.specs))?;
        write(ITEMS, serde_json::to_vec(&self.items))
    }
}

/// The items of a folder.
///
/// # Errors
/// If they cannot be read.
pub fn items(folder: &Path) -> Result<Vec<Item>, Failure> {
    let json = fs::read(folder.join(ITEMS)).map_err(Failure::other)?;
    serde_json::from_slice(&json).map_err(Failure::other)
}

/// Loads the pipelines of a folder: reads declarations and objects, checks and compiles them.
///
/// # Errors
/// If a file is missing or damaged.
pub fn load(folder: &Path, sharing: Sharing) -> Result<Vec<Plan>, Failure> {
    let json = fs::read(folder.join(PIPELINES)).map_err(Failure::other)?;
    let specs: Vec<Value> = serde_json::from_slice(&json).map_err(Failure::other)?;
    let store = || {
        let folder = folder.join(OBJECTS);
        let read =
            move |id: ObjectId| fs::read(folder.join(id.to_string())).map(Some).map_err(|error| error.to_string());
        (Objects::loading(read), Catalog::default())
    };
    let mut stores = store();
    let load = |spec: &Value| -> Result<Plan, Failure> {
        if sharing == Sharing::Apart {
            // Plans hold the objects of the store before.
            stores = store();
        }
        let (objects, catalog) = &stores;
        let graph = Graph::declared(&PipelineSpec::parse(spec)?, objects)?;
        let level = match sharing {
            Sharing::Shared => Level::Full,
            Sharing::Apart => Level::None,
        };
        Ok(Plan::of_graph(graph, level, catalog))
    };
    specs.iter().map(load).collect()
}

/// A record of an item without a context.
pub fn record<'a>(item: &'a Item, context: &'a Context) -> Record<'a> {
    Record { item, context }
}
