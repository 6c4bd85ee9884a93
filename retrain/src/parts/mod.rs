//! Adds the computed parts of the features to a finished training ([`celeris_features::parts`]).
//!
//! Factors are trained first. Then the pipelines of the parts are fitted, their columns are standardised, and the prior of
//! the weights of these columns is fitted to what the factors leave unexplained (`weights`). So are linear models of the
//! label, except for those of a probability; their columns enter these fits out of fold. Columns that depend on the item alone
//! become part of the table.

mod columns;
mod contexts;
mod marginal;
mod weights;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use celeris_features::parts::ItemMoments;
use celeris_features::{
    ColdItem, CommonContexts, ContextShare, FeaturesError, ItemParts, PartNotes, PartSpec, Parts, PartsFiles,
};
use celeris_formats::ParquetFile;
use celeris_formats::observations::CONTEXT;
use celeris_model::linear::cholesky;
use celeris_model::{Context, ItemId, Loss, ModelError, Prior};
use celeris_pipelines::fit::{FitOptions, Row, fit};
use celeris_pipelines::{
    Catalog, Depends, Object, ObjectId, Objects, PipelineError, PipelineSpec, Plan, Record, Scratch,
};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::columns::{Columns, Given, Standardised};
use self::contexts::Observed;
use self::weights::Fitting;
use crate::cold_map::FittedColdMap;
use crate::error::RetrainError;
use crate::ratings::{Rating, Ratings};
use crate::trained::Trained;

/// Maximum number of ratings that pipelines and weights are fitted to, approximately. Of a longer log, the ratings of every
/// n-th user are taken.
const RATINGS_MAX: usize = 2_000_000;

/// Maximum number of computed values in memory.
const VALUES_MAX: usize = 1 << 26;

/// The number of ratings at which an item has half of the weight of one that is known well, and the ridge in such items, where
/// the mean scores of items are explained by what parts are for them.
const ITEM_HALF_KNOWN: f64 = 100.0;
const ITEM_RIDGE: f64 = 1.0;

/// Folds for the values of models of the labels.
const FOLDS: u32 = 5;

/// A computed part, in a job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPart {
    /// Its name.
    pub part: String,
    /// Number of its columns.
    pub dim: usize,
    /// The declaration; what it lacks is fitted.
    pub pipeline: PipelineSpec,
}

/// The data that parts are fitted to.
#[derive(Clone, Copy)]
pub(crate) struct PartsData<'a> {
    /// The ratings that the factors were trained on.
    pub(crate) ratings: &'a Ratings,
    /// The context of each rating.
    pub(crate) contexts: &'a [Option<Context>],
    /// The attributes of each item of the training, if known.
    pub(crate) attributes: &'a [Option<Map<String, Value>>],
}

/// What parts are computed from.
pub(crate) struct PartsInput<'a> {
    pub(crate) parts: &'a [JobPart],
    /// The folder of the objects that pipelines name, by their checksums.
    pub(crate) objects: Option<PathBuf>,
    pub(crate) data: PartsData<'a>,
    /// The items of the training.
    pub(crate) items: &'a [ItemId],
    pub(crate) loss: Loss,
    pub(crate) seed: u64,
}

/// A training with its computed parts.
pub(crate) struct WithParts {
    pub(crate) trained: Trained,
    pub(crate) cold_map: Option<FittedColdMap>,
    pub(crate) files: PartsFiles,
    /// Its figures by name.
    pub(crate) figures: [(&'static str, f64); 2],
}

/// Reads the contexts of an observations file, in the order of its rows.
///
/// # Errors
/// [`RetrainError::Format`] with the position of what is not a context.
pub(crate) fn read_contexts(observations: &Path) -> Result<Vec<Option<Context>>, RetrainError> {
    let mut contexts = Vec::new();
    let mut file = ParquetFile::open_columns(observations, &[CONTEXT])?;
    while let Some(batch) = file.next_batch()? {
        for (row, text) in batch.optional_text(CONTEXT)?.iter().enumerate() {
            let parsed = text.map(serde_json::from_str).transpose();
            contexts.push(parsed.map_err(|problem| batch.value_error(row, CONTEXT, &problem))?);
        }
    }
    Ok(contexts)
}

/// Fits the parts, and adds their columns to the features, the prior and the map from attributes, which `fit_cold_map` fits
/// to a training.
///
/// # Errors
/// `Version` if a pipeline cannot be fitted, `Io`, or `Prior`.
pub(crate) fn add_parts(
    input: &PartsInput<'_>,
    mut trained: Trained,
    fit_cold_map: impl FnOnce(&Trained) -> Option<FittedColdMap>,
) -> Result<WithParts, RetrainError> {
    if input.loss == Loss::Implicit {
        let (what, range) = ("loss", "squared or logistic where features have computed parts");
        return Err(RetrainError::Setting { what, range, value: "implicit".to_owned() });
    }
    let folder = input.objects.clone();
    let objects = Objects::loading(move |id| match &folder {
        Some(folder) => std::fs::read(folder.join(id.hex())).map(Some).map_err(|error| error.to_string()),
        None => Ok(None),
    });
    let chosen = chosen_ratings(input);
    let mut specs = Vec::with_capacity(input.parts.len());
    let mut columns = Vec::with_capacity(input.parts.len());
    let mut handles = Vec::new();
    for part in input.parts {
        let FittedPart { spec, columns: of_part, learnt: _held } = fitted(part, input, (&trained, &chosen), &objects)?;
        for id in spec.pipeline.objects() {
            handles.push(named_object(&objects, id).map_err(part_error(&part.part))?);
        }
        specs.push(spec);
        columns.push(of_part);
    }
    handles.sort_by_key(|object: &Arc<Object>| object.id());
    handles.dedup_by_key(|object| object.id());
    let columns = Columns::beside(&columns);
    let dim = trained.dim + columns.width();
    let compiled = |specs: &[PartSpec]| Parts::compile(specs, dim, (&objects, &Catalog::default()));
    let parts = compiled(&specs)?;
    let of_items: Vec<ItemParts> =
        input.data.attributes.par_iter().map(|attributes| parts.item(attributes.as_ref())).collect();
    let mut effects = item_effects(input, &trained, (&parts, &of_items))?.into_iter();
    for spec in &mut specs {
        spec.item_effects = effects.by_ref().take(spec.item_effects.len()).collect();
    }
    let parts = compiled(&specs)?;
    // Of the map from attributes, only what the parts do not say of an item is wanted.
    let own_offsets = trained.item_offsets.clone();
    for (offset, of_item) in trained.item_offsets.iter_mut().zip(&of_items) {
        *offset -= parts.item_effect(of_item);
    }
    let cold_map = fit_cold_map(&trained).map(|fitted| FittedColdMap { map: fitted.map.with_zeros(dim), ..fitted });
    trained.item_offsets = own_offsets;
    let table = materialised(&parts, &trained, input.data.attributes);
    let fitting =
        Fitting { trained: &trained, loss: input.loss, ratings: input.data.ratings, chosen: &chosen, columns };
    let weights = fitting.weights()?;
    let figures = fitting.figures(&weights)?;
    let described = input.items.iter().zip(input.data.attributes).filter_map(|(item, of)| Some((item, of.as_ref()?)));
    let (width, moments) = (parts.moments_width(), of_items.iter().flat_map(|of_item| parts.moments(of_item)));
    let moments: Vec<f32> = moments.collect();
    let moments = (width > 0).then_some(ItemMoments { items: input.items, moments: &moments, width });
    let files = PartsFiles::of(specs, &handles, described, moments);
    let trained = widened(trained, table, &weights.mean(), weights.prior);
    Ok(WithParts { trained, cold_map, files, figures })
}

/// A training that fits no parts, with their columns: of zeros, and independent weights with the variance of the noise.
///
/// # Errors
/// `Prior`.
pub(crate) fn with_empty_columns(trained: Trained, columns: usize) -> Result<Trained, RetrainError> {
    let (dim, zeros) = (trained.dim, vec![0.0; columns]);
    let means = [vec![0.0; columns], vec![trained.prior.mean()[dim - 1]]].concat();
    let prior = extended_prior(&trained.prior, &means, &vec![1.0; columns])?;
    let table = extended_rows(&trained.item_features, dim, &zeros);
    Ok(widened(trained, table, &zeros, prior))
}

/// A training with more columns before the constant: these features of items, each user's weights of the columns, zeros for
/// an unknown item, and this prior.
fn widened(trained: Trained, item_features: Vec<f32>, of_users: &[f32], prior: Prior) -> Trained {
    let (dim, zeros) = (trained.dim, vec![0.0; of_users.len()]);
    let choices = extended_rows(&trained.choices, dim, &zeros);
    Trained {
        dim: dim + of_users.len(),
        item_features,
        user_weights: extended_rows(&trained.user_weights, dim, of_users),
        pulls: prior.pulls(&choices),
        choices,
        cold_item: ColdItem { features: extended_rows(&trained.cold_item.features, dim, &zeros), ..trained.cold_item },
        prior,
        ..trained
    }
}

fn part_error(part: &str) -> impl FnOnce(PipelineError) -> RetrainError {
    let part = part.to_owned();
    move |source| FeaturesError::Part { part, source: Box::new(source) }.into()
}

fn named_object(objects: &Objects, id: ObjectId) -> Result<Arc<Object>, PipelineError> {
    objects.get(id)?.ok_or_else(|| PipelineError::Load { id, problem: "it is not in the folder of objects".to_owned() })
}

/// Positions of the ratings to fit to: all of some users, in the order of the log.
fn chosen_ratings(input: &PartsInput<'_>) -> Vec<usize> {
    let width: usize = input.parts.iter().map(|part| part.dim).sum();
    let list = input.data.ratings.list();
    let most = RATINGS_MAX.min(VALUES_MAX / width.max(1));
    let one_in = list.len().div_ceil(most.max(1)).max(1);
    (0..list.len()).filter(|place| (list[*place].user as usize).is_multiple_of(one_in)).collect()
}

/// A part after its fit.
struct FittedPart {
    spec: PartSpec,
    /// Its standardised outputs for the chosen ratings.
    columns: Columns,
    /// Holds the objects that were learnt in memory.
    learnt: Vec<Arc<Object>>,
}

/// Fits the pipeline of a part and standardises its outputs for the chosen ratings.
fn fitted(
    part: &JobPart,
    input: &PartsInput<'_>,
    (trained, chosen): (&Trained, &[usize]),
    objects: &Objects,
) -> Result<FittedPart, RetrainError> {
    let (nothing, no_context) = (Map::new(), Context::default());
    let latent = trained.dim - 1;
    let is_probability = part.pipeline.fits_probabilities();
    let keys: Vec<[u8; 4]> = chosen.iter().map(|place| input.data.ratings.list()[*place].user.to_le_bytes()).collect();
    let rows = || {
        chosen.iter().zip(&keys).map(|(place, key)| {
            let rating: &Rating = &input.data.ratings.list()[*place];
            let item = rating.item as usize;
            Row {
                key,
                item: input.data.attributes[item].as_ref().unwrap_or(&nothing),
                context: input.data.contexts[*place].as_ref().unwrap_or(&no_context),
                label: Some(if is_probability { rating.label } else { left_over(trained, input.loss, rating) }),
                target: Some(&trained.item_features[item * trained.dim..][..latent]),
                weight: rating.weight,
            }
        })
    };
    let options = FitOptions { folds: FOLDS, seed: input.seed, ..FitOptions::default() };
    let fitted = fit(&part.pipeline, objects, rows, options).map_err(part_error(&part.part))?;
    let weights: Vec<f32> = chosen.iter().map(|place| input.data.ratings.list()[*place].weight).collect();
    let plan = Plan::compile(&fitted.spec, objects, &Catalog::default()).map_err(part_error(&part.part))?;
    let outputs = columns::outputs(&fitted, &plan, rows).map_err(part_error(&part.part))?;
    if outputs.width() != part.dim {
        let problem = format!(
            "{} has {} columns after its fit, and `dim` of the part is {}: give that number, or declare the pipeline as \
             `celeris pipelines fit` writes it, which fixes its columns",
            part.part,
            outputs.width(),
            part.dim
        );
        return Err(FeaturesError::Parts { problem }.into());
    }
    let is_of_both = plan.depends_on() == Depends::ItemAndContext;
    let contexts = if is_of_both { common_contexts(&plan, input.data, (chosen, outputs.given())) } else { Vec::new() };
    let means = item_means(&part.part, &plan, &contexts, input.data.attributes)?;
    let item = |place: usize| input.data.ratings.list()[chosen[place]].item as usize;
    let means_of = |place: usize| means.get(item(place)).and_then(Option::as_ref).map(|of_item| &**of_item);
    let Standardised { columns, means, deviations, is_constant } = outputs.standardised(&weights, means_of);
    let records = rows().map(|row| Record { item: row.item, context: row.context });
    let noted = PartNotes { unread_fields: plan.unread_fields(records), is_constant };
    // Until the means of the items are known.
    let item_effects = vec![0.0; if is_of_both { part.dim } else { 0 }];
    let (part, pipeline) = (part.part.clone(), fitted.spec);
    let spec = PartSpec { part, pipeline, means, deviations, contexts, item_effects, noted };
    Ok(FittedPart { spec, columns, learnt: fitted.objects })
}

/// The means of the outputs of a part for each item over the common contexts; none without contexts.
fn item_means(
    part: &str,
    plan: &Plan,
    contexts: &[ContextShare],
    attributes: &[Option<Map<String, Value>>],
) -> Result<Vec<Option<Box<[f32]>>>, RetrainError> {
    if contexts.is_empty() {
        return Ok(Vec::new());
    }
    let contexts = CommonContexts::new(part, plan, contexts)?;
    let of_item = |scratch: &mut Scratch, attributes: &Option<Map<String, Value>>| {
        let attributes = attributes.as_ref().filter(|attributes| plan.has_item(attributes))?;
        let values = plan.item_part(attributes, scratch);
        Some(contexts.moments(plan, &values, scratch)[..plan.dim()].into())
    };
    Ok(attributes.par_iter().map_init(Scratch::default, of_item).collect())
}

/// How much the mean score of an item rises with the means of the columns for it, by the factors of the items: a ridge
/// regression, by the numbers of their ratings.
#[expect(clippy::cast_possible_truncation, reason = "effects are held in f32; rounding to the nearest is meant")]
fn item_effects(
    input: &PartsInput<'_>,
    trained: &Trained,
    (parts, of_items): (&Parts, &[ItemParts]),
) -> Result<Vec<f32>, RetrainError> {
    let observed = input.data.ratings.observed();
    let weights: Vec<f64> = (0..of_items.len())
        .map(|item| f64::from(observed.get(item).copied().unwrap_or(0)))
        .map(|ratings| ratings / (ratings + ITEM_HALF_KNOWN))
        .collect();
    let rows: Vec<DVector<f64>> = of_items
        .iter()
        .map(|of_item| parts.item_means(of_item).into_iter().map(f64::from).collect::<Vec<f64>>().into())
        .collect();
    let width = rows.first().map_or(0, |row| row.len());
    if width == 0 {
        return Ok(Vec::new());
    }
    let score = |item: usize| {
        let features = &trained.item_features[item * trained.dim..][..trained.dim];
        let of_features = features.iter().zip(trained.prior.mean()).map(|(feature, mean)| f64::from(*feature) * mean);
        f64::from(trained.item_offsets[item]) + of_features.sum::<f64>()
    };
    let scores: Vec<f64> = (0..of_items.len()).map(score).collect();
    let total = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mean_score = weights.iter().zip(&scores).map(|(weight, score)| weight * score).sum::<f64>() / total;
    let mean_row =
        weights.iter().zip(&rows).fold(DVector::zeros(width), |sum, (weight, row)| sum + row * *weight) / total;
    let mut gram = DMatrix::identity(width, width) * ITEM_RIDGE;
    let mut gradient = DVector::zeros(width);
    for ((weight, row), score) in weights.iter().zip(&rows).zip(&scores) {
        let row = row - &mean_row;
        gradient.axpy(weight * (score - mean_score), &row, 1.0);
        gram.ger(*weight, &row, &row, 1.0);
    }
    let not_definite = ModelError::NotPositiveDefinite { what: "the squares of the means of items" };
    let effects = cholesky(gram.as_slice(), width).ok_or(not_definite)?.solve(&gradient);
    Ok(effects.iter().map(|effect| *effect as f32).collect())
}

/// The common contexts of the chosen ratings that have a part.
fn common_contexts(plan: &Plan, data: PartsData<'_>, (chosen, given): (&[usize], &Given)) -> Vec<ContextShare> {
    let observed = chosen.iter().zip(given.iter()).filter_map(|(place, given)| {
        let Rating { user, weight, .. } = data.ratings.list()[*place];
        let context = data.contexts[*place].as_ref().filter(|_| given)?;
        Some(Observed { user, weight, context })
    });
    contexts::common(plan.context_fields(), &observed.collect::<Vec<Observed<'_>>>())
}

/// What the factors leave unexplained of a rating, for a user of whom nothing is known: a model of the label itself would say
/// again what they say of the item.
#[expect(clippy::cast_possible_truncation, reason = "labels are held in f32; rounding to the nearest is meant")]
fn left_over(trained: &Trained, loss: Loss, rating: &Rating) -> f32 {
    let example = trained.example(rating);
    let weights = example.features.iter().zip(trained.prior.mean());
    let score = f64::from(example.offset) + weights.map(|(feature, mean)| f64::from(*feature) * mean).sum::<f64>();
    (loss.outcome(rating.label) - f64::from(loss.expected_label(score as f32))) as f32
}

/// The table with the columns of the parts that depend on the item alone.
fn materialised(parts: &Parts, trained: &Trained, attributes: &[Option<Map<String, Value>>]) -> Vec<f32> {
    let rows = trained.item_features.par_chunks_exact(trained.dim).zip(attributes);
    rows.flat_map_iter(|(factors, attributes)| parts.materialised(factors, attributes.as_ref())).collect()
}

/// Rows of length `dim` with more columns before their last.
fn extended_rows(rows: &[f32], dim: usize, more: &[f32]) -> Vec<f32> {
    rows.chunks_exact(dim).flat_map(|row| [&row[..dim - 1], more, &row[dim - 1..]].concat()).collect()
}

/// The prior of the factors with independent weights of the parts before the constant: the mean of each, and that of the
/// constant, and the precision of each, in units of the noise.
fn extended_prior(prior: &Prior, means: &[f64], precisions: &[f64]) -> Result<Prior, ModelError> {
    let (old, added) = (prior.dim(), precisions.len());
    let (latent, dim) = (old - 1, old + added);
    let place = |j: usize| if j < latent { j } else { j + added };
    let mut mean = vec![0.0; dim];
    let mut precision = vec![0.0; dim * dim];
    for i in 0..old {
        mean[place(i)] = prior.mean()[i];
        for j in 0..old {
            precision[place(i) * dim + place(j)] = prior.precision()[i * old + j];
        }
    }
    mean[latent..].copy_from_slice(means);
    for (j, of_precision) in precisions.iter().enumerate() {
        precision[(latent + j) * dim + latent + j] = *of_precision;
    }
    Ok(Prior::new(mean, precision, prior.noise_variance())?.with_recent_bias(prior.recent_bias()))
}
