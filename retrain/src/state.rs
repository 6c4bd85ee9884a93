//! The trainer's state in a version directory, for the warm start of the next training.
//!
//! | file | contents |
//! |---|---|
//! | `trainer_state.json` | the chosen settings, and the part of the fit whose size does not depend on the data |
//! | `trainer_items.parquet` | [`celeris_formats::trainer_items`] |
//!
//! The version's own `item_features.parquet` is not sufficient: its features are standardised, and
//! contain pinned ones. Serving does not need these files; without them the next training starts
//! cold. A version from a warm start contains the state of its cold training: see
//! [`crate::refresh`].

use std::path::Path;
use std::sync::Arc;

use celeris_formats::columns::ROWS_A_BATCH;
use celeris_formats::trainer_items::{
    self, BIAS, BIAS_VARIANCE, CHOICES, FACTOR_VARIANCES, FACTORS, ITEM, TrainerItems,
};
use celeris_formats::version_dir::TRAINER_STATE_FILE;
use celeris_formats::{FormatError, Manifest, ParquetFile, RecordBatch, checked_file};
use celeris_model::{ItemId, Loss, RecentBias};
use serde::{Deserialize, Serialize};

use crate::als::{AlsState, Population};
use crate::error::RetrainError;
use crate::side_features::SIDE_FEATURES;

/// The settings chosen by a cold training, which the next trainings take over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settled {
    pub(crate) loss: Loss,
    pub(crate) dim: usize,
    /// Number of ratings in the training.
    pub(crate) ratings: usize,
    pub(crate) regularization: f64,
    /// Whether choice vectors were fitted.
    #[serde(default)]
    pub(crate) choices: bool,
    pub(crate) prior_scale: f64,
    /// The rule of the users' recent bias; `None` if they have none.
    #[serde(default)]
    pub(crate) recent_bias: Option<RecentBias>,
    /// Gain by which log-odds of clicks are shrunk; 1 for other losses.
    pub(crate) gain: f64,
    /// `sigma^2` of the version.
    pub(crate) noise_variance: f64,
}

/// Factors, indexed by the numbers of items.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Known {
    Als(Arc<AlsState>),
    /// Row-major `items x (dim - 1)`.
    Implicit(Vec<f32>),
}

/// The state from which a later training can start.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainerState {
    pub(crate) settled: Settled,
    pub(crate) known: Known,
}

/// Contents of the JSON file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFile {
    settled: Settled,
    population: Option<Population>,
}

impl Settled {
    /// Number of latent factors.
    fn latent(&self) -> usize {
        match self.loss {
            Loss::Squared | Loss::Logistic => self.dim - 1 - SIDE_FEATURES.min(self.dim - 1),
            Loss::Implicit => self.dim - 1,
        }
    }
}

impl TrainerState {
    /// The state extended to `items` items; the added ones are unknown.
    #[expect(clippy::cast_possible_truncation, reason = "variances are held in f32; rounding to the nearest is meant")]
    pub(crate) fn for_items(&self, items: usize) -> Self {
        let latent = self.settled.latent();
        let known = match &self.known {
            Known::Als(state) if state.biases.len() < items => {
                let mut state = AlsState::clone(state);
                state.factors.resize(items * latent, 0.0);
                state.factor_variances.resize(items * latent, 1.0);
                state.biases.resize(items, 0.0);
                state.bias_variances.resize(items, state.population.bias_variance as f32);
                state.choices.iter_mut().for_each(|choices| choices.resize(items * self.settled.dim, 0.0));
                Known::Als(Arc::new(state))
            }
            Known::Implicit(factors) if factors.len() < items * latent => {
                let mut factors = factors.clone();
                factors.resize(items * latent, 0.0);
                Known::Implicit(factors)
            }
            whole => whole.clone(),
        };
        Self { settled: self.settled.clone(), known }
    }

    /// Contents of the files; `items` are the ids of the rows.
    pub(crate) fn files(&self, items: &[ItemId]) -> (Vec<u8>, Vec<RecordBatch>) {
        let population = match &self.known {
            Known::Als(state) => Some(state.population.clone()),
            Known::Implicit(_) => None,
        };
        let file = StateFile { settled: self.settled.clone(), population };
        let text = serde_json::to_vec_pretty(&file).expect("numbers and names always serialise");
        let starts: Vec<usize> = (0..items.len().max(1)).step_by(ROWS_A_BATCH).collect();
        let batch = |start: &usize| self.batch(items, *start..(start + ROWS_A_BATCH).min(items.len()));
        (text, starts.iter().map(batch).collect())
    }

    fn batch(&self, items: &[ItemId], rows: std::ops::Range<usize>) -> RecordBatch {
        let (latent, dim) = (self.settled.latent(), self.settled.dim);
        let factors = rows.start * latent..rows.end * latent;
        let items = TrainerItems {
            items: &items[rows.clone()],
            latent,
            biases: None,
            bias_variances: None,
            factors: None,
            factor_variances: None,
            dim,
            choices: None,
        };
        let items = match &self.known {
            Known::Als(state) => TrainerItems {
                biases: Some(&state.biases[rows.clone()]),
                bias_variances: Some(&state.bias_variances[rows.clone()]),
                choices: state.choices.as_ref().map(|choices| &choices[rows.start * dim..rows.end * dim]),
                factors: Some(&state.factors[factors.clone()]),
                factor_variances: Some(&state.factor_variances[factors]),
                ..items
            },
            Known::Implicit(known) => TrainerItems { factors: Some(&known[factors]), ..items },
        };
        items.table()
    }

    /// Reads the state from a version directory, for items numbered by `number` below `count`;
    /// `None` if there is none.
    ///
    /// # Errors
    /// [`RetrainError::Format`] or `JobFile` with the file.
    pub(crate) fn read(
        dir: &Path,
        manifest: &Manifest,
        count: usize,
        number: impl Fn(&str) -> Option<u32>,
    ) -> Result<Option<Self>, RetrainError> {
        let (Some(text), Some(items)) =
            (checked_file(dir, manifest, TRAINER_STATE_FILE)?, checked_file(dir, manifest, trainer_items::FILE)?)
        else {
            return Ok(None);
        };
        let bytes = std::fs::read(&text).map_err(|source| RetrainError::Io { path: text.clone(), source })?;
        let StateFile { settled, population } =
            serde_json::from_slice(&bytes).map_err(|source| RetrainError::JobFile { path: text.clone(), source })?;
        if settled.dim != manifest.dim {
            let problem = format!("has dim {}, the manifest says {}", settled.dim, manifest.dim);
            return Err(FormatError::Manifest { path: text, problem }.into());
        }
        let known = match population {
            Some(population) => Known::Als(Arc::new(read_als(&items, &settled, population, count, number)?)),
            None => Known::Implicit(read_factors(&items, &settled, count, number)?),
        };
        Ok(Some(Self { settled, known }))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "variances are held in f32; rounding to the nearest is meant")]
fn read_als(
    path: &Path,
    settled: &Settled,
    population: Population,
    count: usize,
    number: impl Fn(&str) -> Option<u32>,
) -> Result<AlsState, RetrainError> {
    let (latent, dim) = (settled.latent(), settled.dim);
    let (means, covariances) = (population.weight_mean.len(), population.weight_covariance.len());
    if means != dim || covariances != dim * dim {
        let problem = format!("holds {means} mean weights and {covariances} covariances of dim {dim}");
        return Err(FormatError::Manifest { path: path.with_file_name(TRAINER_STATE_FILE), problem }.into());
    }
    let mut state = AlsState {
        factors: vec![0.0; count * latent],
        factor_variances: vec![1.0; count * latent],
        biases: vec![0.0; count],
        bias_variances: vec![population.bias_variance as f32; count],
        choices: settled.choices.then(|| vec![0.0; count * dim]),
        population,
    };
    let mut file = ParquetFile::open(path)?;
    while let Some(batch) = file.next_batch()? {
        let names = batch.text(ITEM)?;
        let biases = batch.numbers::<f32>(BIAS)?;
        let variances = batch.numbers::<f32>(BIAS_VARIANCE)?;
        let list = |column| if latent > 0 { batch.lists::<f32>(column, latent) } else { Ok(Vec::new()) };
        let (factors, factor_variances) = (list(FACTORS)?, list(FACTOR_VARIANCES)?);
        let choices = if settled.choices { batch.lists::<f32>(CHOICES, dim)? } else { Vec::new() };
        for (row, item) in names.iter().flatten().enumerate() {
            let Some(item) = number(item).map(|item| item as usize) else { continue };
            (state.biases[item], state.bias_variances[item]) = (biases[row], variances[row]);
            state.factors[item * latent..][..latent].copy_from_slice(&factors[row * latent..][..latent]);
            state.factor_variances[item * latent..][..latent]
                .copy_from_slice(&factor_variances[row * latent..][..latent]);
            if let Some(known) = &mut state.choices {
                known[item * dim..][..dim].copy_from_slice(&choices[row * dim..][..dim]);
            }
        }
    }
    Ok(state)
}

fn read_factors(
    path: &Path,
    settled: &Settled,
    count: usize,
    number: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<f32>, RetrainError> {
    let latent = settled.latent();
    let mut known = vec![0.0; count * latent];
    let mut file = ParquetFile::open(path)?;
    while let Some(batch) = file.next_batch()? {
        if latent == 0 {
            break;
        }
        let names = batch.text(ITEM)?;
        let factors = batch.lists::<f32>(FACTORS, latent)?;
        for (item, factors) in names.iter().flatten().zip(factors.chunks_exact(latent)) {
            if let Some(item) = number(item) {
                known[item as usize * latent..][..latent].copy_from_slice(factors);
            }
        }
    }
    Ok(known)
}
