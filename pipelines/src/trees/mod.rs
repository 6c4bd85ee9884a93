//! Ensembles of decision trees: the operator `trees`.
//!
//! A [`TreeEnsemble`] is immutable. [`Builder`] makes one from trees in the form of a foreign model, and
//! [`TreeEnsemble::decode`] one from its stored bytes. Not in this module: the training of trees, and the formats of
//! foreign models ([`crate::import`]).
//!
//! Layout: all nodes are in one array, each tree breadth first, and the two children of a node lie side by side. So a
//! step of a walk is an addition instead of a branch, and several walks take their steps in one loop (`walk.rs`), whose
//! accesses to memory overlap: the algorithm VPred of Asadi, Lin and de Vries, "Runtime Optimizations for Tree-based
//! Machine Learning Models", TKDE 26 (9), 2014.

mod build;
mod error;
mod format;
mod score;
#[cfg(test)]
mod tests;
mod walk;

pub use build::{Branch, Builder, Missing, Shape, SourceNode, SourceTree, Test, Vote, Zeros};
pub use error::{NodeProblem, TreeError};

/// Maximum number of trees of an ensemble.
pub const TREES_MAX: usize = 10_000;
/// Maximum number of nodes of an ensemble, leaves included.
pub const NODES_MAX: usize = 1 << 24;
/// Maximum length of a row.
pub const INPUTS_MAX: usize = 4096;
/// Maximum number of outputs.
pub const OUTPUTS_MAX: usize = 64;
/// Maximum number of splits between a root and a leaf.
pub const DEPTH_MAX: usize = 64;
/// Maximum number of votes of all leaves.
pub const VOTES_MAX: usize = 1 << 25;
/// The largest category that a set can have.
pub const MEMBER_MAX: u32 = (1 << 20) - 1;
/// Maximum size of the sets of all nodes, in words of 64 categories.
pub const SET_WORDS_MAX: usize = 1 << 21;
/// Maximum size of an encoded ensemble, in bytes.
pub const BYTES_MAX: usize = 1 << 28;

/// How the votes of all trees become one number per output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    Sum,
    /// The sum, divided by the number of trees.
    Average,
    /// 0 for an output without votes.
    Min,
    /// 0 for an output without votes.
    Max,
}

/// What becomes of the aggregated votes `s`, base values included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    None,
    /// `1 / (1 + e^-s)`, for each output.
    Logistic,
    /// `e^s / Σ e^s`, over the outputs.
    Softmax,
    /// `e^s`, for each output: the link of counts and of positive amounts.
    Exp,
    /// Two outputs from one sum, `1 - s` and `s`: a classifier of two classes whose leaves vote with probabilities.
    Complement,
    /// Two outputs from one sum, `1 / (1 + e^s)` and `1 / (1 + e^-s)`.
    LogisticPair,
    /// Two outputs from one sum, `-s` and `s`: margins of two classes.
    Opposite,
}

impl Transform {
    /// Whether one sum becomes two outputs.
    fn doubles(self) -> bool {
        matches!(self, Self::Complement | Self::LogisticPair | Self::Opposite)
    }
}

/// Decision trees whose votes are added up.
///
/// Sums are in f64, tree after tree, for one row and for many: both give the same bits. Models of scikit-learn and
/// LightGBM add in f64 too; ONNX Runtime adds in f32 and in an order that depends on the number of threads, so its
/// results differ from these by up to about 1e-5, relative to the largest sum.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeEnsemble {
    inputs: usize,
    aggregate: Aggregate,
    transform: Transform,
    /// One for each sum.
    base: Vec<f64>,
    trees: Vec<Tree>,
    nodes: Vec<Node>,
    leaves: Leaves,
    sets: Sets,
}

/// Where a tree lies.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tree {
    root: u32,
    /// Splits on the longest path.
    depth: u8,
    /// Whether all splits are thresholds, which walks pass without a branch.
    plain: bool,
}

/// A split or a leaf. 16 bytes, so that none lies in two cache lines.
#[repr(align(16))]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Node {
    /// Infinite at a leaf, so that no number is above it.
    threshold: f32,
    /// The child of rows that pass the test; that of the others follows it. A leaf is its own child: walks that have
    /// arrived stay while others go on.
    next: u32,
    feature: u16,
    kind: Kind,
    direction: Direction,
    /// The index of a leaf in `leaves`, or of a set in `sets`.
    extra: u32,
}

impl Node {
    /// Whether interleaved walks can pass it.
    fn is_plain(&self) -> bool {
        match self.kind {
            Kind::Leaf => true,
            Kind::Threshold => matches!(self.direction, Direction::NanFails | Direction::NanPasses),
            Kind::Equal | Kind::Set | Kind::ExactSet => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Leaf,
    /// `x <= threshold`. Other comparisons become this one when the ensemble is built.
    Threshold,
    /// `x == threshold`.
    Equal,
    /// `trunc(x)` is in the set.
    Set,
    /// `x` is an integer in the set.
    ExactSet,
}

/// Where a missing value goes, and which values are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Direction {
    /// NaN fails the test.
    NanFails,
    /// NaN passes the test.
    NanPasses,
    /// NaN and zero fail the test.
    ZeroFails,
    /// NaN and zero pass the test.
    ZeroPasses,
}

/// Values up to this distance from 0 are zeros where zeros are missing, as in LightGBM.
const ZERO: f32 = 1e-35;

/// The votes of the leaves.
#[derive(Debug, Clone, PartialEq, Default)]
struct Leaves {
    values: Vec<f32>,
    /// The output of each value; empty if each leaf has one vote, for the only output.
    outputs: Vec<u8>,
    /// The first value of each leaf, and the number of values; empty in the same case.
    starts: Vec<u32>,
}

impl Leaves {
    /// Drops what follows from the shape, and unused memory.
    fn simplify(&mut self, outputs: usize) {
        if outputs == 1 && self.starts.windows(2).all(|pair| pair[1] - pair[0] == 1) {
            self.starts = Vec::new();
            self.outputs = Vec::new();
        }
        self.values.shrink_to_fit();
    }
}

/// Sets of categories as bits.
#[derive(Debug, Clone, PartialEq, Default)]
struct Sets {
    words: Vec<u64>,
    /// The first word of each set, and the number of words.
    starts: Vec<u32>,
}

impl Sets {
    fn words(&self, set: u32) -> &[u64] {
        &self.words[self.starts[set as usize] as usize..self.starts[set as usize + 1] as usize]
    }
}

impl TreeEnsemble {
    /// The length of a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of outputs of a row.
    pub fn outputs(&self) -> usize {
        if self.transform.doubles() { 2 } else { self.base.len() }
    }

    /// The number of trees.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// The number of nodes of all trees, leaves included.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(self.base.as_slice())
            + size_of_val(self.trees.as_slice())
            + size_of_val(self.nodes.as_slice())
            + size_of_val(self.leaves.values.as_slice())
            + self.leaves.outputs.len()
            + size_of_val(self.leaves.starts.as_slice())
            + size_of_val(self.sets.words.as_slice())
            + size_of_val(self.sets.starts.as_slice())
    }
}
