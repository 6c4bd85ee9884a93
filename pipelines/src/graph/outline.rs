//! What is known about a declaration before it is fitted.

use serde::Serialize;

use super::declared::CheckedGraph;
use super::{Depends, Fingerprint};
use crate::error::PipelineError;
use crate::objects::Objects;
use crate::spec::{Operator, PipelineSpec, Side};

/// Facts about a valid declaration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outline {
    pub name: String,
    pub fingerprint: Fingerprint,
    /// Number of columns of the output; `None` if it is known after the fit.
    pub dim: Option<u32>,
    /// Learnt parameters that are not there yet, as `NODE.FIELD`.
    pub unfitted: Vec<String>,
    /// Fields of the item that are read.
    pub item_fields: Vec<String>,
    /// Fields of the context that are read.
    pub context_fields: Vec<String>,
    pub depends_on: Depends,
}

impl Outline {
    /// Checks a declaration, whether or not it is fitted.
    ///
    /// # Errors
    /// As [`Graph::declared`](super::Graph::declared), except for parameters that a fit learns.
    pub fn of(spec: &PipelineSpec, objects: &Objects) -> Result<Self, PipelineError> {
        let checked = CheckedGraph::new(spec, objects)?;
        let fields = |side: Side| {
            let names = checked.nodes.iter().filter_map(|node| match &node.operator {
                Operator::Field(field) if field.of == side => Some(field.name.clone()),
                _ => None,
            });
            let mut names: Vec<String> = names.collect();
            names.sort();
            names.dedup();
            names
        };
        let missing = checked.nodes.iter().filter(|node| node.resolved.is_unfitted);
        let field = |operator: &Operator| operator.unfitted().unwrap_or("dictionary");
        Ok(Self {
            name: spec.name.clone(),
            fingerprint: checked.canonical_fingerprint(),
            dim: checked.output().resolved.schema.columns(),
            unfitted: missing.map(|node| format!("{}.{}", node.name, field(&node.operator))).collect(),
            item_fields: fields(Side::Item),
            context_fields: fields(Side::Context),
            depends_on: checked.output().depends,
        })
    }
}
