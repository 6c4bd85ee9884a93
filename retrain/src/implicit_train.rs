//! Training on implicit feedback: chooses `lambda` by the recall at 10 of held-out pairs, then fits
//! the factors to all pairs.
//!
//! Recall at 10 matches the use in recommendations. The percentile rank over the whole catalog is a
//! different objective: on ml-latest-small it is best at twice the ridge, where recall at 10 is a
//! sixth lower.

use celeris_model::Loss;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::error::RetrainError;
use crate::implicit::{ImplicitFit, ImplicitRecipe, Users, fit, taken};
use crate::learn::Pinned;
use crate::progress::{Phase, Progress, Step};
use crate::ranking::{Ranks, evaluate};
use crate::ratings::{Rating, Ratings};
use crate::settings::TrainSettings;
use crate::state::{Known, Settled, TrainerState};
use crate::trained::{Metrics, Trained};

/// One in this many pairs is held out.
const HELD_OUT_SHARE: usize = 10;

/// With fewer pairs, nothing is held out.
const PAIRS_MIN: usize = 100;

/// Candidate ridges, ascending. Steps of four: the ranks of some thousands of pairs do not resolve
/// finer ones.
const LAMBDAS: [f64; 5] = [0.5, 2.0, 8.0, 32.0, 128.0];

/// Ridge if nothing can be held out.
const LAMBDA_UNTUNED: f64 = 4.0;

/// Maximum number of iterations; alternations on a whole matrix converge in about ten (Hu et al.
/// 2008).
const ITERATIONS: usize = 12;

/// Relative difference below which ranks are considered equal.
const INDIFFERENCE: f64 = 5e-3;

/// Noise variance if nothing is held out: that of a preference without data.
const NOISE_UNTUNED: f64 = 0.25;

/// Iterations from the factors of an earlier training: new observations change few of them, and a
/// cold start converges in about ten.
const REFRESH_ITERATIONS: usize = 3;

struct Tuned {
    lambda: f64,
    noise_variance: f64,
    ranks: Option<Ranks>,
}

/// Trains on the taken pairs. The result depends on ratings, settings and pinned features, not on
/// the number of threads.
pub(crate) fn train_implicit(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    check_ridge(settings)?;
    let data = Pairs::of(ratings);
    let iterations = ITERATIONS.min(settings.iterations_max);
    let (dim, seed) = (settings.dim, settings.seed);
    let recipe = ImplicitRecipe { dim, seed, lambda: 0.0, iterations, pinned, factors: None };
    let tuned = tune(data.shape, &data.pairs, &data.active, recipe, settings.regularization, progress)?;
    data.train(ratings, ImplicitRecipe { lambda: tuned.lambda, ..recipe }, &tuned, progress)
}

/// Warm start from the factors, ridge and noise of an earlier training. No held-out pairs are
/// needed to decide when to stop: each of the few iterations lowers the same objective.
pub(crate) fn refresh_implicit(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    (settled, factors): (&Settled, &[f32]),
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    check_ridge(settings)?;
    let lambda = settings.regularization.unwrap_or(settled.regularization);
    let tuned = Tuned { lambda, noise_variance: settled.noise_variance, ranks: None };
    let iterations = REFRESH_ITERATIONS.min(settings.iterations_max);
    let (dim, seed) = (settings.dim, settings.seed);
    let recipe = ImplicitRecipe { dim, seed, lambda, iterations, pinned, factors: Some(factors) };
    Pairs::of(ratings).train(ratings, recipe, &tuned, progress)
}

fn check_ridge(settings: &TrainSettings) -> Result<(), RetrainError> {
    if settings.regularization == Some(0.0) {
        let range = "above 0 where feedback is implicit";
        return Err(RetrainError::Setting { what: "regularization", range, value: "0".to_owned() });
    }
    Ok(())
}

/// The taken pairs and the shape of the matrix.
struct Pairs {
    shape: (usize, usize),
    pairs: Vec<Rating>,
    active: Vec<bool>,
}

impl Pairs {
    fn of(ratings: &Ratings) -> Self {
        let mut active = vec![false; ratings.items()];
        for rating in ratings.list() {
            active[rating.item as usize] = true;
        }
        Self { shape: (ratings.users(), ratings.items()), pairs: taken(ratings), active }
    }

    fn train(
        &self,
        ratings: &Ratings,
        recipe: ImplicitRecipe,
        tuned: &Tuned,
        progress: &dyn Progress,
    ) -> Result<Trained, RetrainError> {
        let fit = fit(self.shape, &self.pairs, &self.active, recipe, Users::Exact, |iteration| {
            progress.report(Step { phase: Phase::Training, fraction: iteration as f32 / recipe.iterations as f32 });
        })?;
        finish(ratings, &self.pairs, recipe, fit, tuned)
    }
}

fn tune(
    shape: (usize, usize),
    pairs: &[Rating],
    active: &[bool],
    recipe: ImplicitRecipe,
    fixed: Option<f64>,
    progress: &dyn Progress,
) -> Result<Tuned, RetrainError> {
    if pairs.len() < PAIRS_MIN {
        return Ok(Tuned { lambda: fixed.unwrap_or(LAMBDA_UNTUNED), noise_variance: NOISE_UNTUNED, ranks: None });
    }
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(recipe.seed));
    let mut kept: Vec<bool> = vec![true; pairs.len()];
    for held_out in &order[..pairs.len() / HELD_OUT_SHARE] {
        kept[*held_out] = false;
    }
    let part = |wanted: bool| -> Vec<Rating> {
        pairs.iter().zip(&kept).filter(|(_, kept)| **kept == wanted).map(|(pair, _)| *pair).collect()
    };
    let (known, asked) = (part(true), part(false));
    let fixed = fixed.map(|value| [value]);
    let candidates = fixed.as_ref().map_or(LAMBDAS.as_slice(), <[f64; 1]>::as_slice);
    let mut ranked: Vec<(f64, Ranks)> = Vec::with_capacity(candidates.len());
    for (tried, &lambda) in candidates.iter().enumerate() {
        let fit = fit(shape, &known, active, ImplicitRecipe { lambda, ..recipe }, Users::Near, |iteration| {
            let within = iteration as f32 / recipe.iterations as f32;
            let fraction = (tried as f32 + within) / candidates.len() as f32;
            progress.report(Step { phase: Phase::Tuning, fraction });
        })?;
        let ranks = evaluate(&fit, (shape.0, recipe.dim), active, &known, &asked);
        if ranks.any() {
            ranked.push((lambda, ranks));
        }
    }
    progress.report(Step { phase: Phase::Tuning, fraction: 1.0 });
    Ok(match choice(&ranked) {
        Some((lambda, ranks)) => Tuned { lambda, noise_variance: ranks.noise_variance(), ranks: Some(ranks) },
        // No user took two items, so nothing could be held out.
        None => {
            let lambda = fixed.map_or(LAMBDA_UNTUNED, |[value]| value);
            Tuned { lambda, noise_variance: NOISE_UNTUNED, ranks: None }
        }
    })
}

/// The strongest ridge whose recall is within one standard error of the best (Breiman et al.,
/// "Classification and Regression Trees", 1984, section 3.4.3): differences below that are noise
/// for some hundred users. If recall is 0 or 1 for all ridges, as in very large or very small
/// catalogs, the best rank decides.
fn choice(ranked: &[(f64, Ranks)]) -> Option<(f64, Ranks)> {
    let (_, best) = ranked.iter().max_by(|(_, a), (_, b)| a.recall().total_cmp(&b.recall()))?;
    let (most, error) = (best.recall(), best.recall_std_error());
    if error > 0.0 {
        return ranked.iter().rev().find(|(_, ranks)| ranks.recall() >= most - error).copied();
    }
    let lowest = ranked.iter().map(|(_, ranks)| ranks.percentile()).fold(f64::INFINITY, f64::min);
    ranked.iter().rev().find(|(_, ranks)| ranks.percentile() <= lowest * (1.0 + INDIFFERENCE)).copied()
}

fn finish(
    ratings: &Ratings,
    pairs: &[Rating],
    recipe: ImplicitRecipe,
    fit: ImplicitFit,
    tuned: &Tuned,
) -> Result<Trained, RetrainError> {
    let dim = recipe.dim;
    let prior = fit.prior(tuned.noise_variance.max(f64::from(f32::MIN_POSITIVE)))?;
    let squares: f64 = pairs
        .iter()
        .map(|pair| {
            let weights = &fit.weights[pair.user as usize * dim..][..dim];
            let features = &fit.features[pair.item as usize * dim..][..dim];
            (1.0 - f64::from(celeris_model::linear::dot(weights, features))).powi(2)
        })
        .sum();
    let metrics = Metrics {
        ratings: ratings.list().len(),
        users: ratings.users(),
        items: ratings.items(),
        regularization: tuned.lambda,
        iterations: recipe.iterations,
        prior_scale: 1.0,
        validation_rmse: None,
        validation_percentile_rank: tuned.ranks.map(|ranks| ranks.percentile()),
        validation_recall_at_10: tuned.ranks.map(|ranks| ranks.recall()),
        validation_log_loss: None,
        base_rate_log_loss: None,
        train_rmse: (squares / (pairs.len() as f64).max(1.0)).sqrt(),
        noise_variance: prior.noise_variance(),
        prior_condition: prior.condition(),
    };
    let settled = Settled {
        choices: false,
        loss: Loss::Implicit,
        dim,
        ratings: ratings.list().len(),
        regularization: tuned.lambda,
        prior_scale: 1.0,
        recent_bias: None,
        gain: 1.0,
        noise_variance: tuned.noise_variance,
    };
    Ok(Trained {
        dim,
        item_offsets: vec![0.0; ratings.items()],
        item_features: fit.features,
        user_weights: fit.weights,
        choices: Vec::new(),
        variances: Vec::new(),
        cold_variance: 0.0,
        pulls: Vec::new(),
        prior,
        cold_item: fit.cold_item,
        label_range: ratings.label_range(),
        metrics,
        state: Some(TrainerState { settled, known: Known::Implicit(fit.factors) }),
    })
}
