//! Votes of leaves to outputs.

use super::walk::LANES;
use super::{Aggregate, Node, OUTPUTS_MAX, Transform, Tree, TreeEnsemble};

/// Rows whose sums are kept at once; a multiple of `LANES`.
const BLOCK_ROWS: usize = 64;
/// Trees of a block have up to this many nodes together, that is 32 KiB of a first-level cache, unless one tree has
/// more.
const BLOCK_NODES: u32 = 2048;
/// Rows of up to this length are transposed, so that the values of a feature for all lanes lie side by side.
const COLUMNS: usize = 256;

impl TreeEnsemble {
    /// Computes the outputs of one row.
    ///
    /// `row` has `inputs()` values, of which NaN is a missing one; `out` has `outputs()`. Outputs are finite: larger
    /// ones become the largest f32.
    pub fn score(&self, row: &[f32], out: &mut [f32]) {
        debug_assert_eq!(row.len(), self.inputs);
        debug_assert_eq!(out.len(), self.outputs());
        let mut sums = [0.0; OUTPUTS_MAX];
        let sums = &mut sums[..self.base.len()];
        sums.fill(self.aggregate.start());
        let numbers = !row.iter().any(|value| value.is_nan());
        for trees in self.trees.chunks(LANES) {
            match <&[Tree; LANES]>::try_from(trees) {
                Ok(trees) => {
                    let depth = trees.iter().map(|tree| tree.depth).max().unwrap_or(0);
                    let roots = trees.map(|tree| tree.root);
                    let x = |node: &Node| row[usize::from(node.feature)];
                    let leaves = if !trees.iter().all(|tree| tree.plain) {
                        self.leaves(roots, depth, |_, node| node.step_of_any(x(node), &self.sets))
                    } else if numbers {
                        self.leaves(roots, depth, |_, node| node.step_of_number(x(node)))
                    } else {
                        self.leaves(roots, depth, |_, node| node.step(x(node)))
                    };
                    leaves.into_iter().for_each(|leaf| self.vote(leaf, sums));
                }
                Err(_) => trees.iter().for_each(|tree| self.vote(self.leaf(*tree, row), sums)),
            }
        }
        self.finish(sums, out);
    }

    /// Computes the outputs of many rows: the same bits as [`score`](Self::score) of each.
    ///
    /// `rows` is row-major with `inputs()` columns, `out` row-major with `outputs()`. Blocks of trees pass over blocks
    /// of rows, so that a block of trees stays in the cache of the processor.
    pub fn score_rows(&self, rows: &[f32], out: &mut [f32]) {
        debug_assert_eq!(rows.len() % self.inputs, 0);
        let outputs = self.base.len();
        let mut sums = [0.0; BLOCK_ROWS * OUTPUTS_MAX];
        let results = out.chunks_mut(BLOCK_ROWS * self.outputs());
        for (rows, out) in rows.chunks(BLOCK_ROWS * self.inputs).zip(results) {
            let count = rows.len() / self.inputs;
            let whole = count - count % LANES;
            let sums = &mut sums[..whole * outputs];
            sums.fill(self.aggregate.start());
            let mut trees = self.trees.as_slice();
            while !trees.is_empty() {
                let (block, rest) = trees.split_at(self.block(trees));
                self.add_block(block, rows, sums);
                trees = rest;
            }
            let (lanes, others) = out.split_at_mut(whole * self.outputs());
            for (sums, out) in sums.chunks_mut(outputs).zip(lanes.chunks_mut(self.outputs())) {
                self.finish(sums, out);
            }
            let rows = rows[whole * self.inputs..].chunks(self.inputs);
            rows.zip(others.chunks_mut(self.outputs())).for_each(|(row, out)| self.score(row, out));
        }
    }

    /// How many of `trees`, from the first on, make a block.
    fn block(&self, trees: &[Tree]) -> usize {
        let end = trees[0].root + BLOCK_NODES;
        trees.partition_point(|tree| tree.root < end).max(1)
    }

    /// Adds the votes of `trees` to the sums of as many rows as `sums` has; that is a multiple of `LANES`.
    fn add_block(&self, trees: &[Tree], rows: &[f32], sums: &mut [f64]) {
        let outputs = self.base.len();
        let groups = rows.chunks_exact(LANES * self.inputs).zip(sums.chunks_exact_mut(LANES * outputs));
        let mut columns = [[0.0; LANES]; COLUMNS];
        for (rows, sums) in groups {
            let row = |lane: usize| &rows[lane * self.inputs..][..self.inputs];
            let lanes: [&[f32]; LANES] = std::array::from_fn(row);
            for (feature, column) in columns[..self.inputs.min(COLUMNS)].iter_mut().enumerate() {
                *column = lanes.map(|row| row[feature]);
            }
            let numbers = !rows.iter().any(|value| value.is_nan());
            for tree in trees {
                let roots = [tree.root; LANES];
                let column = |node: &Node| &columns[usize::from(node.feature)];
                let leaves = match (tree.plain, self.inputs <= COLUMNS) {
                    (_, false) => self.leaves(roots, tree.depth, |lane, node| {
                        node.step_of_any(lanes[lane][usize::from(node.feature)], &self.sets)
                    }),
                    (false, true) => {
                        self.leaves(roots, tree.depth, |lane, node| node.step_of_any(column(node)[lane], &self.sets))
                    }
                    (true, true) if numbers => {
                        self.leaves(roots, tree.depth, |lane, node| node.step_of_number(column(node)[lane]))
                    }
                    (true, true) => self.leaves(roots, tree.depth, |lane, node| node.step(column(node)[lane])),
                };
                for (leaf, sums) in leaves.into_iter().zip(sums.chunks_exact_mut(outputs)) {
                    self.vote(leaf, sums);
                }
            }
        }
    }

    #[inline]
    fn vote(&self, leaf: u32, sums: &mut [f64]) {
        let leaves = &self.leaves;
        let leaf = leaf as usize;
        if leaves.starts.is_empty() {
            self.aggregate.add(&mut sums[0], leaves.values[leaf]);
            return;
        }
        let votes = leaves.starts[leaf] as usize..leaves.starts[leaf + 1] as usize;
        for (output, value) in leaves.outputs[votes.clone()].iter().zip(&leaves.values[votes]) {
            self.aggregate.add(&mut sums[usize::from(*output)], *value);
        }
    }

    /// Aggregated votes to outputs.
    fn finish(&self, sums: &mut [f64], out: &mut [f32]) {
        for (sum, base) in sums.iter_mut().zip(&self.base) {
            *sum = self.aggregate.end(*sum, self.trees.len()) + base;
        }
        match self.transform {
            Transform::None => write(out, sums.iter().copied()),
            Transform::Logistic => write(out, sums.iter().map(|sum| logistic(*sum))),
            Transform::Exp => write(out, sums.iter().map(|sum| sum.exp())),
            Transform::Complement => write(out, [1.0 - sums[0], sums[0]]),
            Transform::LogisticPair => write(out, [logistic(-sums[0]), logistic(sums[0])]),
            Transform::Opposite => write(out, [-sums[0], sums[0]]),
            Transform::Softmax => {
                let largest = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                sums.iter_mut().for_each(|sum| *sum = (*sum - largest).exp());
                let total: f64 = sums.iter().sum();
                write(out, sums.iter().map(|sum| sum / total));
            }
        }
    }
}

impl Aggregate {
    /// The aggregate of no votes.
    fn start(self) -> f64 {
        match self {
            Self::Sum | Self::Average => 0.0,
            Self::Min => f64::INFINITY,
            Self::Max => f64::NEG_INFINITY,
        }
    }

    #[inline]
    fn add(self, sum: &mut f64, value: f32) {
        let value = f64::from(value);
        match self {
            Self::Sum | Self::Average => *sum += value,
            Self::Min => *sum = sum.min(value),
            Self::Max => *sum = sum.max(value),
        }
    }

    fn end(self, sum: f64, trees: usize) -> f64 {
        match self {
            Self::Sum => sum,
            Self::Average => sum / trees as f64,
            // Infinite only without votes, which are finite.
            Self::Min | Self::Max => {
                if sum.is_finite() {
                    sum
                } else {
                    0.0
                }
            }
        }
    }
}

fn logistic(sum: f64) -> f64 {
    1.0 / (1.0 + (-sum).exp())
}

fn write(out: &mut [f32], values: impl IntoIterator<Item = f64>) {
    let bound = f64::from(f32::MAX);
    out.iter_mut().zip(values).for_each(|(out, value)| *out = value.clamp(-bound, bound) as f32);
}
