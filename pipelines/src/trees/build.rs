//! Ensembles from trees in the form of a foreign model.

use super::error::{NodeProblem, TreeError};
use super::{
    Aggregate, DEPTH_MAX, Direction, INPUTS_MAX, Kind, Leaves, MEMBER_MAX, NODES_MAX, Node, OUTPUTS_MAX, SET_WORDS_MAX,
    Sets, TREES_MAX, Transform, Tree, TreeEnsemble, VOTES_MAX,
};

/// What an ensemble takes and gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The length of a row.
    pub inputs: usize,
    /// Added to the aggregated votes; its length is the number of outputs that trees vote for.
    pub base: Vec<f64>,
    pub aggregate: Aggregate,
    pub transform: Transform,
}

/// The test of a split. Thresholds of 64 bits become those of 32 bits with the same answer for every f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Test {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    Equal(f64),
    NotEqual(f64),
    /// The value, its fraction cut off, is in this set of the tree (LightGBM's categorical splits).
    In(u32),
    /// The value is an integer in this set of the tree (ONNX's `BRANCH_MEMBER`).
    Member(u32),
}

/// The branch that a missing value takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// That of values that pass the test.
    Then,
    /// That of values that fail it.
    Otherwise,
}

/// What a zero is at a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeros {
    /// A number.
    Numbers,
    /// A missing value; for thresholds only.
    Missing,
}

/// A split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Branch {
    pub feature: u32,
    pub test: Test,
    pub missing: Missing,
    pub zeros: Zeros,
    /// The index of the node for values that pass the test.
    pub then: usize,
    /// The index of the node for the others.
    pub otherwise: usize,
}

/// A node of a [`SourceTree`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SourceNode {
    Branch(Branch),
    /// The votes of the tree from `first` on.
    Leaf {
        first: usize,
        count: usize,
    },
}

/// What a leaf adds to an output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vote {
    pub output: u32,
    pub value: f64,
}

/// A tree as its source lists it. Node 0 is the root unless `root` is another; the order of nodes is free.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SourceTree {
    pub root: usize,
    pub nodes: Vec<SourceNode>,
    pub votes: Vec<Vote>,
    /// Sets of categories.
    pub sets: Vec<Vec<u32>>,
}

/// Collects trees, and checks and arranges each.
#[derive(Debug, Clone)]
pub struct Builder {
    ensemble: TreeEnsemble,
    /// Reused from tree to tree.
    queue: Vec<Place>,
    seen: Vec<bool>,
}

/// Where a node of the source goes.
#[derive(Debug, Clone, Copy)]
struct Place {
    node: usize,
    depth: u8,
}

impl Builder {
    /// An ensemble without trees.
    ///
    /// # Errors
    /// Inputs, outputs or base values outside their bounds.
    pub fn new(shape: Shape) -> Result<Self, TreeError> {
        in_range("inputs", 1, INPUTS_MAX, shape.inputs)?;
        in_range("outputs", 1, if shape.transform.doubles() { 1 } else { OUTPUTS_MAX }, shape.base.len())?;
        if let Some(output) = shape.base.iter().position(|base| !base.is_finite()) {
            return Err(TreeError::Base { output });
        }
        let Shape { inputs, base, aggregate, transform } = shape;
        let leaves = Leaves { starts: vec![0], ..Leaves::default() };
        let sets = Sets { starts: vec![0], ..Sets::default() };
        let ensemble =
            TreeEnsemble { inputs, aggregate, transform, base, trees: Vec::new(), nodes: Vec::new(), leaves, sets };
        Ok(Self { ensemble, queue: Vec::new(), seen: Vec::new() })
    }

    /// Adds a tree after the others. Nodes that no path from the root reaches are left out.
    ///
    /// # Errors
    /// More trees, nodes, votes or sets than the bounds, or a node with an invalid part.
    pub fn add(&mut self, source: &SourceTree) -> Result<(), TreeError> {
        in_range("the number of trees", 1, TREES_MAX, self.ensemble.trees.len() + 1)?;
        let base = self.ensemble.nodes.len();
        self.queue.clear();
        self.seen.clear();
        self.seen.resize(source.nodes.len(), false);
        self.enqueue(source, source.root, source.root, 0)?;
        let (mut depth, mut plain, mut next) = (0, true, 0);
        while let Some(place) = self.queue.get(next).copied() {
            in_range("the number of nodes", 1, NODES_MAX, base + next + 1)?;
            // `enqueue` has checked that the node exists.
            let node = match source.nodes[place.node] {
                SourceNode::Leaf { first, count } => {
                    depth = depth.max(place.depth);
                    self.leaf(source, place.node, (first, count), (base + next) as u32)?
                }
                SourceNode::Branch(branch) => {
                    let next = (base + self.queue.len()) as u32;
                    let (node, children) = self.split(source, place.node, branch)?;
                    plain &= node.is_plain();
                    for child in children {
                        self.enqueue(source, place.node, child, place.depth + 1)?;
                    }
                    Node { next, ..node }
                }
            };
            self.ensemble.nodes.push(node);
            next += 1;
        }
        self.ensemble.trees.push(Tree { root: base as u32, depth, plain });
        Ok(())
    }

    /// The ensemble of the trees added.
    ///
    /// # Errors
    /// No tree was added.
    pub fn finish(self) -> Result<TreeEnsemble, TreeError> {
        let mut ensemble = self.ensemble;
        in_range("the number of trees", 1, TREES_MAX, ensemble.trees.len())?;
        ensemble.leaves.simplify(ensemble.base.len());
        ensemble.nodes.shrink_to_fit();
        Ok(ensemble)
    }

    /// Appends `node`, a child of `parent`, to the order of the tree.
    fn enqueue(&mut self, source: &SourceTree, parent: usize, node: usize, depth: u8) -> Result<(), TreeError> {
        let tree = self.ensemble.trees.len();
        let Some(seen) = self.seen.get_mut(node) else {
            let problem = NodeProblem::Child { child: node, nodes: source.nodes.len() };
            return Err(TreeError::Node { tree, node: parent, problem });
        };
        if std::mem::replace(seen, true) {
            return Err(TreeError::Node { tree, node, problem: NodeProblem::Shared });
        }
        if usize::from(depth) > DEPTH_MAX {
            return Err(TreeError::Node { tree, node, problem: NodeProblem::Depth { max: DEPTH_MAX } });
        }
        self.queue.push(Place { node, depth });
        Ok(())
    }

    /// The leaf at index `index` of the ensemble, with votes `first` and `count` of the source.
    fn leaf(
        &mut self,
        source: &SourceTree,
        node: usize,
        (first, count): (usize, usize),
        index: u32,
    ) -> Result<Node, TreeError> {
        let tree = self.ensemble.trees.len();
        let outputs = self.ensemble.base.len();
        let votes = first.checked_add(count).and_then(|end| source.votes.get(first..end));
        let votes = votes.ok_or(TreeError::Node { tree, node, problem: NodeProblem::Votes })?;
        let leaves = &mut self.ensemble.leaves;
        in_range("the number of votes", 0, VOTES_MAX, leaves.values.len() + votes.len())?;
        for vote in votes {
            if vote.output as usize >= outputs {
                let problem = NodeProblem::Vote { output: vote.output.into(), outputs };
                return Err(TreeError::Node { tree, node, problem });
            }
            let value = vote.value as f32;
            if !value.is_finite() {
                let problem = NodeProblem::VoteValue { output: vote.output.into() };
                return Err(TreeError::Node { tree, node, problem });
            }
            leaves.values.push(value);
            // At most `OUTPUTS_MAX`.
            leaves.outputs.push(vote.output as u8);
        }
        let leaf = leaves.starts.len() as u32 - 1;
        leaves.starts.push(leaves.values.len() as u32);
        let direction = Direction::NanPasses;
        Ok(Node { threshold: f32::INFINITY, next: index, feature: 0, kind: Kind::Leaf, direction, extra: leaf })
    }

    /// The split without the place of its children, and its children, the one for values that pass the test first.
    fn split(&mut self, source: &SourceTree, node: usize, branch: Branch) -> Result<(Node, [usize; 2]), TreeError> {
        let tree = self.ensemble.trees.len();
        let fail = |problem| TreeError::Node { tree, node, problem };
        let inputs = self.ensemble.inputs;
        if branch.feature as usize >= inputs {
            return Err(fail(NodeProblem::Feature { feature: branch.feature.into(), inputs }));
        }
        let (kind, threshold, extra) = match branch.test {
            Test::AtMost(bound) | Test::Above(bound) => (Kind::Threshold, round_down(bound), 0),
            Test::Below(bound) | Test::AtLeast(bound) => (Kind::Threshold, below(bound), 0),
            Test::Equal(value) | Test::NotEqual(value) => (Kind::Equal, exactly(value), 0),
            Test::In(set) => (Kind::Set, 0.0, self.set(source, set).map_err(fail)?),
            Test::Member(set) => (Kind::ExactSet, 0.0, self.set(source, set).map_err(fail)?),
        };
        let opposite = matches!(branch.test, Test::Above(_) | Test::AtLeast(_) | Test::NotEqual(_));
        if threshold.is_nan() {
            return Err(fail(NodeProblem::Threshold));
        }
        let passes = (branch.missing == Missing::Then) != opposite;
        let direction = match (branch.zeros, passes) {
            (Zeros::Missing, passes) if kind == Kind::Threshold => {
                if passes {
                    Direction::ZeroPasses
                } else {
                    Direction::ZeroFails
                }
            }
            (_, true) => Direction::NanPasses,
            (_, false) => Direction::NanFails,
        };
        let (then, otherwise) = (branch.then, branch.otherwise);
        let children = if opposite { [otherwise, then] } else { [then, otherwise] };
        // Bounded by `INPUTS_MAX`.
        Ok((Node { threshold, next: 0, feature: branch.feature as u16, kind, direction, extra }, children))
    }

    /// Copies a set of the source.
    fn set(&mut self, source: &SourceTree, set: u32) -> Result<u32, NodeProblem> {
        let members = source.sets.get(set as usize).ok_or(NodeProblem::Set)?;
        let largest = members.iter().copied().max();
        if let Some(member) = largest.filter(|member| *member > MEMBER_MAX) {
            return Err(NodeProblem::Member { member: member.into(), max: MEMBER_MAX });
        }
        let sets = &mut self.ensemble.sets;
        let start = sets.words.len();
        let length = largest.map_or(0, |largest| largest as usize / 64 + 1);
        if start + length > SET_WORDS_MAX {
            return Err(NodeProblem::Set);
        }
        sets.words.resize(start + length, 0);
        for member in members {
            sets.words[start + *member as usize / 64] |= 1 << (member % 64);
        }
        sets.starts.push(sets.words.len() as u32);
        Ok(sets.starts.len() as u32 - 2)
    }
}

pub(super) fn in_range(what: &'static str, min: usize, max: usize, received: usize) -> Result<(), TreeError> {
    if (min..=max).contains(&received) {
        return Ok(());
    }
    Err(TreeError::OutOfRange { what, min: min as u64, max: max as u64, received: received as u64 })
}

/// The largest f32 that is not above `bound`: `x <= bound` and `x <= round_down(bound)` are equal for every f32 `x`.
fn round_down(bound: f64) -> f32 {
    let nearest = bound as f32;
    if f64::from(nearest) > bound { nearest.next_down() } else { nearest }
}

/// The largest f32 below `bound`: `x < bound` and `x <= below(bound)` are equal for every f32 `x`, but for an infinite
/// `bound` below which there is none, where `x <= -inf` holds for one value.
fn below(bound: f64) -> f32 {
    let down = round_down(bound);
    if f64::from(down) < bound { down } else { down.next_down() }
}

/// The f32 with this value, or NaN.
fn exactly(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value { nearest } else { f32::NAN }
}
