//! Synthetic data of any size: version tables with random ids, a prior, and users.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::SystemTime;

use celeris_features::{ColdItem, Theta, TrainerPart, VersionContents, write_trained_version};
use celeris_model::{ItemId, ModelError, ModelName, Prior, UserId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::Failure;

/// The base of all random seeds, so that runs are comparable.
pub const SEED: u64 = 20_150_104;

/// Length of a random item id, in characters.
const ITEM_ID_CHARS: usize = 12;

/// The variance of labels around their expectation.
const NOISE_VARIANCE: f64 = 0.5;

/// A random generator for one purpose.
pub fn rng(purpose: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(SEED ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A random text of `length` lower-case letters and digits.
pub fn text(rng: &mut ChaCha8Rng, length: usize) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    (0..length).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
}

/// `count` rows of standard normal features, row-major; the last feature of each row is the
/// constant 1.
pub fn features(rng: &mut ChaCha8Rng, count: usize, dim: usize) -> Vec<f32> {
    let mut features: Vec<f32> = (0..count * dim).map(|_| StandardNormal.sample(rng)).collect();
    for row in features.chunks_exact_mut(dim) {
        row[dim - 1] = 1.0;
    }
    features
}

/// A table of `count` items with random ids.
///
/// # Errors
/// None for synthetic data.
pub fn theta(count: usize, dim: usize) -> Result<Theta, ModelError> {
    let mut rng = rng(1);
    let mut seen = HashSet::with_capacity(count);
    while seen.len() < count {
        seen.insert(text(&mut rng, ITEM_ID_CHARS));
    }
    let mut ids: Vec<String> = seen.into_iter().collect();
    // The iteration order of the set differs from run to run.
    ids.sort_unstable();
    let items = ids.into_iter().map(ItemId::new).collect::<Result<_, _>>()?;
    let offsets = (0..count).map(|_| rng.random_range(2.0..4.0)).collect();
    let features = features(&mut rng, count, dim);
    Theta::new(items, offsets, features, ColdItem::blank(dim))
}

/// The prior of all benches: well conditioned, like trained priors.
///
/// # Errors
/// None for a valid dimension.
pub fn prior(dim: usize) -> Result<Prior, ModelError> {
    Prior::isotropic(dim, dim as f64, NOISE_VARIANCE)
}

/// Writes a synthetic version with this table.
///
/// # Errors
/// If the folder cannot be written.
pub fn write_version(dir: &Path, model: ModelName, theta: &Theta) -> Result<(), Failure> {
    write_version_with(dir, model, theta, TrainerPart::default())
}

/// As [`write_version`], with these files of a trainer.
///
/// # Errors
/// As [`write_version`].
pub fn write_version_with(dir: &Path, model: ModelName, theta: &Theta, part: TrainerPart) -> Result<(), Failure> {
    let contents = VersionContents {
        model,
        theta,
        choices: &[],
        prior: &prior(theta.dim()).map_err(Failure::other)?,
        label_range: None,
        algorithm: "invented".to_owned(),
        parent: None,
        watermark: serde_json::Value::Null,
        created: SystemTime::now().into(),
        metrics: BTreeMap::new(),
    };
    write_trained_version(dir, &contents, part).map(drop).map_err(Failure::other)
}

/// The user with this number.
///
/// # Errors
/// None: the id is valid.
pub fn user(number: usize) -> Result<UserId, ModelError> {
    UserId::new(format!("user-{number}"))
}
