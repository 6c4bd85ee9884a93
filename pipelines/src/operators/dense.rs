//! Operators over dense vectors.

use super::Inputs;
use super::categorical::each_text;
use crate::networks::Network;
use crate::objects::{Centroids, Components, EmbeddingTable};
use crate::spec::ClusterOutput;
use crate::trees::TreeEnsemble;
use crate::values::{Slot, View, bounded};

/// The mean of the vectors of all known categories, or zeros.
pub(super) fn embedding(table: &EmbeddingTable, input: View, out: &mut Slot) {
    let entries = out.dense();
    entries.resize(table.dim(), 0.0);
    if let View::Category(category) = input {
        if let Some(row) = table.row(category as usize) {
            entries.copy_from_slice(row);
        }
        return;
    }
    let mut known = 0.0;
    each_text(input, |text| {
        if let Some(row) = table.keys().column(text).and_then(|row| table.row(row as usize)) {
            known += 1.0;
            entries.iter_mut().zip(row).for_each(|(entry, value)| *entry += value);
        }
    });
    if known > 1.0 {
        entries.iter_mut().for_each(|entry| *entry /= known);
    }
    entries.iter_mut().for_each(|entry| *entry = bounded(f64::from(*entry)));
}

/// The entries of a number or a dense vector.
fn entries<'a>(input: &'a View<'a>) -> &'a [f32] {
    match input {
        View::Number(number) => std::slice::from_ref(number),
        View::Dense(numbers) => numbers,
        _ => &[],
    }
}

/// The product of each component with the difference from the mean, which is 0 for a missing entry.
pub(super) fn pca(components: &Components, input: View, out: &mut Slot) {
    let numbers = entries(&input);
    let coordinate = |row: &[f32]| {
        let differences = numbers.iter().zip(components.mean());
        let products = row.iter().zip(differences).map(|(weight, (number, mean))| {
            let difference = if number.is_nan() { 0.0 } else { f64::from(*number) - f64::from(*mean) };
            f64::from(*weight) * difference
        });
        bounded(products.sum())
    };
    out.dense().extend(components.rows().map(coordinate));
}

/// Euclidean distances to the centers, or the nearest of them: the first one of several.
pub(super) fn kmeans(centroids: &Centroids, gives: ClusterOutput, input: View, out: &mut Slot) {
    let numbers = entries(&input);
    let squared = |row: &[f32]| {
        let differences = numbers.iter().zip(row).map(|(number, center)| {
            let number = if number.is_nan() { 0.0 } else { f64::from(*number) };
            number - f64::from(*center)
        });
        differences.map(|difference| difference * difference).sum::<f64>()
    };
    match gives {
        ClusterOutput::Distances => out.dense().extend(centroids.rows().map(|row| bounded(squared(row).sqrt()))),
        ClusterOutput::Cluster => {
            let nearest = (0..).zip(centroids.rows().map(squared)).min_by(|one, other| one.1.total_cmp(&other.1));
            out.set_category(nearest.map_or(0, |(cluster, _)| cluster));
        }
    }
}

/// The outputs of an ensemble of trees.
pub(super) fn trees(trees: &TreeEnsemble, input: View, row: &mut Vec<f32>, out: &mut Slot) {
    row.clear();
    row.resize(trees.inputs(), 0.0);
    write_row(input, row);
    let outputs = out.dense();
    outputs.resize(trees.outputs(), 0.0);
    trees.score(row, outputs);
    outputs.iter_mut().for_each(|output| *output = bounded(f64::from(*output)));
}

/// The outputs of a graph of ONNX operators. A missing entry counts as 0.
pub(super) fn onnx<I: Inputs + ?Sized>(network: &Network, inputs: &I, row: &mut Vec<f32>, out: &mut Slot) {
    row.clear();
    for (input, columns) in network.inputs().iter().enumerate() {
        let begin = row.len();
        row.resize(begin + columns, 0.0);
        write_row(inputs.get(input), &mut row[begin..]);
    }
    row.iter_mut().filter(|number| number.is_nan()).for_each(|number| *number = 0.0);
    network.run(row, out.dense());
}

/// Writes a vector as trees read it, over zeros. Columns that a sparse vector does not have are 0.
fn write_row(input: View, row: &mut [f32]) {
    match input {
        View::Number(number) => row.fill(number),
        View::Dense(numbers) => row.copy_from_slice(numbers),
        View::Sparse(columns, numbers) => {
            columns.iter().zip(numbers).for_each(|(column, number)| row[*column as usize] = *number);
        }
        _ => {}
    }
}

/// Rows of a batch for an ensemble of trees, which scores many faster than one by one, with the same bits.
#[derive(Debug, Default)]
pub struct TreeRows {
    rows: Vec<f32>,
    outputs: Vec<f32>,
}

impl TreeRows {
    /// Forgets the rows of another batch.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// Adds the input of a record.
    pub fn push(&mut self, trees: &TreeEnsemble, input: View) {
        let begin = self.rows.len();
        self.rows.resize(begin + trees.inputs(), 0.0);
        write_row(input, &mut self.rows[begin..]);
    }

    /// Computes the outputs of all rows.
    pub fn score(&mut self, trees: &TreeEnsemble) {
        self.outputs.clear();
        self.outputs.resize(self.rows.len() / trees.inputs() * trees.outputs(), 0.0);
        trees.score_rows(&self.rows, &mut self.outputs);
        self.outputs.iter_mut().for_each(|output| *output = bounded(f64::from(*output)));
    }

    /// The outputs of each row, in the order in which they were added.
    pub fn outputs(&self, trees: &TreeEnsemble) -> impl Iterator<Item = &[f32]> {
        self.outputs.chunks_exact(trees.outputs())
    }
}
