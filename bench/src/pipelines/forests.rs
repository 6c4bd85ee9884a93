//! Invented ensembles of trees.

use celeris_cli::Failure;
use celeris_pipelines::trees::{
    Aggregate, Branch, Builder, Missing, Shape, SourceNode, SourceTree, Test, Transform, TreeEnsemble, Vote, Zeros,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The size of an ensemble of complete trees.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub columns: usize,
    pub trees: usize,
    /// Splits between the root and each leaf.
    pub depth: u32,
    /// Trees vote for them in turn.
    pub outputs: usize,
}

/// An ensemble with random splits. `threshold` draws one for a column, so that rows take all ways.
///
/// # Errors
/// If the size is beyond the limits.
pub fn grow(
    size: Size,
    rng: &mut ChaCha8Rng,
    threshold: impl Fn(&mut ChaCha8Rng, usize) -> f64,
) -> Result<TreeEnsemble, Failure> {
    let base = vec![0.0; size.outputs];
    let shape = Shape { inputs: size.columns, base, aggregate: Aggregate::Sum, transform: Transform::None };
    let mut builder = Builder::new(shape).map_err(Failure::other)?;
    let (splits, leaves) = ((1 << size.depth) - 1, 1 << size.depth);
    for number in 0..size.trees {
        let mut tree = SourceTree::default();
        for node in 0..splits {
            let column = rng.random_range(0..size.columns);
            tree.nodes.push(SourceNode::Branch(Branch {
                feature: u32::try_from(column).map_err(Failure::other)?,
                test: Test::AtMost(threshold(rng, column)),
                missing: Missing::Otherwise,
                zeros: Zeros::Numbers,
                then: 2 * node + 1,
                otherwise: 2 * node + 2,
            }));
        }
        for leaf in 0..leaves {
            tree.nodes.push(SourceNode::Leaf { first: leaf, count: 1 });
            let output = u32::try_from(number % size.outputs).map_err(Failure::other)?;
            tree.votes.push(Vote { output, value: rng.random_range(-1.0..1.0) });
        }
        builder.add(&tree).map_err(Failure::other)?;
    }
    builder.finish().map_err(Failure::other)
}
