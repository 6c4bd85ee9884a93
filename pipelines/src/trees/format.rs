//! The stored bytes of an ensemble.
//!
//! Equal ensembles have equal bytes, and only bytes that [`TreeEnsemble::encode`] gives are decoded. Children have no
//! index in the bytes: nodes are breadth first, so the children of the k-th split of a tree are its nodes `2k + 1` and
//! `2k + 2`. So each node but the root has one parent, which lies before it.
//!
//! ```text
//! magic, format (1 byte), inputs, sums, aggregate (1 byte), transform (1 byte), base values (f64), number of trees
//! for each tree: number of nodes; for each node: tag (1 byte): kind + 8 * direction, then
//!   leaf: number of votes; for each the output and the value (f32)
//!   threshold, equal: feature, threshold (f32)
//!   set, exact set: feature, number of words, words (u64)
//! ```
//! Numbers without a type are varints; all are little-endian.

use celeris_model::wire::{Reader, Writer};

use super::build::in_range;
use super::{
    Aggregate, BYTES_MAX, DEPTH_MAX, Direction, INPUTS_MAX, Kind, Leaves, MEMBER_MAX, NODES_MAX, Node, NodeProblem,
    OUTPUTS_MAX, SET_WORDS_MAX, Sets, TREES_MAX, Transform, Tree, TreeEnsemble, TreeError, VOTES_MAX,
};

const MAGIC: &[u8; 4] = b"tree";
const FORMAT: u8 = 1;

const AGGREGATES: [Aggregate; 4] = [Aggregate::Sum, Aggregate::Average, Aggregate::Min, Aggregate::Max];
const TRANSFORMS: [Transform; 7] = [
    Transform::None,
    Transform::Logistic,
    Transform::Softmax,
    Transform::Exp,
    Transform::Complement,
    Transform::LogisticPair,
    Transform::Opposite,
];
const KINDS: [Kind; 5] = [Kind::Leaf, Kind::Threshold, Kind::Equal, Kind::Set, Kind::ExactSet];
const DIRECTIONS: [Direction; 4] =
    [Direction::NanFails, Direction::NanPasses, Direction::ZeroFails, Direction::ZeroPasses];

/// The place of `value` in a list of all values of its type.
fn code<T: PartialEq>(all: &[T], value: &T) -> u8 {
    // A list has all values, and few.
    all.iter().position(|other| other == value).unwrap_or(0) as u8
}

impl TreeEnsemble {
    /// The canonical bytes of the ensemble.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::with_capacity(self.nodes.len() * 7 + 64));
        writer.0.extend_from_slice(MAGIC);
        writer.0.push(FORMAT);
        writer.varint(self.inputs as u64);
        writer.varint(self.base.len() as u64);
        writer.0.push(code(&AGGREGATES, &self.aggregate));
        writer.0.push(code(&TRANSFORMS, &self.transform));
        self.base.iter().for_each(|base| writer.double(*base));
        writer.varint(self.trees.len() as u64);
        let ends = self.trees[1..].iter().map(|tree| tree.root as usize).chain([self.nodes.len()]);
        for (tree, end) in self.trees.iter().zip(ends) {
            let nodes = &self.nodes[tree.root as usize..end];
            writer.varint(nodes.len() as u64);
            nodes.iter().for_each(|node| self.encode_node(node, &mut writer));
        }
        writer.0
    }

    fn encode_node(&self, node: &Node, writer: &mut Writer) {
        writer.0.push(code(&KINDS, &node.kind) + 8 * code(&DIRECTIONS, &node.direction));
        match node.kind {
            Kind::Leaf => {
                let leaf = node.extra as usize;
                let Leaves { values, outputs, starts } = &self.leaves;
                let votes =
                    if starts.is_empty() { leaf..leaf + 1 } else { starts[leaf] as usize..starts[leaf + 1] as usize };
                writer.varint(votes.len() as u64);
                for vote in votes {
                    writer.varint(outputs.get(vote).copied().unwrap_or(0).into());
                    writer.float(values[vote]);
                }
            }
            Kind::Threshold | Kind::Equal => {
                writer.varint(node.feature.into());
                writer.float(node.threshold);
            }
            Kind::Set | Kind::ExactSet => {
                writer.varint(node.feature.into());
                let words = self.sets.words(node.extra);
                writer.varint(words.len() as u64);
                words.iter().for_each(|word| writer.0.extend_from_slice(&word.to_le_bytes()));
            }
        }
    }

    /// Reads the bytes that [`encode`](Self::encode) gave.
    ///
    /// # Errors
    /// Anything else, with the place. Memory stays proportional to the length of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, TreeError> {
        in_range("the bytes", 1, BYTES_MAX, bytes.len())?;
        let mut decoder = Decoder { reader: Reader(bytes), length: bytes.len(), parts: Parts::default() };
        let ensemble = decoder.ensemble()?;
        if !decoder.reader.0.is_empty() {
            return Err(decoder.damaged("bytes follow the last node"));
        }
        // Varints and votes have more than one form each.
        if ensemble.encode() != bytes {
            return Err(decoder.damaged("the encoding is not the canonical one"));
        }
        Ok(ensemble)
    }
}

struct Decoder<'a> {
    reader: Reader<'a>,
    length: usize,
    parts: Parts,
}

#[derive(Default)]
struct Parts {
    inputs: usize,
    outputs: usize,
    trees: Vec<Tree>,
    nodes: Vec<Node>,
    leaves: Leaves,
    sets: Sets,
}

impl Decoder<'_> {
    fn damaged(&self, problem: &'static str) -> TreeError {
        TreeError::Encoding { offset: self.length - self.reader.0.len(), problem }
    }

    fn part<T>(&self, part: Option<T>) -> Result<T, TreeError> {
        part.ok_or_else(|| self.damaged("the bytes end within a part"))
    }

    fn byte(&mut self) -> Result<u8, TreeError> {
        let (byte, rest) = self.part(self.reader.0.split_first())?;
        self.reader.0 = rest;
        Ok(*byte)
    }

    /// The value with the next byte as its place in `all`.
    fn coded<T: Copy>(&mut self, all: &[T]) -> Result<T, TreeError> {
        let code = self.byte()?;
        all.get(usize::from(code)).copied().ok_or_else(|| self.damaged("a code is not known"))
    }

    fn count(&mut self, what: &'static str, min: usize, max: usize) -> Result<usize, TreeError> {
        let count = self.reader.varint();
        let count = self.part(count)?;
        let received = usize::try_from(count).unwrap_or(usize::MAX);
        in_range(what, min, max, received)?;
        Ok(received)
    }

    fn ensemble(&mut self) -> Result<TreeEnsemble, TreeError> {
        let header = self.reader.0.split_at_checked(MAGIC.len() + 1);
        let Some((header, rest)) =
            header.filter(|(header, _)| header.starts_with(MAGIC) && header.ends_with(&[FORMAT]))
        else {
            return Err(self.damaged("these are not trees of format 1"));
        };
        debug_assert_eq!(header.len(), MAGIC.len() + 1);
        self.reader.0 = rest;
        self.parts.inputs = self.count("inputs", 1, INPUTS_MAX)?;
        self.parts.outputs = self.count("outputs", 1, OUTPUTS_MAX)?;
        let aggregate = self.coded(&AGGREGATES)?;
        let transform = self.coded(&TRANSFORMS)?;
        if transform.doubles() && self.parts.outputs != 1 {
            return Err(self.damaged("the transform takes one sum"));
        }
        let mut base = Vec::with_capacity(self.parts.outputs);
        for output in 0..self.parts.outputs {
            let value = self.reader.double();
            let value = self.part(value)?;
            if !value.is_finite() {
                return Err(TreeError::Base { output });
            }
            base.push(value);
        }
        self.parts.leaves.starts.push(0);
        self.parts.sets.starts.push(0);
        for _ in 0..self.count("the number of trees", 1, TREES_MAX)? {
            self.tree()?;
        }
        let Parts { inputs, trees, nodes, mut leaves, sets, .. } = std::mem::take(&mut self.parts);
        leaves.simplify(base.len());
        Ok(TreeEnsemble { inputs, aggregate, transform, base, trees, nodes, leaves, sets })
    }

    fn tree(&mut self) -> Result<(), TreeError> {
        let base = self.parts.nodes.len();
        let length = self.count("the number of nodes", 1, NODES_MAX - base)?;
        let (mut plain, mut depth, mut splits) = (true, 0, 0);
        // The last node of the level that is being read.
        let mut level_end = 1;
        for index in 0..length {
            if index == level_end {
                level_end = 2 * splits + 1;
                depth += 1;
            }
            if index == level_end {
                return Err(self.damaged("a tree has nodes that no split leads to"));
            }
            let node = self.node((base + index, base + 2 * splits + 1), index)?;
            plain &= node.is_plain();
            splits += usize::from(node.kind != Kind::Leaf);
            self.parts.nodes.push(node);
        }
        if length != 2 * splits + 1 {
            return Err(self.damaged("the nodes of a tree are not twice its splits and one more"));
        }
        if depth > DEPTH_MAX {
            let problem = NodeProblem::Depth { max: DEPTH_MAX };
            return Err(TreeError::Node { tree: self.parts.trees.len(), node: length - 1, problem });
        }
        self.parts.trees.push(Tree { root: base as u32, depth: depth as u8, plain });
        Ok(())
    }

    /// The node that lies at `own` and whose children would lie at `children`; the `index`-th of its tree.
    fn node(&mut self, (own, children): (usize, usize), index: usize) -> Result<Node, TreeError> {
        let tag = self.byte()?;
        let kind = KINDS.get(usize::from(tag % 8)).copied();
        let direction = DIRECTIONS.get(usize::from(tag / 8)).copied();
        let (Some(kind), Some(direction)) = (kind, direction) else {
            return Err(self.damaged("the tag of a node is not known"));
        };
        let node = Node { threshold: 0.0, next: children as u32, feature: 0, kind, direction, extra: 0 };
        if kind == Kind::Leaf {
            if direction != Direction::NanPasses {
                return Err(self.damaged("the tag of a leaf is not known"));
            }
            return Ok(Node { threshold: f32::INFINITY, next: own as u32, extra: self.votes(index)?, ..node });
        }
        let tree = self.parts.trees.len();
        let feature = self.reader.varint();
        let feature = self.part(feature)?;
        if feature >= self.parts.inputs as u64 {
            let problem = NodeProblem::Feature { feature, inputs: self.parts.inputs };
            return Err(TreeError::Node { tree, node: index, problem });
        }
        let node = Node { feature: feature as u16, ..node };
        let zeros = matches!(direction, Direction::ZeroFails | Direction::ZeroPasses);
        if zeros && kind != Kind::Threshold {
            return Err(self.damaged("zeros are missing at a split that has no threshold"));
        }
        if matches!(kind, Kind::Set | Kind::ExactSet) {
            return Ok(Node { extra: self.set()?, ..node });
        }
        let threshold = self.reader.float();
        let threshold = self.part(threshold)?;
        if threshold.is_nan() {
            return Err(TreeError::Node { tree, node: index, problem: NodeProblem::Threshold });
        }
        Ok(Node { threshold, ..node })
    }

    /// The index of the leaf with the votes that follow.
    fn votes(&mut self, node: usize) -> Result<u32, TreeError> {
        let tree = self.parts.trees.len();
        let count = self.count("the number of votes", 0, VOTES_MAX - self.parts.leaves.values.len())?;
        for _ in 0..count {
            let (output, value) = (self.reader.varint(), self.reader.float());
            let (output, value) = (self.part(output)?, self.part(value)?);
            if output >= self.parts.outputs as u64 {
                let problem = NodeProblem::Vote { output, outputs: self.parts.outputs };
                return Err(TreeError::Node { tree, node, problem });
            }
            if !value.is_finite() {
                return Err(TreeError::Node { tree, node, problem: NodeProblem::VoteValue { output } });
            }
            self.parts.leaves.outputs.push(output as u8);
            self.parts.leaves.values.push(value);
        }
        let leaves = &mut self.parts.leaves;
        leaves.starts.push(leaves.values.len() as u32);
        Ok(leaves.starts.len() as u32 - 2)
    }

    /// The index of the set that follows.
    fn set(&mut self) -> Result<u32, TreeError> {
        let max = (SET_WORDS_MAX - self.parts.sets.words.len()).min(MEMBER_MAX as usize / 64 + 1);
        let count = self.count("the words of a set", 0, max)?;
        for index in 0..count {
            let word = self.reader.0.split_first_chunk();
            let (word, rest) = self.part(word)?;
            let word = u64::from_le_bytes(*word);
            self.reader.0 = rest;
            if index + 1 == count && word == 0 {
                return Err(self.damaged("a set ends with an empty word"));
            }
            self.parts.sets.words.push(word);
        }
        let sets = &mut self.parts.sets;
        sets.starts.push(sets.words.len() as u32);
        Ok(sets.starts.len() as u32 - 2)
    }
}
