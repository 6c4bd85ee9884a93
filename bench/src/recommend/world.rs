//! Items of random directions whose features have equal norms, or norms as widely spread as
//! popularity.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use celeris_features::{ColdItem, HugeFloats, Theta};
use celeris_model::ItemId;
use celeris_retrieval::Matrix;
use rand::RngExt;
use rand_distr::{Distribution, Gamma, StandardNormal};

use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// The distribution of the features' norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norms {
    /// A gamma distribution of shape 2.
    Spread,
    /// Equal norms.
    Equal,
}

impl Norms {
    /// Both distributions.
    pub const ALL: [Self; 2] = [Self::Spread, Self::Equal];

    /// The suffix of case names.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Spread => "",
            Self::Equal => "/norms=equal",
        }
    }
}

/// The shape of the gamma distribution; the standard deviation is 0.7 of the mean.
const SHAPE: f32 = 2.0;

/// A table, and query weights.
pub struct World {
    pub dim: usize,
    /// Stored as in a version.
    features: HugeFloats,
    offsets: Vec<f32>,
    pub queries: Vec<Vec<f32>>,
}

impl World {
    /// `count` items whose features have a root mean square of about 1, and `queries` weights drawn
    /// from the prior.
    ///
    /// # Errors
    /// None: the distribution's parameters are valid.
    pub fn new(norms: Norms, count: usize, dim: usize, queries: usize) -> Result<Self, Failure> {
        let mut rng = scene::rng(60);
        let mean = (dim as f32).sqrt();
        let lengths = Gamma::new(SHAPE, mean / SHAPE).map_err(Failure::other)?;
        let mut features: Vec<f32> = (0..count * dim).map(|_| StandardNormal.sample(&mut rng)).collect();
        for row in features.chunks_exact_mut(dim) {
            let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
            let wanted = match norms {
                Norms::Spread => lengths.sample(&mut rng),
                Norms::Equal => mean,
            };
            row.iter_mut().for_each(|value| *value *= wanted / length);
            row[dim - 1] = 1.0;
        }
        let offsets = (0..count).map(|_| rng.random_range(2.0..4.0)).collect();
        let queries = (0..queries).map(|_| (0..dim).map(|_| StandardNormal.sample(&mut rng)).collect()).collect();
        Ok(Self { dim, features: features.into(), offsets, queries })
    }

    /// The items.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix::new(self.dim, &self.features, &self.offsets)
    }

    /// The table of a version with these items.
    ///
    /// # Errors
    /// None: generated items are valid.
    pub fn into_theta(self) -> Result<Theta, Failure> {
        let ids = (0..self.offsets.len()).map(|number| ItemId::new(format!("item-{number:07}")));
        let ids = ids.collect::<Result<_, _>>().map_err(Failure::other)?;
        Theta::new(ids, self.offsets, self.features.to_vec(), ColdItem::blank(self.dim)).map_err(Failure::other)
    }

    /// Writes rows and queries for the peer, which supports only inner products: rows have the
    /// offset in place of the constant, and queries a 1. All scores therefore lack the constant's
    /// weight, which does not affect the order.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut rows = BufWriter::new(File::create(folder.join("rows.f32"))?);
        for (row, offset) in self.features.chunks_exact(self.dim).zip(&self.offsets) {
            write_row(&mut rows, row, *offset)?;
        }
        rows.flush()?;
        let mut queries = BufWriter::new(File::create(folder.join("queries.f32"))?);
        for weights in &self.queries {
            write_row(&mut queries, weights, 1.0)?;
        }
        queries.flush()
    }
}

fn write_row(out: &mut impl Write, row: &[f32], last: f32) -> io::Result<()> {
    let values = row[..row.len() - 1].iter().chain([&last]);
    values.copied().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}
