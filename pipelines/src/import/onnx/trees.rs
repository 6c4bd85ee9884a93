//! `TreeEnsembleRegressor` and `TreeEnsembleClassifier`, of versions 1 and 3 of `ai.onnx.ml`.

use super::super::ImportError;
use crate::onnx::model::Node;
use crate::trees::{
    Aggregate, Branch, Builder, INPUTS_MAX, Missing, NODES_MAX, OUTPUTS_MAX, Shape, SourceNode, SourceTree, Test,
    Transform, TreeEnsemble, VOTES_MAX, Vote, Zeros,
};

/// Reads a `TreeEnsembleRegressor` of rows with `inputs` values.
///
/// The transform of a single target is applied, as the specification says and exporters of XGBoost expect; ONNX Runtime
/// ignores it.
pub(super) fn regressor(node: &Node<'_>, inputs: usize) -> Result<TreeEnsemble, ImportError> {
    let outputs = count(node, "n_targets", 1)?;
    let aggregate = match node.text("aggregate_function")? {
        "" | "SUM" => Aggregate::Sum,
        "AVERAGE" => Aggregate::Average,
        "MIN" => Aggregate::Min,
        "MAX" => Aggregate::Max,
        _ => return Err(node.problem("aggregate_function", "it must be SUM, AVERAGE, MIN or MAX")),
    };
    let transform = transform(node)?;
    if outputs == 1 && transform == Transform::Softmax {
        return Err(node.problem("post_transform", "a softmax of one target is 1"));
    }
    let votes = Votes::read(node, "target")?;
    let base = base(node, outputs)?;
    build(node, Shape { inputs, base, aggregate, transform }, &votes)
}

/// Reads a `TreeEnsembleClassifier` of rows with `inputs` values: the scores of the classes.
///
/// Two classes with votes for the first alone are one sum for the second, as in ONNX Runtime.
pub(super) fn classifier(node: &Node<'_>, inputs: usize) -> Result<TreeEnsemble, ImportError> {
    let labels = node
        .texts("classlabels_strings", OUTPUTS_MAX)?
        .len()
        .max(node.list::<i64>("classlabels_int64s", OUTPUTS_MAX)?.len());
    if !(2..=OUTPUTS_MAX).contains(&labels) {
        return Err(node.problem("classlabels", format!("there must be 2 to {OUTPUTS_MAX} classes, got {labels}")));
    }
    let votes = Votes::read(node, "class")?;
    let transform = transform(node)?;
    let single = labels == 2 && votes.outputs.iter().all(|output| *output == 0);
    let (transform, outputs) = match transform {
        transform if !single => (transform, labels),
        Transform::Logistic => (Transform::LogisticPair, 1),
        _ if votes.values.iter().all(|value| *value >= 0.0) => (Transform::Complement, 1),
        _ => (Transform::Opposite, 1),
    };
    let base = base(node, outputs)?;
    if outputs == 2 && base.iter().any(|base| *base != 0.0) {
        return Err(node.problem("base_values", "base values of two classes with votes for each are not supported"));
    }
    build(node, Shape { inputs, base, aggregate: Aggregate::Sum, transform }, &votes)
}

/// The votes of a node, sorted by tree and leaf.
struct Votes {
    /// Tree and node of each.
    places: Vec<(i64, i64)>,
    outputs: Vec<i64>,
    values: Vec<f64>,
}

impl Votes {
    /// Reads the attributes with the prefix `target` or `class`.
    fn read(node: &Node<'_>, prefix: &str) -> Result<Self, ImportError> {
        let list = |suffix: &str| node.list::<i64>(&format!("{prefix}_{suffix}"), VOTES_MAX);
        let (trees, nodes, outputs) = (list("treeids")?, list("nodeids")?, list("ids")?);
        let values = node.numbers(&format!("{prefix}_weights"), VOTES_MAX)?;
        if [nodes.len(), outputs.len(), values.len()] != [trees.len(); 3] {
            return Err(node.problem(&format!("{prefix}_ids"), "the lists of votes differ in length"));
        }
        let places: Vec<(i64, i64)> = trees.into_iter().zip(nodes).collect();
        if places.is_sorted() {
            return Ok(Self { places, outputs, values });
        }
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_by_key(|vote| places[*vote as usize]);
        Ok(Self {
            outputs: order.iter().map(|vote| outputs[*vote as usize]).collect(),
            values: order.iter().map(|vote| values[*vote as usize]).collect(),
            places: order.iter().map(|vote| places[*vote as usize]).collect(),
        })
    }
}

/// The lists of the nodes of all trees.
struct Nodes<'a> {
    features: Vec<i64>,
    values: Vec<f64>,
    modes: Vec<&'a str>,
    then: Vec<i64>,
    otherwise: Vec<i64>,
    /// Empty if missing values never pass.
    missing: Vec<i64>,
    /// Tree, node and place in the lists, sorted.
    places: Vec<(i64, i64, u32)>,
}

impl<'a> Nodes<'a> {
    fn read(node: &Node<'a>) -> Result<Self, ImportError> {
        let list = |name: &str| node.list::<i64>(name, NODES_MAX);
        let (trees, ids) = (list("nodes_treeids")?, list("nodes_nodeids")?);
        let count = trees.len();
        let nodes = Self {
            features: list("nodes_featureids")?,
            values: node.numbers("nodes_values", NODES_MAX)?,
            modes: node.texts("nodes_modes", NODES_MAX)?,
            then: list("nodes_truenodeids")?,
            otherwise: list("nodes_falsenodeids")?,
            missing: list("nodes_missing_value_tracks_true")?,
            places: Vec::new(),
        };
        let lengths = [
            ids.len(),
            nodes.features.len(),
            nodes.values.len(),
            nodes.modes.len(),
            nodes.then.len(),
            nodes.otherwise.len(),
        ];
        if lengths != [count; 6] || !(nodes.missing.is_empty() || nodes.missing.len() == count) {
            return Err(node.problem("nodes_treeids", "the lists of nodes differ in length"));
        }
        let mut places: Vec<(i64, i64, u32)> =
            trees.into_iter().zip(ids).zip(0..).map(|((t, n), i)| (t, n, i)).collect();
        places.sort_unstable();
        if let Some(pair) = places.windows(2).find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)) {
            return Err(node.problem("nodes_nodeids", format!("tree {} has node {} twice", pair[0].0, pair[0].1)));
        }
        Ok(Self { places, ..nodes })
    }
}

/// Builds the trees of versions 1 and 3.
fn build(node: &Node<'_>, shape: Shape, votes: &Votes) -> Result<TreeEnsemble, ImportError> {
    let nodes = Nodes::read(node)?;
    let mut builder = Builder::new(shape)?;
    let mut vote = 0;
    for places in nodes.places.chunk_by(|one, other| one.0 == other.0) {
        let (id, first, _) = places[0];
        if first != 0 {
            return Err(node.problem("nodes_nodeids", format!("tree {id} has no node 0")));
        }
        let end = vote + votes.places[vote..].partition_point(|place| place.0 <= id);
        let tree = tree(node, &nodes, places, (votes, vote..end))?;
        vote = end;
        builder.add(&tree)?;
    }
    if vote < votes.places.len() {
        return Err(node.problem("treeids", "there is a vote of a tree that has no nodes"));
    }
    Ok(builder.finish()?)
}

/// The tree with nodes at `places`, and those of its votes.
fn tree(
    node: &Node<'_>,
    nodes: &Nodes<'_>,
    places: &[(i64, i64, u32)],
    (votes, range): (&Votes, std::ops::Range<usize>),
) -> Result<SourceTree, ImportError> {
    let mut tree = SourceTree::default();
    let missing_child = |id: i64| node.problem("nodes_truenodeids", format!("tree {} has no node {id}", places[0].0));
    // Numbers from 0 without gaps, which all known exporters write, are found without a search.
    let find = |id: i64| match usize::try_from(id).ok().filter(|at| places.get(*at).is_some_and(|place| place.1 == id))
    {
        Some(at) => Ok(at),
        None => places.binary_search_by_key(&id, |place| place.1).map_err(|_| missing_child(id)),
    };
    let mut vote = range.start;
    for (_, id, at) in places {
        let at = *at as usize;
        let value = nodes.values[at];
        let test = match nodes.modes[at] {
            "LEAF" => {
                let count = votes.places[vote..range.end].iter().take_while(|place| place.1 == *id).count();
                let first = tree.votes.len();
                for vote in vote..vote + count {
                    let output = u32::try_from(votes.outputs[vote]);
                    let output =
                        output.map_err(|_| node.problem("ids", "the vote for a negative output does not exist"))?;
                    tree.votes.push(Vote { output, value: votes.values[vote] });
                }
                vote += count;
                tree.nodes.push(SourceNode::Leaf { first, count });
                continue;
            }
            "BRANCH_LEQ" => Test::AtMost(value),
            "BRANCH_LT" => Test::Below(value),
            "BRANCH_GTE" => Test::AtLeast(value),
            "BRANCH_GT" => Test::Above(value),
            "BRANCH_EQ" => Test::Equal(value),
            "BRANCH_NEQ" => Test::NotEqual(value),
            _ => return Err(node.problem("nodes_modes", format!("the mode of node {id} is not known"))),
        };
        let passes = nodes.missing.get(at).is_some_and(|tracks| *tracks != 0);
        let (then, otherwise) = (find(nodes.then[at])?, find(nodes.otherwise[at])?);
        tree.nodes.push(SourceNode::Branch(branch(node, test, (nodes.features[at], passes), [then, otherwise])?));
    }
    if vote < range.end {
        let (tree, leaf) = votes.places[vote];
        return Err(node.problem("nodeids", format!("node {leaf} of tree {tree} has a vote and is not a leaf")));
    }
    Ok(tree)
}

/// A split of `feature`, where `passes` tells whether a missing value passes the test.
pub(super) fn branch(
    node: &Node<'_>,
    test: Test,
    (feature, passes): (i64, bool),
    [then, otherwise]: [usize; 2],
) -> Result<Branch, ImportError> {
    let feature = u32::try_from(feature).ok().filter(|feature| (*feature as usize) < INPUTS_MAX);
    let feature =
        feature.ok_or_else(|| node.problem("nodes_featureids", format!("features are 0 to {}", INPUTS_MAX - 1)))?;
    // NaN is not equal to any value.
    let passes = passes || matches!(test, Test::NotEqual(_));
    let missing = if passes { Missing::Then } else { Missing::Otherwise };
    Ok(Branch { feature, test, missing, zeros: Zeros::Numbers, then, otherwise })
}

fn transform(node: &Node<'_>) -> Result<Transform, ImportError> {
    match node.text("post_transform")? {
        "" | "NONE" => Ok(Transform::None),
        "LOGISTIC" => Ok(Transform::Logistic),
        "SOFTMAX" => Ok(Transform::Softmax),
        other => Err(node.problem("post_transform", format!("{other} is not supported"))),
    }
}

fn base(node: &Node<'_>, outputs: usize) -> Result<Vec<f64>, ImportError> {
    let base = node.numbers("base_values", OUTPUTS_MAX)?;
    match base.len() {
        0 => Ok(vec![0.0; outputs]),
        count if count == outputs => Ok(base),
        count => Err(node.problem("base_values", format!("there must be none or {outputs}, got {count}"))),
    }
}

/// A number of outputs.
pub(super) fn count(node: &Node<'_>, name: &str, default: i64) -> Result<usize, ImportError> {
    let count = node.value(name)?.unwrap_or(default);
    let count = usize::try_from(count).ok().filter(|count| (1..=OUTPUTS_MAX).contains(count));
    count.ok_or_else(|| node.problem(name, format!("it must be 1 to {OUTPUTS_MAX}")))
}
