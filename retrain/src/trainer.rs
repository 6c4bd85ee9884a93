//! The built-in trainer, cold start.

use celeris_features::table::check_features;
use celeris_model::Loss;
use rayon::ThreadPoolBuilder;

use crate::error::RetrainError;
use crate::implicit_train::train_implicit;
use crate::learn::Pinned;
use crate::logistic::train_logistic;
use crate::progress::Progress;
use crate::ratings::Ratings;
use crate::settings::TrainSettings;
use crate::squared::train_squared;
use crate::trained::Trained;

/// Trains on `ratings`: tunes settings on held-out ratings, then trains on all.
///
/// The result depends on ratings, settings and pinned features, not on the number of threads.
///
/// # Errors
/// `Setting`, `IndexOutOfRange` or `Prior` for invalid input, `Threads` if the threads cannot be
/// started.
pub fn train(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    check(ratings, settings, pinned)?;
    let pool = ThreadPoolBuilder::new().num_threads(settings.threads.get()).build()?;
    pool.install(|| match settings.loss {
        Loss::Squared => train_squared(ratings, settings, pinned, progress),
        Loss::Logistic => train_logistic(ratings, settings, pinned, progress),
        Loss::Implicit => train_implicit(ratings, settings, pinned, progress),
    })
}

/// Checks the input of a training.
pub(crate) fn check(ratings: &Ratings, settings: &TrainSettings, pinned: &Pinned) -> Result<(), RetrainError> {
    settings.check()?;
    check_pinned(ratings, settings.dim, pinned)
}

fn check_pinned(ratings: &Ratings, dim: usize, pinned: &Pinned) -> Result<(), RetrainError> {
    let (expected, received) = (pinned.items.len() * dim, pinned.features.len());
    if expected != received {
        return Err(celeris_model::ModelError::DimMismatch { what: "pinned features", expected, received }.into());
    }
    for (row, item) in pinned.items.iter().enumerate() {
        let count = ratings.items();
        if *item as usize >= count {
            return Err(RetrainError::IndexOutOfRange { row, what: "pinned item", index: *item, count });
        }
    }
    Ok(pinned.features.chunks_exact(dim).try_for_each(|row| check_features(row, dim))?)
}
