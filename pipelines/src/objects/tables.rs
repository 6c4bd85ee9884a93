//! Objects of numbers.

use super::Dictionary;
use super::codec::{Decoder, Encoder};
use crate::error::PipelineError;
use crate::limits::{CLUSTERS_MAX, COLUMNS_MAX, DENSE_MAX, EMBEDDINGS_MAX, OUTPUTS_MAX};

fn shape(fits: bool, problem: &str) -> Result<(), PipelineError> {
    if fits { Ok(()) } else { Err(PipelineError::object(problem)) }
}

fn finite(numbers: &[f32]) -> bool {
    numbers.iter().all(|number| number.is_finite())
}

/// Weights and biases of a linear model.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Length `outputs`.
    bias: Vec<f32>,
    /// Row-major `columns x outputs`: the weights of one column are adjacent, since sparse inputs look up columns.
    weights: Vec<f32>,
}

impl Weights {
    /// # Errors
    /// [`PipelineError::Object`] beyond the limits, for other shapes or numbers that are not finite.
    pub fn new(bias: Vec<f32>, weights: Vec<f32>) -> Result<Self, PipelineError> {
        shape((1..=OUTPUTS_MAX).contains(&bias.len()), "weights have 1 to 16 outputs")?;
        shape(weights.len().is_multiple_of(bias.len()), "weights are a row of outputs for each column")?;
        shape(weights.len() / bias.len() <= COLUMNS_MAX, "weights have at most 2^24 columns")?;
        shape(finite(&bias) && finite(&weights), "weights are finite")?;
        Ok(Self { bias, weights })
    }

    #[must_use]
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    #[must_use]
    pub fn columns(&self) -> usize {
        self.weights.len() / self.bias.len()
    }

    /// Length `outputs`.
    #[must_use]
    pub fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// Row-major `columns x outputs`.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        encoder.count(self.outputs());
        encoder.count(self.columns());
        encoder.floats(&self.bias);
        encoder.floats(&self.weights);
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let outputs = decoder.count("outputs", OUTPUTS_MAX)?;
        let columns = decoder.count("columns", COLUMNS_MAX)?;
        Self::new(decoder.floats(outputs)?, decoder.floats(columns * outputs)?)
    }
}

/// Inverse document frequencies, one for each column.
#[derive(Debug, Clone, PartialEq)]
pub struct Idf(Vec<f32>);

impl Idf {
    /// # Errors
    /// [`PipelineError::Object`] beyond the limits, or for numbers that are not finite.
    pub fn new(idf: Vec<f32>) -> Result<Self, PipelineError> {
        shape(idf.len() <= COLUMNS_MAX && finite(&idf), "frequencies are at most 2^24 finite numbers")?;
        Ok(Self(idf))
    }

    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        encoder.count(self.0.len());
        encoder.floats(&self.0);
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let count = decoder.count("columns", COLUMNS_MAX)?;
        Self::new(decoder.floats(count)?)
    }
}

/// Location and width of each column in the training: `(x - center) / width` is the scaled value.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// The mean, or the minimum when values are scaled to 0..1.
    centers: Vec<f64>,
    /// The standard deviation, or the range; 0 for a constant column, whose scaled value is 0.
    widths: Vec<f64>,
    /// The value that stands for a missing one.
    means: Vec<f64>,
}

impl Moments {
    /// # Errors
    /// [`PipelineError::Object`] for lists of different lengths, negative widths or numbers that are not finite.
    pub fn new(centers: Vec<f64>, widths: Vec<f64>, means: Vec<f64>) -> Result<Self, PipelineError> {
        let columns = centers.len();
        shape(columns == widths.len() && columns == means.len(), "moments have a center, a width and a mean a column")?;
        shape((1..=DENSE_MAX).contains(&columns), "moments have 1 to 4096 columns")?;
        let numbers = || centers.iter().chain(&widths).chain(&means);
        shape(numbers().all(|number| number.is_finite()), "moments are finite")?;
        shape(widths.iter().all(|width| *width >= 0.0), "widths are not negative")?;
        Ok(Self { centers, widths, means })
    }

    #[must_use]
    pub fn columns(&self) -> usize {
        self.centers.len()
    }

    /// The scaled value of a column; 0 for a constant one.
    #[must_use]
    pub fn scaled(&self, column: usize, value: f64) -> f64 {
        let width = self.widths[column];
        if width > 0.0 { (value - self.centers[column]) / width } else { 0.0 }
    }

    #[must_use]
    pub fn mean(&self, column: usize) -> f64 {
        self.means[column]
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        encoder.count(self.columns());
        [&self.centers, &self.widths, &self.means].into_iter().for_each(|numbers| encoder.doubles(numbers));
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let columns = decoder.count("columns", DENSE_MAX)?;
        Self::new(decoder.doubles(columns)?, decoder.doubles(columns)?, decoder.doubles(columns)?)
    }
}

/// Centers of clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Centroids {
    dim: usize,
    /// Row-major `clusters x dim`.
    rows: Vec<f32>,
}

impl Centroids {
    /// # Errors
    /// [`PipelineError::Object`] beyond the limits, for other shapes or numbers that are not finite.
    pub fn new(dim: usize, rows: Vec<f32>) -> Result<Self, PipelineError> {
        shape((1..=DENSE_MAX).contains(&dim), "centroids have 1 to 4096 columns")?;
        shape(rows.len().is_multiple_of(dim), "centroids are whole rows")?;
        shape((1..=CLUSTERS_MAX).contains(&(rows.len() / dim)), "there are 1 to 1024 clusters")?;
        shape(finite(&rows), "centroids are finite")?;
        Ok(Self { dim, rows })
    }

    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    #[must_use]
    pub fn clusters(&self) -> usize {
        self.rows.len() / self.dim
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.rows.chunks_exact(self.dim)
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        encoder.count(self.clusters());
        encoder.count(self.dim);
        encoder.floats(&self.rows);
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let clusters = decoder.count("clusters", CLUSTERS_MAX)?;
        let dim = decoder.count("columns", DENSE_MAX)?;
        Self::new(dim, decoder.floats(clusters * dim)?)
    }
}

/// The mean and the directions of a principal component analysis.
#[derive(Debug, Clone, PartialEq)]
pub struct Components {
    mean: Vec<f32>,
    /// Row-major `outputs x dim`.
    rows: Vec<f32>,
}

impl Components {
    /// # Errors
    /// [`PipelineError::Object`] beyond the limits, for other shapes or numbers that are not finite.
    pub fn new(mean: Vec<f32>, rows: Vec<f32>) -> Result<Self, PipelineError> {
        let dim = mean.len();
        shape((1..=DENSE_MAX).contains(&dim), "components have 1 to 4096 columns")?;
        shape(rows.len().is_multiple_of(dim), "components are whole rows")?;
        shape((1..=DENSE_MAX).contains(&(rows.len() / dim)), "there are 1 to 4096 components")?;
        shape(finite(&mean) && finite(&rows), "components are finite")?;
        Ok(Self { mean, rows })
    }

    #[must_use]
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    #[must_use]
    pub fn outputs(&self) -> usize {
        self.rows.len() / self.mean.len()
    }

    #[must_use]
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.rows.chunks_exact(self.mean.len())
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        encoder.count(self.outputs());
        encoder.count(self.dim());
        encoder.floats(&self.mean);
        encoder.floats(&self.rows);
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let outputs = decoder.count("components", DENSE_MAX)?;
        let dim = decoder.count("columns", DENSE_MAX)?;
        Self::new(decoder.floats(dim)?, decoder.floats(outputs * dim)?)
    }
}

/// Vectors of categories.
#[derive(Debug)]
pub struct EmbeddingTable {
    /// Names of the rows; empty if rows are looked up by the number of a category.
    keys: Dictionary,
    dim: usize,
    /// Row-major `rows x dim`.
    rows: Vec<f32>,
}

impl EmbeddingTable {
    /// # Errors
    /// [`PipelineError::Object`] beyond the limits, for other shapes or numbers that are not finite.
    pub fn new(keys: Dictionary, dim: usize, rows: Vec<f32>) -> Result<Self, PipelineError> {
        shape((1..=DENSE_MAX).contains(&dim), "embeddings have 1 to 4096 columns")?;
        shape(rows.len().is_multiple_of(dim), "embeddings are whole rows")?;
        let count = rows.len() / dim;
        shape((1..=EMBEDDINGS_MAX).contains(&count), "there are 1 to 2^20 embeddings")?;
        shape(keys.is_empty() || keys.len() == count, "there is a key for each embedding, or there are none")?;
        shape(finite(&rows), "embeddings are finite")?;
        Ok(Self { keys, dim, rows })
    }

    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.len() / self.dim
    }

    #[must_use]
    pub fn keys(&self) -> &Dictionary {
        &self.keys
    }

    /// The vector of a row, if there is such a row.
    #[must_use]
    pub fn row(&self, row: usize) -> Option<&[f32]> {
        self.rows.get(row.checked_mul(self.dim)?..)?.get(..self.dim)
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        self.keys.write(encoder);
        encoder.count(self.count());
        encoder.count(self.dim);
        encoder.floats(&self.rows);
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let keys = Dictionary::read(decoder)?;
        let count = decoder.count("embeddings", EMBEDDINGS_MAX)?;
        let dim = decoder.count("columns", DENSE_MAX)?;
        Self::new(keys, dim, decoder.floats(count * dim)?)
    }
}
