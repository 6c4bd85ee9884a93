//! Plans: graphs that are optimised, cut into stages, and run.
//!
//! A plan is run as a whole, or in three parts that give the same bits: what depends on the item, once a version;
//! what depends on the context, once a request; the rest for each candidate.

mod batch;
mod explain;
mod kept;
mod run;
mod scratch;

use std::collections::HashMap;
use std::sync::Arc;

use celeris_model::Context;
use serde_json::{Map, Value};

use crate::error::PipelineError;
use crate::graph::{Depends, Fingerprint, Graph, NodeId, Schema};
use crate::objects::{Object, Objects};
use crate::operators::{FieldOp, Op, Record, has_field};
use crate::optimizer::{fold_constants, optimize};
use crate::spec::PipelineSpec;
use crate::stages::{Built, Catalog, Fusion, Stage, build};
use crate::values::Slot;

pub(crate) use batch::Chunk;
pub use explain::{Explanation, ObjectUse, StageExplanation};
pub use kept::{ContextValues, ItemValues};
pub use scratch::Scratch;

/// How much the optimizer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// All rules, and operators grouped into stages.
    #[default]
    Full,
    /// A stage for each declared operator: the baseline of measurements.
    None,
}

/// A value of a plan: the area it lies in and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Values of equal dependence lie in one area.
    area: Depends,
    slot: u32,
    /// Its position among the values of its area that other areas read.
    export: u32,
}

/// A shared stage at its place in a plan.
#[derive(Debug)]
struct PlacedStage {
    stage: Arc<Stage>,
    inputs: Vec<Place>,
    area: Depends,
    /// The slot of its first value; the others follow.
    first: u32,
    /// The names of the nodes that it computes.
    nodes: Vec<String>,
}

/// An executable pipeline. It has no state of its own: threads share it and bring their own [`Scratch`].
#[derive(Debug)]
pub struct Plan {
    name: String,
    /// Of the declaration and the level.
    fingerprint: Fingerprint,
    stages: Vec<PlacedStage>,
    constants: Vec<Slot>,
    /// Number of slots of each area.
    slots: [usize; AREAS],
    /// The slots of item and context that the other areas, or the output, read.
    exports: [Vec<u32>; AREAS],
    output: Place,
    schema: Schema,
    depends: Depends,
    rewrites: Vec<String>,
    objects: Vec<Arc<Object>>,
    fields: [Vec<String>; 2],
    reads: Vec<FieldOp>,
}

/// Number of areas: one for each dependence.
const AREAS: usize = 4;

impl Plan {
    /// Checks, optimises and compiles a declaration.
    ///
    /// # Errors
    /// As [`Graph::declared`].
    pub fn compile(spec: &PipelineSpec, objects: &Objects, catalog: &Catalog) -> Result<Self, PipelineError> {
        Ok(Self::of_graph(Graph::declared(spec, objects)?, Level::Full, catalog))
    }

    /// Compiles a checked graph.
    #[must_use]
    pub fn of_graph(graph: Graph, level: Level, catalog: &Catalog) -> Self {
        let declared = graph.fingerprint;
        let (graph, fusion, rewrites) = match level {
            Level::Full => {
                let optimized = optimize(graph);
                (optimized.graph, Fusion::Stages, optimized.rewrites)
            }
            Level::None => (fold_constants(graph), Fusion::None, Vec::new()),
        };
        graph.nodes.iter().for_each(|node| node.op.prepare());
        let Built { placed, merges } = build(&graph, fusion);
        let mut places = Places::default();
        for placed in &placed {
            placed.nodes.iter().for_each(|node| places.add(*node, placed.depends));
        }
        let mut constants = Vec::new();
        for (id, node) in graph.nodes.iter().enumerate() {
            if let Op::Constant(value) = &node.op {
                places.add_constant(id, constants.len());
                constants.push(value.as_ref().clone());
            }
        }
        for placed in &placed {
            placed.inputs.iter().for_each(|input| places.read(*input, placed.depends));
        }
        // The caller of the last part reads the output.
        places.read(graph.output, Depends::ItemAndContext);
        let compile = |placed: crate::stages::Placed| PlacedStage {
            inputs: placed.inputs.iter().map(|input| places.of[input]).collect(),
            area: placed.depends,
            first: places.of[&placed.nodes[0]].slot,
            nodes: placed.nodes.iter().map(|node| graph.nodes[*node].name.clone()).collect(),
            stage: catalog.share(placed.stage),
        };
        let stages = placed.into_iter().map(compile).collect();
        let output = &graph.nodes[graph.output];
        Self {
            name: graph.name.clone(),
            fingerprint: Fingerprint::of(&[&declared.0, &[level as u8]]),
            stages,
            constants,
            slots: places.slots,
            output: places.of[&graph.output],
            exports: places.exports,
            schema: output.schema,
            depends: output.depends,
            rewrites: [rewrites, merges].concat(),
            reads: graph
                .nodes
                .iter()
                .filter_map(|node| match &node.op {
                    Op::Field(field) => Some(field.clone()),
                    _ => None,
                })
                .collect(),
            fields: graph.fields().map(|names| names.into_iter().collect()),
            objects: graph.objects,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Equal for plans of declarations that differ in names only.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Number of columns of the output.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.schema.columns().unwrap_or(0) as usize
    }

    /// What the output depends on.
    #[must_use]
    pub fn depends_on(&self) -> Depends {
        self.depends
    }

    /// Whether an item with these attributes has something that it reads, or it reads nothing of items.
    #[must_use]
    pub fn has_item(&self, attributes: &Map<String, Value>) -> bool {
        let has = |field: &String| attributes.get(field).is_some_and(|value| !value.is_null());
        !self.depends.on_item() || self.fields[0].iter().any(has)
    }

    /// Whether this context has something that it reads, or it reads nothing of contexts.
    #[must_use]
    pub fn has_context(&self, context: &Context) -> bool {
        !self.depends.on_context() || self.fields[1].iter().any(|field| context.get(field).is_some())
    }

    /// The fields of the context that it reads.
    #[must_use]
    pub fn context_fields(&self) -> &[String] {
        &self.fields[1]
    }

    /// The fields that it reads and that none of the records has in a form that it can read, as `context.hour`.
    #[must_use]
    pub fn unread_fields<'a>(&self, records: impl Iterator<Item = Record<'a>>) -> Vec<String> {
        let mut unread: Vec<&FieldOp> = self.reads.iter().collect();
        for record in records {
            unread.retain(|field| !has_field(field, record));
            if unread.is_empty() {
                break;
            }
        }
        let mut names: Vec<String> = unread.into_iter().map(FieldOp::path).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The number of stages.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.stages.len()
    }
}

/// Gives slots to nodes.
#[derive(Default)]
struct Places {
    of: HashMap<NodeId, Place>,
    slots: [usize; AREAS],
    exports: [Vec<u32>; AREAS],
}

impl Places {
    fn add(&mut self, node: NodeId, area: Depends) {
        let slots = &mut self.slots[area as usize];
        self.of.insert(node, Place { area, slot: *slots as u32, export: u32::MAX });
        *slots += 1;
    }

    fn add_constant(&mut self, node: NodeId, at: usize) {
        self.of.insert(node, Place { area: Depends::Nothing, slot: at as u32, export: u32::MAX });
    }

    /// A stage of this area reads the node.
    fn read(&mut self, node: NodeId, area: Depends) {
        let Some(place) = self.of.get_mut(&node) else { return };
        if place.area != area && place.area != Depends::Nothing && place.export == u32::MAX {
            let exports = &mut self.exports[place.area as usize];
            place.export = exports.len() as u32;
            exports.push(place.slot);
        }
    }
}
