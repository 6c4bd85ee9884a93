//! Computed features of items and requests: declared graphs of operators, validated, optimised, shared and run, after
//! PRETZEL (Lee et al., OSDI 2018).
//!
//! A pipeline maps the attributes of an item and the context of a request to a vector. This crate does no I/O and reads no
//! clock, and only the batch engine has threads. It does not know users, models or versions: callers decide which outputs
//! become features, and keep what depends on an item with its version.
//!
//! | module | has |
//! |---|---|
//! | [`spec`] | declarations as they are written in JSON |
//! | [`objects`] | learnt parameters, named by their checksums |
//! | [`graph`] | declarations that are checked: names, types, objects |
//! | [`operators`] | the computation of one operator; [`attributes`], [`text`], [`trees`] and [`networks`] have the larger ones |
//! | [`optimizer`] | rewriting of graphs, one rule a file |
//! | [`stages`] | physical stages, their catalog, and results that plans share |
//! | [`plan`] | compilation, the request-response engine, explanations |
//! | [`engine`] | the batch engine |
//! | [`fit`] | learning of parameters |
//! | [`mod@reference`] | an interpreter, operator at a time: the oracle of tests and the baseline of benches |
//! | [`import`] | models of other programs |

pub mod attributes;
pub mod engine;
pub mod error;
pub mod fit;
pub mod graph;
pub mod ids;
pub mod import;
pub mod keys;
pub mod limits;
pub mod networks;
pub mod objects;
mod onnx;
pub mod operators;
pub mod optimizer;
pub mod plan;
pub mod reference;
pub mod spec;
pub mod stages;
pub mod text;
pub mod trees;
pub mod values;

pub use attributes::AttributeEncoder;
pub use engine::{Engine, EngineSettings, OwnedRecord};
pub use error::PipelineError;
pub use graph::{Depends, Fingerprint, Graph, Outline};
pub use ids::ObjectId;
pub use objects::{Object, Objects};
pub use operators::Record;
pub use plan::{ContextValues, ItemValues, Level, Plan, Scratch};
pub use spec::PipelineSpec;
pub use stages::{Catalog, SubPlans};
