//! From a graph to stages.
//!
//! N-grams of a text and what follows them, as far as nothing else reads it, are one stage for each field. Any other
//! node continues the stage of its only input, unless that is a pipeline breaker; a stage of one operator moves into the
//! only stage that reads it. No stage has nodes of different dependence, so that those of the item are run once a version
//! and those of the context once a request.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::text::Weighting;
use super::{Branch, FeaturizedText, Placed, Stage, Step, TextStage, Wire, Work};
use crate::graph::{Depends, Fingerprint, Graph, Node, NodeId};
use crate::operators::{FieldOp, Op};

/// Whether operators are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    Stages,
    /// A stage for each operator: the baseline of measurements.
    None,
}

/// A branch of a stage over a text with the nodes that it covers, in order.
struct Found {
    nodes: Vec<NodeId>,
    branch: Branch,
}

/// Stages in their order, and what was grouped, one sentence each.
#[derive(Debug)]
pub struct Built {
    pub placed: Vec<Placed>,
    pub merges: Vec<String>,
}

/// Groups the nodes of a graph. Stages follow the stages that they read.
#[must_use]
pub fn build(graph: &Graph, fusion: Fusion) -> Built {
    let consumers = graph.consumers();
    let (mut texts, mut merges) = (BTreeMap::new(), Vec::new());
    if fusion == Fusion::Stages {
        texts = branches(graph, &consumers);
    }
    for (field, found) in &texts {
        let names: Vec<&str> = found.iter().map(|found| graph.nodes[found.nodes[0]].name.as_str()).collect();
        merges.push(format!("{} is read in one pass for {}", graph.nodes[*field].name, names.join(", ")));
    }
    let mut grouping = Grouping::new(graph, &consumers, &texts);
    for (id, node) in graph.nodes.iter().enumerate() {
        if grouping.owner[id].is_none() && !matches!(node.op, Op::Constant(_)) {
            let group = if fusion == Fusion::Stages { grouping.continued(id) } else { None };
            grouping.assign(id, group);
        }
    }
    if fusion == Fusion::Stages {
        merges.extend(grouping.inline());
    }
    let groups = grouping.groups;
    let first_steps = texts.len();
    let mut placed: Vec<Placed> = texts.into_iter().map(|(field, found)| place_text(graph, field, found)).collect();
    let steps = groups.into_iter().skip(first_steps).filter(|group| !group.is_empty());
    placed.extend(steps.map(|group| place_steps(graph, group)));
    Built { placed: ordered(placed), merges }
}

/// The n-grams of each field that can be a stage, with what follows them.
fn branches(graph: &Graph, consumers: &[Vec<NodeId>]) -> BTreeMap<NodeId, Vec<Found>> {
    let mut found: BTreeMap<NodeId, Vec<Found>> = BTreeMap::new();
    for (id, node) in graph.nodes.iter().enumerate() {
        let Some((field, grams)) = featurized(graph, node) else { continue };
        let mut nodes = vec![id];
        let (mut weightings, mut part) = (Vec::new(), None);
        let mut last = id;
        while let [next] = consumers[last][..] {
            match &graph.nodes[next].op {
                Op::TfIdf(weighting) => weightings.push(Weighting::TfIdf(weighting.clone())),
                Op::Normalize(norm) => weightings.push(Weighting::Normalize(*norm)),
                Op::Part(linear) => part = Some(linear.clone()),
                _ => break,
            }
            nodes.push(next);
            last = next;
            if part.is_some() {
                break;
            }
        }
        let grams = Arc::new(grams);
        found.entry(field).or_default().push(Found { nodes, branch: Branch { grams, weightings, part } });
    }
    for branches in found.values_mut() {
        branches.sort_by_key(|found| match &found.branch.grams.1 {
            FeaturizedText::Words(rule, _) => *rule as u8,
            FeaturizedText::Chars(_) => u8::MAX,
        });
    }
    found
}

/// The field that n-grams are counted in, and how. Their fingerprint covers the splitting into words.
fn featurized(graph: &Graph, node: &Node) -> Option<(NodeId, (Fingerprint, FeaturizedText))> {
    let input = *node.inputs.first()?;
    let (field, fingerprint, grams) = match (&node.op, &graph.nodes[input].op) {
        (Op::WordNgrams(grams), Op::Tokenize(rule)) => {
            let parts: [&[u8]; 2] = [&node.fingerprint.0, &graph.nodes[input].fingerprint.0];
            let field = graph.nodes[input].inputs[0];
            (field, Fingerprint::of(&parts), FeaturizedText::Words(*rule, grams.clone()))
        }
        (Op::CharNgrams(grams), _) => (input, node.fingerprint, FeaturizedText::Chars(grams.clone())),
        _ => return None,
    };
    text_field(&graph.nodes[field].op).is_some().then_some((field, (fingerprint, grams)))
}

fn text_field(op: &Op) -> Option<&FieldOp> {
    match op {
        Op::Field(field) if field.kind == crate::spec::FieldType::Text => Some(field),
        _ => None,
    }
}

/// Groups of nodes: those of texts first, then those that become steps.
struct Grouping<'a> {
    graph: &'a Graph,
    consumers: &'a [Vec<NodeId>],
    /// The group of each node.
    owner: Vec<Option<usize>>,
    /// The nodes of the groups of steps; empty for those of texts.
    groups: Vec<Vec<NodeId>>,
    /// Number of groups of texts.
    texts: usize,
}

impl<'a> Grouping<'a> {
    fn new(graph: &'a Graph, consumers: &'a [Vec<NodeId>], texts: &BTreeMap<NodeId, Vec<Found>>) -> Self {
        let mut owner = vec![None; graph.nodes.len()];
        for (group, found) in texts.values().enumerate() {
            found.iter().flat_map(|found| &found.nodes).for_each(|node| owner[*node] = Some(group));
        }
        let mut grouping = Self { graph, consumers, owner, groups: vec![Vec::new(); texts.len()], texts: texts.len() };
        grouping.cover_sources();
        grouping
    }

    /// Gives words and fields that only stages of texts read to these stages, which read the record themselves.
    fn cover_sources(&mut self) {
        for id in (0..self.graph.nodes.len()).rev() {
            let node = &self.graph.nodes[id];
            if !matches!(node.op, Op::Tokenize(_)) && text_field(&node.op).is_none() {
                continue;
            }
            let group = |reader: &NodeId| {
                let covers =
                    matches!(self.graph.nodes[*reader].op, Op::Tokenize(_) | Op::WordNgrams(_) | Op::CharNgrams(_));
                self.owner[*reader].filter(|_| covers)
            };
            let mut readers: Vec<Option<usize>> = self.consumers[id].iter().map(group).collect();
            readers.dedup();
            if let [Some(group)] = readers[..] {
                self.owner[id] = Some(group);
            }
        }
    }

    /// The group of steps of the only input of a node, if the node can continue it.
    fn continued(&self, id: NodeId) -> Option<usize> {
        let node = &self.graph.nodes[id];
        let [input] = node.inputs[..] else { return None };
        let before = &self.graph.nodes[input];
        let fits = before.depends == node.depends && self.consumers[input].len() == 1 && !before.op.is_breaker();
        self.owner[input].filter(|group| fits && *group >= self.texts)
    }

    /// Adds a node to a group, or to a new one.
    fn assign(&mut self, id: NodeId, group: Option<usize>) {
        let group = group.unwrap_or_else(|| {
            self.groups.push(Vec::new());
            self.groups.len() - 1
        });
        self.groups[group].push(id);
        self.owner[id] = Some(group);
    }

    /// Moves each stage of one operator into the only stage that reads it.
    fn inline(&mut self) -> Vec<String> {
        let mut merges = Vec::new();
        for group in self.texts..self.groups.len() {
            let [only] = self.groups[group][..] else { continue };
            let mut readers: Vec<Option<usize>> =
                self.consumers[only].iter().map(|reader| self.owner[*reader]).collect();
            readers.sort_unstable();
            readers.dedup();
            let [Some(reader)] = readers[..] else { continue };
            let (node, nodes) = (&self.graph.nodes[only], &self.graph.nodes);
            let first = self.groups[reader].first().map(|first| &nodes[*first]);
            let Some(first) = first.filter(|first| reader != group && first.depends == node.depends) else { continue };
            merges.push(format!("{} is computed in the stage of {}", node.name, first.name));
            self.groups[group].clear();
            self.groups[reader].push(only);
            // Nodes follow their inputs.
            self.groups[reader].sort_unstable();
            self.owner[only] = Some(reader);
        }
        merges
    }
}

fn place_text(graph: &Graph, field: NodeId, found: Vec<Found>) -> Placed {
    let source = &graph.nodes[field];
    let Op::Field(op) = &source.op else { unreachable!("n-grams are found below fields only") };
    let mut ops = vec!["field"];
    let mut fingerprints = vec![source.fingerprint];
    let (mut nodes, mut branches) = (Vec::new(), Vec::new());
    for found in found {
        if matches!(found.branch.grams.1, FeaturizedText::Words(..)) && !ops.contains(&"tokenize") {
            ops.push("tokenize");
        }
        fingerprints.push(found.branch.grams.0);
        for node in &found.nodes {
            ops.push(graph.nodes[*node].op.name());
            fingerprints.push(graph.nodes[*node].fingerprint);
        }
        nodes.extend(found.nodes.last());
        branches.push(found.branch);
    }
    let parts: Vec<&[u8]> = fingerprints.iter().map(|fingerprint| &fingerprint.0[..]).collect();
    let work = Work::Text(TextStage { field: op.clone(), branches });
    let stage = Stage { work, fingerprint: Fingerprint::of(&parts), ops };
    Placed { stage, inputs: Vec::new(), nodes, depends: source.depends }
}

fn place_steps(graph: &Graph, nodes: Vec<NodeId>) -> Placed {
    let mut inputs: Vec<NodeId> = Vec::new();
    let mut wire = |id: NodeId| {
        if let Some(local) = nodes.iter().position(|node| *node == id) {
            return Wire::Local(local as u32);
        }
        let at = inputs.iter().position(|input| *input == id).unwrap_or_else(|| {
            inputs.push(id);
            inputs.len() - 1
        });
        Wire::Input(at as u32)
    };
    let (mut steps, mut bytes) = (Vec::new(), Vec::new());
    for id in &nodes {
        let node = &graph.nodes[*id];
        let wires: Vec<Wire> = node.inputs.iter().map(|input| wire(*input)).collect();
        bytes.extend_from_slice(&node.fingerprint.0);
        bytes.extend_from_slice(&(wires.len() as u64).to_le_bytes());
        for wire in &wires {
            let (kind, at) = match wire {
                Wire::Input(at) => (0, *at),
                Wire::Local(at) => (1, *at),
            };
            bytes.push(kind);
            bytes.extend_from_slice(&at.to_le_bytes());
        }
        steps.push(Step { op: node.op.clone(), inputs: wires });
    }
    let ops = nodes.iter().map(|id| graph.nodes[*id].op.name()).collect();
    let depends = graph.nodes[nodes[0]].depends;
    let stage = Stage { work: Work::Steps(steps), fingerprint: Fingerprint::of(&[b"steps", &bytes]), ops };
    Placed { stage, inputs, nodes, depends }
}

/// Puts stages behind those that they read: first those of the item, then those of the context, then those of both.
fn ordered(mut left: Vec<Placed>) -> Vec<Placed> {
    let rank = |depends: Depends| match depends {
        Depends::Nothing => 0,
        Depends::Item => 1,
        Depends::Context => 2,
        Depends::ItemAndContext => 3,
    };
    left.sort_by_key(|placed| rank(placed.depends));
    let mut ordered: Vec<Placed> = Vec::with_capacity(left.len());
    let mut computed: HashSet<NodeId> = HashSet::new();
    let all: HashSet<NodeId> = left.iter().flat_map(|placed| &placed.nodes).copied().collect();
    while !left.is_empty() {
        let is_ready =
            |placed: &Placed| placed.inputs.iter().all(|input| computed.contains(input) || !all.contains(input));
        let next = left.iter().position(is_ready).expect(
            "stages do not need one another: only the last node of a stage is read by others, and a node that moves has \
             no other reader",
        );
        let placed = left.remove(next);
        computed.extend(&placed.nodes);
        ordered.push(placed);
    }
    ordered
}
