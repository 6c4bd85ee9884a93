//! K-means: Lloyd's iterations from centers that lie apart (k-means++; Arthur and Vassilvitskii, SODA 2007).

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::PipelineError;
use crate::objects::Centroids;
use crate::values::View;

/// Number of rows that are clustered; a uniform sample of more.
const SAMPLE_MAX: usize = 20_000;

const ITERATIONS_MAX: usize = 100;

/// Collects a sample of vectors.
pub(super) struct Clusters {
    node: String,
    clusters: usize,
    rng: ChaCha8Rng,
    seen: usize,
    dim: usize,
    /// Row-major.
    sample: Vec<f32>,
}

impl Clusters {
    pub fn new(node: String, clusters: usize, seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { node, clusters, rng, seen: 0, dim: 1, sample: Vec::new() }
    }

    pub fn add(&mut self, value: View) {
        let numbers = match &value {
            View::Number(number) => std::slice::from_ref(number),
            View::Dense(numbers) => numbers,
            _ => return,
        };
        self.dim = numbers.len();
        self.seen += 1;
        let present = numbers.iter().map(|number| if number.is_nan() { 0.0 } else { *number });
        if self.seen <= SAMPLE_MAX {
            self.sample.extend(present);
            return;
        }
        // Reservoir sampling (Vitter's algorithm R).
        let at = self.rng.random_range(0..self.seen);
        if at < SAMPLE_MAX {
            self.sample[at * self.dim..][..self.dim].iter_mut().zip(present).for_each(|(old, new)| *old = new);
        }
    }

    pub fn finish(mut self) -> Result<Centroids, PipelineError> {
        let rows: Vec<&[f32]> = self.sample.chunks_exact(self.dim).collect();
        if rows.len() < self.clusters {
            let problem = format!("there are {} rows for {} clusters", rows.len(), self.clusters);
            return Err(PipelineError::Fit { node: self.node, problem });
        }
        let mut centers = first_centers(&rows, self.clusters, &mut self.rng);
        let mut nearest = vec![usize::MAX; rows.len()];
        for _ in 0..ITERATIONS_MAX {
            let mut moved = false;
            for (row, nearest) in rows.iter().zip(&mut nearest) {
                let (center, _) = closest(row, &centers);
                moved |= std::mem::replace(nearest, center) != center;
            }
            if !moved {
                break;
            }
            update(&rows, &nearest, &mut centers);
        }
        Centroids::new(self.dim, centers.into_iter().flatten().map(|number| number as f32).collect())
    }
}

fn squared(row: &[f32], center: &[f64]) -> f64 {
    row.iter().zip(center).map(|(number, center)| (f64::from(*number) - center).powi(2)).sum()
}

/// The nearest center, the first one of several, and its squared distance.
fn closest(row: &[f32], centers: &[Vec<f64>]) -> (usize, f64) {
    let distances = centers.iter().map(|center| squared(row, center)).enumerate();
    distances.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, 0.0))
}

/// Draws each center with a probability in proportion to its squared distance from those before.
fn first_centers(rows: &[&[f32]], count: usize, rng: &mut ChaCha8Rng) -> Vec<Vec<f64>> {
    let of = |row: &[f32]| row.iter().map(|number| f64::from(*number)).collect::<Vec<f64>>();
    let mut centers = vec![of(rows[rng.random_range(0..rows.len())])];
    let mut distances: Vec<f64> = rows.iter().map(|row| squared(row, &centers[0])).collect();
    while centers.len() < count {
        let total: f64 = distances.iter().sum();
        let mut left = rng.random::<f64>() * total;
        let drawn = distances.iter().position(|distance| {
            left -= distance;
            left < 0.0
        });
        // If all rows are centers already, some are doubled.
        let center = of(rows[drawn.unwrap_or_else(|| rng.random_range(0..rows.len()))]);
        rows.iter().zip(&mut distances).for_each(|(row, distance)| *distance = distance.min(squared(row, &center)));
        centers.push(center);
    }
    centers
}

/// Moves each center to the mean of its rows; one without rows stays.
fn update(rows: &[&[f32]], nearest: &[usize], centers: &mut [Vec<f64>]) {
    let mut counts = vec![0.0; centers.len()];
    let mut sums: Vec<Vec<f64>> = centers.iter().map(|center| vec![0.0; center.len()]).collect();
    for (row, nearest) in rows.iter().zip(nearest) {
        counts[*nearest] += 1.0;
        sums[*nearest].iter_mut().zip(*row).for_each(|(sum, number)| *sum += f64::from(*number));
    }
    for ((center, sum), count) in centers.iter_mut().zip(sums).zip(counts).filter(|(_, count)| *count > 0.0) {
        center.iter_mut().zip(sum).for_each(|(center, sum)| *center = sum / count);
    }
}
