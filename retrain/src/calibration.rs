//! Makes a servable version from the features of an external engine.
//!
//! An engine such as Spark only provides factors. A version also needs offsets, the constant, a
//! prior and the noise variance. The factors are scaled to unit root mean square and treated as
//! given features of the items; what remains is the built-in training without a latent part.
//! Offsets and the population of weights are fitted to all observations. The scale of the prior and
//! the noise variance are chosen on observations held out from the engine, because on its training
//! data the factors look better than they are.
//!
//! If an engine provides its own prior, that prior is used after validation.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::path::Path;

use celeris_features::{ColdItem, PartsFiles};
use celeris_model::{ItemId, Loss, ModelError, Prior, UserId};
use rayon::ThreadPoolBuilder;

use crate::als::{Grouped, Shape};
use crate::cold_map::FittedColdMap;
use crate::engine_output::{EngineOutput, EnginePrior, Width, read_engine_output};
use crate::error::RetrainError;
use crate::implicit::{Given, ImplicitFit, fit_users, taken};
use crate::input::{HeldOutInput, TrainingInput};
use crate::learn::{Learnt, fit_weights, rated_items};
use crate::posterior_evaluation::{Errors, HeldOut};
use crate::prior_fit::fit_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ranking::{Ranks, evaluate};
use crate::ratings::{Rating, Ratings};
use crate::settings::TrainSettings;
use crate::trained::{Metrics, Trained};
use crate::tuning::PRIOR_SCALES;
use crate::user_map::FittedUserMap;

/// With fewer held-out observations, nothing is tuned on them.
const HELD_OUT_MIN: usize = 20;

/// Relative difference below which errors are considered equal, as in [`crate::tuning`].
const INDIFFERENCE: f64 = 1e-3;

/// Candidate ridges for implicit feedback, in units of squared features, which are about 1;
/// ascending.
const RIDGES: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Ridge if nothing can be held out.
const RIDGE_UNTUNED: f64 = 64.0;

/// Noise variance if nothing is held out: that of a preference without data.
const NOISE_UNTUNED: f64 = 0.25;

/// A feature whose RMS is smaller than this carries no information and is not scaled to unit RMS.
const RMS_MIN: f64 = 1e-12;

/// Minimum share of observed items for which an engine must provide features.
const COVERAGE_MIN: f64 = 0.5;

/// A finished training with the ids of its rows.
pub(crate) struct Finished {
    pub(crate) items: Vec<ItemId>,
    pub(crate) trained: Trained,
    /// Metrics reported by the engine.
    pub(crate) figures: BTreeMap<String, f64>,
    /// The map from attributes to features, if there are attributes.
    pub(crate) cold_map: Option<FittedColdMap>,
    /// The map from attributes of users to prior means, if there are attributes.
    pub(crate) user_map: Option<FittedUserMap>,
    /// The files of the computed parts, if there are any.
    pub(crate) parts: Option<PartsFiles>,
}

impl Finished {
    /// A training alone.
    pub(crate) fn of(items: Vec<ItemId>, trained: Trained) -> Self {
        Self { items, trained, figures: BTreeMap::new(), cold_map: None, user_map: None, parts: None }
    }
}

/// All observations, with one numbering of users and items.
struct Observed {
    users: Vec<UserId>,
    items: Vec<ItemId>,
    /// Observations passed to the engine.
    known: Ratings,
    /// Observations held out from the engine; `None` if there are too few to tune on.
    held_out: Option<Ratings>,
    all: Ratings,
}

/// Features of every item, including those that the engine left out.
struct Table {
    /// Row-major `items x dim`, the last entry 1.
    features: Vec<f32>,
    cold_features: Vec<f32>,
}

/// Makes a version from the output of an engine in `raw`.
///
/// # Errors
/// `Output` and [`RetrainError::Format`] for invalid output, `Setting` if the loss is not
/// supported.
pub(crate) fn finish(
    raw: &Path,
    input: TrainingInput,
    held_out: Option<HeldOutInput>,
    settings: &TrainSettings,
    progress: &dyn Progress,
) -> Result<Finished, RetrainError> {
    let dim = settings.dim;
    let output = read_engine_output(raw, Width { dim, rank: dim - 1 })?;
    check_coverage(raw, &input, &output)?;
    let observed = observed(settings.loss, input, held_out, &output)?;
    progress.report(Step { phase: Phase::Tuning, fraction: 0.0 });
    let pool = ThreadPoolBuilder::new().num_threads(settings.threads.get()).build()?;
    let EngineOutput { prior, figures, .. } = &output;
    let trained = pool.install(|| match (prior, settings.loss) {
        (Some(prior), _) => take_whole(&observed, &output, prior, settings),
        (None, Loss::Squared) => finish_squared(&observed, &table(&observed, &output, dim), settings),
        (None, Loss::Implicit) => finish_implicit(&observed, &table(&observed, &output, dim), settings),
        (None, Loss::Logistic) => Err(RetrainError::Setting {
            what: "loss",
            range: "squared or implicit where an engine brings no prior.parquet; retrain with the engine als",
            value: "logistic".to_owned(),
        }),
    })?;
    progress.report(Step { phase: Phase::Training, fraction: 1.0 });
    Ok(Finished { figures: figures.clone(), ..Finished::of(observed.items, trained) })
}

fn check_coverage(raw: &Path, input: &TrainingInput, output: &EngineOutput) -> Result<(), RetrainError> {
    let brought: HashSet<&ItemId> = output.items.iter().collect();
    let rated = rated_items(&input.ratings);
    let wanted = rated.iter().filter(|rated| **rated).count();
    let found = input.item_ids().iter().zip(&rated).filter(|(item, rated)| **rated && brought.contains(item)).count();
    if (found as f64) >= COVERAGE_MIN * wanted as f64 {
        return Ok(());
    }
    let problem = format!(
        "has features of {found} of the {wanted} observed items; write a row for each item of the observations, with \
         the id as it is there"
    );
    Err(RetrainError::Output { path: raw.join(celeris_formats::item_features::FILE), problem })
}

/// Ids with their positions; ids can be appended.
struct Index<Id> {
    ids: Vec<Id>,
    places: HashMap<Id, u32>,
}

impl<Id: Clone + Eq + Hash> Index<Id> {
    fn of(ids: Vec<Id>) -> Self {
        let places = (0_u32..).zip(&ids).map(|(place, id)| (id.clone(), place)).collect();
        Self { ids, places }
    }

    fn place(&mut self, id: &Id) -> u32 {
        if let Some(place) = self.places.get(id) {
            return *place;
        }
        let place = u32::try_from(self.ids.len()).expect("distinct ids in memory are fewer than 2^32");
        self.ids.push(id.clone());
        self.places.insert(id.clone(), place);
        place
    }
}

fn observed(
    loss: Loss,
    input: TrainingInput,
    held_out: Option<HeldOutInput>,
    output: &EngineOutput,
) -> Result<Observed, RetrainError> {
    let (mut users, mut items) = (Index::of(input.users), Index::of(input.items.into_ids()));
    for item in &output.items {
        items.place(item);
    }
    let mut asked = Vec::new();
    if let Some(held_out) = held_out {
        asked.extend(held_out.list.iter().map(|rating| Rating {
            user: users.place(&held_out.users[rating.user as usize]),
            item: items.place(&held_out.items[rating.item as usize]),
            ..*rating
        }));
    }
    let counted = |list| {
        let ratings = Ratings::new(users.ids.len(), items.ids.len(), list)?;
        Ok::<_, RetrainError>(if loss == Loss::Squared { ratings.without_outliers() } else { ratings })
    };
    let known = input.ratings.list().to_vec();
    let all = counted(known.iter().chain(&asked).copied().collect())?;
    let held_out = (asked.len() >= HELD_OUT_MIN).then(|| counted(asked)).transpose()?;
    let known = counted(known)?;
    Ok(Observed { users: users.ids, items: items.ids, known, held_out, all })
}

/// The engine's factors at unit RMS over the observed items, with the constant; items without
/// factors are cold.
#[expect(clippy::cast_possible_truncation, reason = "features are held in f32; rounding to the nearest is meant")]
fn table(observed: &Observed, output: &EngineOutput, dim: usize) -> Table {
    let rank = output.width;
    let rated = rated_items(&observed.all);
    let places: HashMap<&ItemId, usize> =
        observed.items.iter().enumerate().map(|(place, item)| (item, place)).collect();
    let rows = || output.items.iter().map(|item| places[item]).zip(output.features.chunks_exact(rank));
    let (mut squares, mut sums, mut count) = (vec![0.0_f64; rank], vec![0.0_f64; rank], 0.0_f64);
    for (_, row) in rows().filter(|(place, _)| rated[*place]) {
        count += 1.0;
        for ((square, sum), x) in squares.iter_mut().zip(&mut sums).zip(row) {
            *square += f64::from(*x).powi(2);
            *sum += f64::from(*x);
        }
    }
    let scales: Vec<f64> = squares
        .iter()
        .map(|square| (square / count.max(1.0)).sqrt())
        .map(|rms| if rms < RMS_MIN { 1.0 } else { rms })
        .collect();
    let mut cold_features: Vec<f32> =
        sums.iter().zip(&scales).map(|(sum, scale)| (sum / count.max(1.0) / scale) as f32).collect();
    cold_features.push(1.0);
    let mut features = cold_features.repeat(observed.items.len());
    for (place, row) in rows() {
        for ((slot, x), scale) in features[place * dim..].iter_mut().zip(row).zip(&scales) {
            *slot = (f64::from(*x) / scale) as f32;
        }
    }
    Table { features, cold_features }
}

fn finish_squared(observed: &Observed, table: &Table, settings: &TrainSettings) -> Result<Trained, RetrainError> {
    let shape = Shape { latent: settings.dim - 1, side_features: 0 };
    let fitted = |ratings: &Ratings| {
        let grouped = Grouped::of(ratings);
        let mut learnt = fit_weights(ratings, &grouped, &table.features, table.cold_features.clone())?;
        // The prior treats all of them as factors.
        learnt.shape = shape;
        Ok::<_, RetrainError>(learnt)
    };
    let choose = |asked| choose_scale(&fitted(&observed.known)?, &observed.known, asked);
    let chosen = observed.held_out.as_ref().map(choose);
    let (scale, errors) = chosen.transpose()?.map_or((1.0, None), |(scale, errors)| (scale, Some(errors)));
    let learnt = fitted(&observed.all)?;
    let noise_variance = errors.map_or(learnt.noise_variance, |errors| errors.noise_variance());
    let prior = fit_prior(&learnt, scale, noise_variance.max(f64::from(f32::MIN_POSITIVE)))?;
    let label_range = observed.all.label_range();
    let metrics = Metrics {
        prior_scale: scale,
        validation_rmse: errors.map(|errors| errors.rmse()),
        train_rmse: learnt.own_rmse(observed.all.list(), label_range),
        ..metrics(observed, settings, &prior)
    };
    Ok(Trained {
        dim: settings.dim,
        item_offsets: learnt.offsets,
        item_features: learnt.features,
        user_weights: learnt.weights,
        choices: Vec::new(),
        variances: Vec::new(),
        cold_variance: 0.0,
        pulls: Vec::new(),
        prior,
        cold_item: ColdItem { offset: learnt.cold_offset, features: learnt.cold_features },
        label_range,
        metrics,
        state: None,
    })
}

/// Chooses the smallest scale of the prior that is as good as the best: a wider prior lets users
/// learn faster.
fn choose_scale(learnt: &Learnt, known: &Ratings, asked: &Ratings) -> Result<(f64, Errors), RetrainError> {
    let held_out = HeldOut::new(known, asked);
    let mut tried: Vec<(f64, Errors)> = Vec::with_capacity(PRIOR_SCALES.len());
    for scale in PRIOR_SCALES {
        tried.push((scale, held_out.errors(learnt, &fit_prior(learnt, scale, learnt.noise_variance)?)?));
    }
    let lowest = tried.iter().map(|(_, errors)| errors.rmse()).fold(f64::INFINITY, f64::min);
    let chosen = tried.into_iter().find(|(_, errors)| errors.rmse() <= lowest * (1.0 + INDIFFERENCE));
    // Empty only if no scale has a finite error.
    chosen.ok_or_else(|| ModelError::NonFinite { what: "the held-out error" }.into())
}

fn finish_implicit(observed: &Observed, table: &Table, settings: &TrainSettings) -> Result<Trained, RetrainError> {
    let dim = settings.dim;
    let users = observed.users.len();
    let active = rated_items(&observed.all);
    let solve = |pairs: &[Rating], ridge: f64| {
        let given = Given { features: &table.features, cold_features: &table.cold_features, active: &active, ridge };
        fit_users(users, pairs, given)
    };
    let mut best: Option<(f64, Ranks)> = None;
    if let Some(asked) = &observed.held_out {
        let (known, asked) = (taken(&observed.known), taken(asked));
        for ridge in RIDGES {
            let ranks = evaluate(&solve(&known, ridge)?, (users, dim), &active, &known, &asked);
            let better = |best: &Ranks| ranks.percentile() < best.percentile() * (1.0 - INDIFFERENCE);
            if ranks.any() && best.as_ref().is_none_or(|(_, best)| better(best)) {
                best = Some((ridge, ranks));
            }
        }
    }
    let ranks = best.map(|(_, ranks)| ranks);
    let ridge = best.map_or(RIDGE_UNTUNED, |(ridge, _)| ridge);
    let pairs = taken(&observed.all);
    let fit = solve(&pairs, ridge)?;
    let noise_variance = ranks.map_or(NOISE_UNTUNED, |ranks| ranks.noise_variance());
    let prior = fit.prior(noise_variance.max(f64::from(f32::MIN_POSITIVE)))?;
    let metrics = Metrics {
        regularization: ridge,
        validation_percentile_rank: ranks.map(|ranks| ranks.percentile()),
        validation_recall_at_10: ranks.map(|ranks| ranks.recall()),
        train_rmse: preference_rmse(&fit, &pairs, dim),
        ..metrics(observed, settings, &prior)
    };
    Ok(Trained {
        dim,
        item_offsets: vec![0.0; observed.items.len()],
        item_features: fit.features,
        user_weights: fit.weights,
        choices: Vec::new(),
        variances: Vec::new(),
        cold_variance: 0.0,
        pulls: Vec::new(),
        prior,
        cold_item: fit.cold_item,
        label_range: observed.all.label_range(),
        metrics,
        state: None,
    })
}

/// Root mean squared error on the taken pairs, whose preference is 1.
fn preference_rmse(fit: &ImplicitFit, pairs: &[Rating], dim: usize) -> f64 {
    let error = |pair: &Rating| {
        let weights = &fit.weights[pair.user as usize * dim..][..dim];
        let features = &fit.features[pair.item as usize * dim..][..dim];
        1.0 - f64::from(celeris_model::linear::dot(weights, features))
    };
    let squares: f64 = pairs.iter().map(|pair| error(pair).powi(2)).sum();
    (squares / (pairs.len() as f64).max(1.0)).sqrt()
}

/// Makes a version from exactly the engine's output. Observed items that it left out are unknown to
/// the version.
#[expect(clippy::cast_possible_truncation, reason = "tables are held in f32; rounding to the nearest is meant")]
fn take_whole(
    observed: &Observed,
    output: &EngineOutput,
    own: &EnginePrior,
    settings: &TrainSettings,
) -> Result<Trained, RetrainError> {
    let dim = settings.dim;
    let mean_offset = output.offsets.iter().map(|x| f64::from(*x)).sum::<f64>() / output.offsets.len() as f64;
    let cold_item =
        ColdItem { offset: own.cold_item_offset.unwrap_or(mean_offset as f32), features: own.cold_features.clone() };
    // The table is indexed by all observed items; those that were left out are cold, as they will
    // be when served.
    let mut item_offsets = vec![cold_item.offset; observed.items.len()];
    let mut item_features = cold_item.features.repeat(observed.items.len());
    let places: HashMap<&ItemId, usize> =
        observed.items.iter().enumerate().map(|(place, item)| (item, place)).collect();
    let cold_variance = own.cold_item_variance.unwrap_or_default();
    let mut choices = if output.choices.is_empty() { Vec::new() } else { vec![0.0; item_features.len()] };
    let mut variances = if output.variances.is_empty() { Vec::new() } else { vec![cold_variance; item_offsets.len()] };
    for (row, item) in output.items.iter().enumerate() {
        let place = places[item];
        item_offsets[place] = output.offsets[row];
        item_features[place * dim..][..dim].copy_from_slice(&output.features[row * dim..][..dim]);
        if !choices.is_empty() {
            choices[place * dim..][..dim].copy_from_slice(&output.choices[row * dim..][..dim]);
        }
        if !variances.is_empty() {
            variances[place] = output.variances[row];
        }
    }
    let start: Vec<f32> = own.prior.mean().iter().map(|w| *w as f32).collect();
    let mut user_weights = start.repeat(observed.users.len());
    let users: HashMap<&UserId, usize> = observed.users.iter().enumerate().map(|(place, user)| (user, place)).collect();
    for (user, row) in output.users.iter().zip(output.user_weights.chunks_exact(dim)) {
        if let Some(place) = users.get(user) {
            user_weights[place * dim..][..dim].copy_from_slice(row);
        }
    }
    Ok(Trained {
        dim,
        item_offsets,
        item_features,
        user_weights,
        pulls: own.prior.pulls(&choices),
        choices,
        variances,
        cold_variance,
        prior: own.prior.clone(),
        cold_item,
        label_range: observed.all.label_range(),
        metrics: metrics(observed, settings, &own.prior),
        state: None,
    })
}

/// Metrics that every finished training has; the others are 0 or absent.
fn metrics(observed: &Observed, settings: &TrainSettings, prior: &Prior) -> Metrics {
    Metrics {
        ratings: observed.all.list().len(),
        users: observed.users.len(),
        items: observed.items.len(),
        regularization: settings.regularization.unwrap_or_default(),
        iterations: 0,
        prior_scale: 1.0,
        validation_rmse: None,
        validation_percentile_rank: None,
        validation_recall_at_10: None,
        validation_log_loss: None,
        base_rate_log_loss: None,
        train_rmse: 0.0,
        noise_variance: prior.noise_variance(),
        prior_condition: prior.condition(),
    }
}
