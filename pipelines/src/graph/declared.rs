//! From a declaration to a graph: names, shorthands, order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::resolve::{Resolved, Resolver, implied_type};
use super::{Depends, Fingerprint, Graph, Node, NodeId, Schema};
use crate::error::PipelineError;
use crate::limits::{DEPTH_MAX, NAME_BYTES_MAX, NODES_MAX};
use crate::objects::{Object, Objects};
use crate::operators::Op;
use crate::spec::{Field, Operator, PipelineSpec, Side};

/// A node whose names are resolved; its operator may lack what a fit has yet to learn.
#[derive(Debug)]
pub(crate) struct Checked {
    pub name: String,
    pub operator: Operator,
    pub inputs: Vec<NodeId>,
    pub resolved: Resolved,
    pub depends: Depends,
    pub fingerprint: Fingerprint,
    /// Of this node and all that it depends on.
    pub subtree: Fingerprint,
}

/// All nodes of a declaration that was found to be valid, in the order of their inputs.
#[derive(Debug)]
pub(crate) struct CheckedGraph {
    pub nodes: Vec<Checked>,
    pub objects: Vec<Arc<Object>>,
}

impl Graph {
    /// Checks a declaration whose parameters are all there, and resolves it.
    ///
    /// # Errors
    /// Everything that can be wrong with a declaration, with the node and the field: see [`PipelineError`].
    pub fn declared(spec: &PipelineSpec, objects: &Objects) -> Result<Self, PipelineError> {
        let checked = CheckedGraph::new(spec, objects)?;
        let unfitted =
            |node: &Checked, field: &str| PipelineError::NotFitted { node: node.name.clone(), field: field.to_owned() };
        let fingerprint = checked.canonical_fingerprint();
        let mut nodes = Vec::with_capacity(checked.nodes.len());
        for node in checked.nodes {
            let op = match &node.resolved.op {
                Ok(op) => op.clone(),
                Err(field) => return Err(unfitted(&node, field)),
            };
            let (name, inputs, schema) = (node.name, node.inputs, node.resolved.schema);
            nodes.push(Node { name, op, inputs, schema, depends: node.depends, fingerprint: node.fingerprint });
        }
        let output = nodes.len() - 1;
        Ok(Self { name: spec.name.clone(), nodes, output, fingerprint, objects: checked.objects })
    }
}

impl CheckedGraph {
    pub(crate) fn new(spec: &PipelineSpec, objects: &Objects) -> Result<Self, PipelineError> {
        spec.check_names()?;
        let mut builder = Builder {
            spec,
            resolver: Resolver::new(objects),
            nodes: Vec::new(),
            states: BTreeMap::new(),
            implied: HashMap::new(),
        };
        if !spec.nodes.contains_key(&spec.output) {
            let problem = format!("its output {:?} is none of its nodes", spec.output);
            return Err(PipelineError::Declaration { problem });
        }
        builder.visit(&spec.output, &mut Vec::new())?;
        let unused: Vec<String> =
            spec.nodes.keys().filter(|name| !builder.states.contains_key(name.as_str())).cloned().collect();
        if !unused.is_empty() {
            return Err(PipelineError::Unused { nodes: unused });
        }
        let Builder { resolver, nodes, .. } = builder;
        let checked = Self { nodes, objects: resolver.into_objects() };
        let output = checked.output();
        match output.resolved.schema {
            Schema::Number | Schema::Dense(_) | Schema::Sparse(_) => Ok(checked),
            other => {
                let problem = format!("its output {} is {other}, which is no vector of numbers", output.name);
                Err(PipelineError::Declaration { problem })
            }
        }
    }

    /// The node of the output: it follows all others.
    pub(super) fn output(&self) -> &Checked {
        self.nodes.last().expect("a declaration has an output")
    }

    /// The same for declarations that differ in names only.
    pub(super) fn canonical_fingerprint(&self) -> Fingerprint {
        self.output().subtree
    }
}

/// Where a node is found.
#[derive(Clone, Copy)]
enum State {
    /// On the path to the node that is looked at.
    UnderWay,
    Done(NodeId),
}

struct Builder<'a> {
    spec: &'a PipelineSpec,
    resolver: Resolver<'a>,
    nodes: Vec<Checked>,
    states: BTreeMap<&'a str, State>,
    /// Fields that shorthands imply.
    implied: HashMap<(String, String), NodeId>,
}

impl<'a> Builder<'a> {
    /// Adds a node after its inputs. The depth is bounded by [`DEPTH_MAX`], so recursion is too.
    fn visit(&mut self, name: &'a str, path: &mut Vec<&'a str>) -> Result<NodeId, PipelineError> {
        match self.states.get(name) {
            Some(State::Done(id)) => return Ok(*id),
            Some(State::UnderWay) => {
                let begin = path.iter().position(|node| *node == name).unwrap_or(0);
                let nodes = path[begin..].iter().chain([&name]).map(|node| (*node).to_owned()).collect();
                return Err(PipelineError::Cycle { nodes });
            }
            None => {}
        }
        if path.len() >= DEPTH_MAX {
            let problem = format!("lies more than {DEPTH_MAX} nodes below the output");
            return Err(PipelineError::Node { node: name.to_owned(), problem });
        }
        self.states.insert(name, State::UnderWay);
        path.push(name);
        let operator = &self.spec.nodes[name];
        let mut inputs = Vec::with_capacity(operator.inputs().len());
        for input in operator.inputs() {
            inputs.push(match self.spec.nodes.get_key_value(input) {
                Some((input, _)) => self.visit(input, path)?,
                None => self.field(name, operator, input)?,
            });
        }
        path.pop();
        let id = self.add(name.to_owned(), operator.clone(), inputs)?;
        self.states.insert(name, State::Done(id));
        Ok(id)
    }

    /// The node of `item.NAME` or `context.NAME`, of the type that the operator takes.
    fn field(&mut self, node: &str, operator: &Operator, input: &str) -> Result<NodeId, PipelineError> {
        let unknown = || PipelineError::UnknownInput {
            node: node.to_owned(),
            field: operator.input_field().to_owned(),
            input: input.to_owned(),
        };
        let (side, field) = input.split_once('.').ok_or_else(unknown)?;
        let side = [Side::Item, Side::Context].into_iter().find(|of| of.name() == side).ok_or_else(unknown)?;
        if field.is_empty() || field.len() > NAME_BYTES_MAX {
            return Err(unknown());
        }
        let kind = implied_type(operator).ok_or_else(|| {
            let problem = format!("the type of {input} does not follow from it; declare a node for the field");
            PipelineError::parameter(node, operator.input_field(), problem)
        })?;
        let key = (input.to_owned(), format!("{kind:?}"));
        if let Some(id) = self.implied.get(&key) {
            return Ok(*id);
        }
        let operator = Operator::Field(Field { of: side, name: field.to_owned(), kind, dim: None });
        let id = self.add(input.to_owned(), operator, Vec::new())?;
        self.implied.insert(key, id);
        Ok(id)
    }

    fn add(&mut self, name: String, operator: Operator, inputs: Vec<NodeId>) -> Result<NodeId, PipelineError> {
        if self.nodes.len() >= NODES_MAX {
            let problem = format!("it has more than {NODES_MAX} nodes, with the fields that they imply");
            return Err(PipelineError::Declaration { problem });
        }
        let types: Vec<(&str, Schema)> = inputs.iter().map(|id| &self.nodes[*id]).map(Checked::typed).collect();
        let resolved = self.resolver.resolve(&name, &operator, &types)?;
        let depends = match &operator {
            Operator::Field(Field { of: Side::Item, .. }) | Operator::Attributes(_) => Depends::Item,
            Operator::Field(Field { of: Side::Context, .. }) => Depends::Context,
            _ => inputs.iter().map(|id| self.nodes[*id].depends).fold(Depends::Nothing, Depends::and),
        };
        let fingerprint = Self::fingerprint_of(&operator, &types);
        let mut parts: Vec<&[u8]> = vec![&fingerprint.0];
        parts.extend(inputs.iter().map(|id| &self.nodes[*id].subtree.0[..]));
        let subtree = Fingerprint::of(&parts);
        self.nodes.push(Checked { name, operator, inputs, resolved, depends, fingerprint, subtree });
        Ok(self.nodes.len() - 1)
    }

    /// Of the operator with the types of its inputs, from which a concatenation takes its columns, and without their
    /// names. Fields are written in the order of their declaration in [`crate::spec`].
    fn fingerprint_of(operator: &Operator, types: &[(&str, Schema)]) -> Fingerprint {
        let nameless = operator.canonical().without_inputs();
        let json = serde_json::to_vec(&nameless).expect("operators are plain data with keys that are strings");
        let types: Vec<String> = types.iter().map(|(_, schema)| schema.to_string()).collect();
        let mut parts = vec![operator.name().as_bytes(), &json];
        parts.extend(types.iter().map(String::as_bytes));
        Fingerprint::of(&parts)
    }
}

impl Checked {
    fn typed(&self) -> (&str, Schema) {
        (&self.name, self.resolved.schema)
    }
}

impl Fingerprint {
    /// Of an operator that the optimizer makes.
    pub(crate) fn of_rewrite(op: &Op, parts: &[&[u8]]) -> Self {
        let mut all: Vec<&[u8]> = vec![b"rewritten", op.name().as_bytes()];
        all.extend_from_slice(parts);
        Self::of(&all)
    }
}
