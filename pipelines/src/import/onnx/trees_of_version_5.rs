//! `TreeEnsemble`, of version 5 of `ai.onnx.ml`: splits and leaves are lists of their own, and the trees are given by
//! their roots.

use super::super::ImportError;
use super::trees::{branch, count};
use crate::onnx::model::{LIST_MAX, Node};
use crate::trees::{
    Aggregate, Builder, NODES_MAX, Shape, SourceNode, SourceTree, TREES_MAX, Test, Transform, TreeEnsemble, VOTES_MAX,
    Vote,
};

/// The lists of a `TreeEnsemble` of version 5: splits and leaves apart.
struct Ensemble {
    features: Vec<i64>,
    splits: Vec<f64>,
    modes: Vec<i64>,
    then: Vec<i64>,
    then_leaf: Vec<i64>,
    otherwise: Vec<i64>,
    otherwise_leaf: Vec<i64>,
    missing: Vec<i64>,
    targets: Vec<i64>,
    weights: Vec<f64>,
    /// The set of each split with a set, in their order.
    sets: Vec<Vec<u32>>,
    /// The set of each split.
    set_of: Vec<u32>,
}

/// Reads a `TreeEnsemble` of version 5 of rows with `inputs` values.
pub(super) fn ensemble(node: &Node<'_>, inputs: usize) -> Result<TreeEnsemble, ImportError> {
    let outputs = count(node, "n_targets", 1)?;
    let aggregates = [Aggregate::Average, Aggregate::Sum, Aggregate::Min, Aggregate::Max];
    let aggregate = node.value::<i64>("aggregate_function")?.unwrap_or(1);
    let aggregate = usize::try_from(aggregate).ok().and_then(|index| aggregates.get(index).copied());
    let aggregate = aggregate.ok_or_else(|| node.problem("aggregate_function", "it must be 0 to 3"))?;
    let transform = match node.value::<i64>("post_transform")?.unwrap_or(0) {
        0 => Transform::None,
        1 if outputs > 1 => Transform::Softmax,
        2 => Transform::Logistic,
        other => return Err(node.problem("post_transform", format!("{other} is not supported for {outputs} targets"))),
    };
    let lists = Ensemble::read(node)?;
    let mut builder = Builder::new(Shape { inputs, base: vec![0.0; outputs], aggregate, transform })?;
    let mut taken = vec![false; lists.features.len()];
    for root in node.list::<i64>("tree_roots", TREES_MAX)? {
        builder.add(&lists.tree(node, root, &mut taken)?)?;
    }
    Ok(builder.finish()?)
}

impl Ensemble {
    fn read(node: &Node<'_>) -> Result<Self, ImportError> {
        let list = |name: &str| node.list::<i64>(name, NODES_MAX);
        let tensor = |name: &str| node.tensor(name)?.ok_or_else(|| node.problem(name, "it is missing"));
        let mut lists = Self {
            features: list("nodes_featureids")?,
            splits: tensor("nodes_splits")?.numbers(NODES_MAX)?,
            modes: tensor("nodes_modes")?.integers(NODES_MAX)?,
            then: list("nodes_truenodeids")?,
            then_leaf: list("nodes_trueleafs")?,
            otherwise: list("nodes_falsenodeids")?,
            otherwise_leaf: list("nodes_falseleafs")?,
            missing: list("nodes_missing_value_tracks_true")?,
            targets: node.list("leaf_targetids", VOTES_MAX)?,
            weights: tensor("leaf_weights")?.numbers(VOTES_MAX)?,
            sets: Vec::new(),
            set_of: Vec::new(),
        };
        let count = lists.features.len();
        let others = [&lists.modes, &lists.then, &lists.then_leaf, &lists.otherwise, &lists.otherwise_leaf];
        if lists.splits.len() != count
            || others.iter().any(|list| list.len() != count)
            || !(lists.missing.is_empty() || lists.missing.len() == count)
            || lists.targets.len() != lists.weights.len()
        {
            return Err(node.problem("nodes_featureids", "the lists of nodes or of leaves differ in length"));
        }
        if lists.modes.contains(&6) {
            let members =
                node.tensor("membership_values")?.map_or(Ok(Vec::new()), |tensor| tensor.numbers(LIST_MAX))?;
            // A set ends with NaN.
            for set in members.split(|member| member.is_nan()).take(lists.modes.len()) {
                let member = |member: &f64| (*member as u32, f64::from(*member as u32) == *member);
                let (set, whole): (Vec<u32>, Vec<bool>) = set.iter().map(member).unzip();
                if whole.contains(&false) {
                    return Err(node.problem("membership_values", "members must be integers that are not negative"));
                }
                lists.sets.push(set);
            }
            let mut next = 0;
            lists.set_of = lists
                .modes
                .iter()
                .map(|mode| {
                    if *mode == 6 {
                        next += 1;
                        next - 1
                    } else {
                        0
                    }
                })
                .collect();
        }
        Ok(lists)
    }

    /// The tree with the root at index `root`. `taken` marks the splits of earlier trees.
    fn tree(&self, node: &Node<'_>, root: i64, taken: &mut [bool]) -> Result<SourceTree, ImportError> {
        let mut tree = SourceTree::default();
        let split = |index: i64| usize::try_from(index).ok().filter(|index| *index < self.features.len());
        let unknown = |index: i64| node.problem("nodes_truenodeids", format!("there is no node {index}"));
        let root = split(root).ok_or_else(|| node.problem("tree_roots", format!("there is no node {root}")))?;
        // Where the splits of this tree are in the lists; their place here is their place in the tree, until leaves
        // follow.
        let (mut order, mut next) = (vec![root], 0);
        let mut children = Vec::new();
        while let Some(at) = order.get(next).copied() {
            next += 1;
            if std::mem::replace(&mut taken[at], true) {
                return Err(node.problem("nodes_truenodeids", format!("node {at} has more than one parent")));
            }
            let sides = [(self.then[at], self.then_leaf[at]), (self.otherwise[at], self.otherwise_leaf[at])];
            // A tree that is a leaf is a split with this leaf on both sides.
            for (index, is_leaf) in sides {
                if is_leaf == 0 {
                    children.push(Child::Split(order.len()));
                    order.push(split(index).ok_or_else(|| unknown(index))?);
                } else {
                    let leaf = usize::try_from(index).ok().filter(|index| *index < self.weights.len());
                    children.push(Child::Leaf(leaf.ok_or_else(|| unknown(index))?));
                }
            }
        }
        let mut leaves = Vec::new();
        for (at, sides) in order.iter().zip(children.chunks(2)) {
            let mut place = |child: &Child| match child {
                Child::Split(index) => *index,
                Child::Leaf(leaf) => {
                    leaves.push(*leaf);
                    order.len() + leaves.len() - 1
                }
            };
            let sides = [place(&sides[0]), place(&sides[1])];
            let passes = self.missing.get(*at).is_some_and(|tracks| *tracks != 0);
            let test = self.test(node, *at, &mut tree)?;
            tree.nodes.push(SourceNode::Branch(branch(node, test, (self.features[*at], passes), sides)?));
        }
        for leaf in leaves {
            let output = u32::try_from(self.targets[leaf]);
            let output = output.map_err(|_| node.problem("leaf_targetids", "a target must not be negative"))?;
            tree.nodes.push(SourceNode::Leaf { first: tree.votes.len(), count: 1 });
            tree.votes.push(Vote { output, value: self.weights[leaf] });
        }
        Ok(tree)
    }

    /// The test of a split; its set becomes one of `tree`.
    fn test(&self, node: &Node<'_>, at: usize, tree: &mut SourceTree) -> Result<Test, ImportError> {
        let value = self.splits[at];
        Ok(match self.modes[at] {
            0 => Test::AtMost(value),
            1 => Test::Below(value),
            2 => Test::AtLeast(value),
            3 => Test::Above(value),
            4 => Test::Equal(value),
            5 => Test::NotEqual(value),
            6 => {
                let set = self.sets.get(self.set_of[at] as usize);
                tree.sets.push(set.ok_or_else(|| node.problem("membership_values", "a node has no set"))?.clone());
                Test::Member(tree.sets.len() as u32 - 1)
            }
            other => return Err(node.problem("nodes_modes", format!("the mode {other} is not known"))),
        })
    }
}

/// A child of a split.
enum Child {
    /// The place of a split in the order of its tree.
    Split(usize),
    /// The index of a leaf in the lists.
    Leaf(usize),
}
