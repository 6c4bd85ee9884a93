//! One tree of a model.

use super::ImportError;
use super::lines::{Line, Lines};
use crate::trees::{Branch, MEMBER_MAX, Missing, SourceNode, SourceTree, Test, Vote, Zeros};

/// Bit 0 of a decision type: the split is by categories.
const CATEGORICAL: u8 = 1;
/// Bit 1: missing values go to the left.
const DEFAULT_LEFT: u8 = 2;

/// Maximum number of leaves of a tree: that of LightGBM itself.
const LEAVES_MAX: usize = 1 << 17;
/// Maximum size of the sets of a tree, in words of 32 categories.
const WORDS_MAX: usize = 1 << 17;

/// The lines of a block that its structure needs.
#[derive(Default)]
struct Block<'a> {
    leaves: Option<Line<'a>>,
    categorical: Option<Line<'a>>,
    features: Option<Line<'a>>,
    thresholds: Option<Line<'a>>,
    decisions: Option<Line<'a>>,
    left: Option<Line<'a>>,
    right: Option<Line<'a>>,
    values: Option<Line<'a>>,
    boundaries: Option<Line<'a>>,
    members: Option<Line<'a>>,
    linear: Option<Line<'a>>,
}

/// Reads the block that the line `title` begins. Each leaf has one vote, for output 0.
///
/// # Errors
/// A key that is missing, occurs twice or has a value that does not fit the others; a linear tree.
pub(super) fn read(title: Line<'_>, lines: &mut Lines<'_>) -> Result<SourceTree, ImportError> {
    let mut block = Block::default();
    while let Some(line) = lines.next_unless(|line| line.starts_with("Tree=") || line == "end of trees")? {
        let place = match line.pair().map(|(key, _)| key) {
            Some("num_leaves") => &mut block.leaves,
            Some("num_cat") => &mut block.categorical,
            Some("split_feature") => &mut block.features,
            Some("threshold") => &mut block.thresholds,
            Some("decision_type") => &mut block.decisions,
            Some("left_child") => &mut block.left,
            Some("right_child") => &mut block.right,
            Some("leaf_value") => &mut block.values,
            Some("cat_boundaries") => &mut block.boundaries,
            Some("cat_threshold") => &mut block.members,
            Some("is_linear") => &mut block.linear,
            _ => continue,
        };
        if place.replace(line).is_some() {
            return Err(line.problem("the key occurs twice in a tree"));
        }
    }
    if let Some(line) = block.linear.filter(|line| line.value() != "0") {
        return Err(line.problem("linear trees are not supported"));
    }
    let leaves = title.needs(block.leaves, "num_leaves")?.integer(1, LEAVES_MAX)?;
    let values: Vec<f64> = title.needs(block.values, "leaf_value")?.list(leaves)?;
    let votes = values.into_iter().map(|value| Vote { output: 0, value }).collect();
    let splits = leaves - 1;
    let mut tree = SourceTree { votes, ..SourceTree::default() };
    if splits > 0 {
        let features: Vec<u32> = title.needs(block.features, "split_feature")?.list(splits)?;
        let threshold_line = title.needs(block.thresholds, "threshold")?;
        let thresholds: Vec<f64> = threshold_line.list(splits)?;
        let decision_line = title.needs(block.decisions, "decision_type")?;
        let decisions: Vec<u8> = decision_line.list(splits)?;
        let children = [title.needs(block.left, "left_child")?, title.needs(block.right, "right_child")?];
        let (left, right): (Vec<i64>, Vec<i64>) = (children[0].list(splits)?, children[1].list(splits)?);
        tree.sets = read_sets(&block)?;
        for split in 0..splits {
            let decision = decisions[split];
            let threshold = thresholds[split];
            let (test, missing, zeros) = if decision & CATEGORICAL == 0 {
                let Some((missing, zeros)) = read_missing(decision, threshold) else {
                    return Err(decision_line.problem(format!("the decision type {decision} is not known")));
                };
                (Test::AtMost(threshold), missing, zeros)
            } else if threshold >= 0.0 && threshold < tree.sets.len() as f64 && threshold.fract() == 0.0 {
                // LightGBM takes a missing category for one outside of the set, whatever the type of missing values.
                (Test::In(threshold as u32), Missing::Otherwise, Zeros::Numbers)
            } else {
                return Err(threshold_line.problem(format!("the tree has no set of categories {threshold}")));
            };
            let then = child(left[split], children[0], splits, leaves)?;
            let otherwise = child(right[split], children[1], splits, leaves)?;
            tree.nodes.push(SourceNode::Branch(Branch {
                feature: features[split],
                test,
                missing,
                zeros,
                then,
                otherwise,
            }));
        }
    }
    tree.nodes.extend((0..leaves).map(|leaf| SourceNode::Leaf { first: leaf, count: 1 }));
    Ok(tree)
}

/// The node that a child refers to: a split, or, with all its bits inverted, a leaf. Leaves follow the splits.
fn child(reference: i64, line: Line<'_>, splits: usize, leaves: usize) -> Result<usize, ImportError> {
    let (place, count, first) = if reference < 0 { (!reference, leaves, splits) } else { (reference, splits, 0) };
    let place = usize::try_from(place).ok().filter(|place| *place < count);
    place.map(|place| first + place).ok_or_else(|| line.problem(format!("the tree has no node {reference}")))
}

/// Where missing values go at a split with a threshold; `None` if the type of missing values is not known.
fn read_missing(decision: u8, threshold: f64) -> Option<(Missing, Zeros)> {
    let default = if decision & DEFAULT_LEFT == 0 { Missing::Otherwise } else { Missing::Then };
    match decision >> 2 {
        // NaN is taken for 0.
        0 => Some((if 0.0 <= threshold { Missing::Then } else { Missing::Otherwise }, Zeros::Numbers)),
        1 => Some((default, Zeros::Missing)),
        2 => Some((default, Zeros::Numbers)),
        _ => None,
    }
}

/// The sets of categories: words of 32 bits, with the boundaries of each set.
fn read_sets(block: &Block<'_>) -> Result<Vec<Vec<u32>>, ImportError> {
    let count = block.categorical.map_or(Ok(0), |line| line.integer(0, LEAVES_MAX))?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let (Some(boundary_line), Some(member_line)) = (block.boundaries, block.members) else {
        let line = block.categorical.map_or(0, |line| line.number);
        let problem = "a tree with categorical splits needs cat_boundaries and cat_threshold".to_owned();
        return Err(ImportError::Line { line, key: "num_cat".to_owned(), problem });
    };
    let boundaries: Vec<usize> = boundary_line.list(count + 1)?;
    let words = boundaries.last().copied().unwrap_or(0);
    if words > WORDS_MAX || boundaries[0] != 0 || !boundaries.is_sorted() {
        let problem = format!("boundaries must ascend from 0 to at most {WORDS_MAX}");
        return Err(boundary_line.problem(problem));
    }
    let words: Vec<u32> = member_line.list(words)?;
    let mut sets = Vec::with_capacity(count);
    for pair in boundaries.windows(2) {
        let set = &words[pair[0]..pair[1]];
        if set.len() > MEMBER_MAX as usize / 32 + 1 {
            return Err(boundary_line.problem(format!("a category must be at most {MEMBER_MAX}")));
        }
        let members = (0..set.len() as u32 * 32).filter(|member| set[*member as usize / 32] >> (member % 32) & 1 == 1);
        sets.push(members.collect());
    }
    Ok(sets)
}
