//! Explains a score by the observations that contributed most to it, as terms of the posterior.

use celeris_model::{
    Context, Estimate, Influence, ItemId, Loss, ModelName, ObservationId, Timestamp, UserEpoch, UserId, VersionId,
};
use celeris_storage::{Event, observation_id};

use super::Explainer;
use crate::error::PredictorError;
use crate::features::missing_parts;
use crate::ranking::{ResolvedItems, estimates};
use crate::users::{ResolvedEvents, Stretch, Subject, UserSnapshot};
use crate::version::ServingVersion;

/// Longer histories are not explained: all their events, some 64 bytes each, are in memory at once.
const OBSERVATIONS_MAX: u64 = 1 << 18;

/// A request to explain a score.
#[derive(Debug, Clone, PartialEq)]
pub struct WhyRequest {
    pub model: ModelName,
    pub user: UserId,
    pub item: ItemId,
    /// Maximum number of observations to return.
    pub limit: usize,
    /// The answer must reflect at least this epoch of the user.
    pub min_epoch: Option<UserEpoch>,
    /// The context in which the item is scored.
    pub context: Option<Context>,
}

/// One observation and its contribution to the score.
#[derive(Debug, Clone, PartialEq)]
pub struct Because {
    pub item: ItemId,
    /// The label, as corrected.
    pub label: f32,
    /// The observation's weight, before forgetting.
    pub weight: f32,
    pub timestamp: Timestamp,
    /// Its id, for corrections and retractions; `None` if it was retracted meanwhile.
    pub observation_id: Option<ObservationId>,
    /// Change of the score due to this observation, in the score's unit.
    pub contribution: f64,
    /// The part of it that is due to the observation having been made, whatever its label; `None` under a version without
    /// choice vectors.
    pub of_choice: Option<f64>,
    /// The part of it that is due to the recent bias of the user; `None` under a version without.
    pub of_recent_bias: Option<f64>,
}

/// A score and its terms: it equals the sum of `prior`, `of_attributes`, every `because`, and `others`, up to
/// rounding of the state.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    pub version: VersionId,
    /// The loss, which defines the unit of the score.
    pub loss: Loss,
    /// The epoch of the user that the score reflects.
    pub user_epoch: UserEpoch,
    pub estimate: Estimate,
    /// Whether the item is known.
    pub known: bool,
    /// The score under the prior of all users alone.
    pub prior: f64,
    /// What the user's attributes add to it; `None` if the version has no map from them, or the user none that it knows.
    pub of_attributes: Option<f64>,
    /// The observations with the largest absolute contributions, largest first.
    pub because: Vec<Because>,
    /// Sum of the contributions of all other observations.
    pub others: f64,
    /// Total number of observations.
    pub observations: u64,
    /// What each computed part adds to the score, by the user's mean weights.
    pub parts: Vec<PartOfScore>,
    /// The names of the computed parts that are missing.
    pub missing: Vec<String>,
}

/// A computed part of the features, and what it adds to a score.
#[derive(Debug, Clone, PartialEq)]
pub struct PartOfScore {
    pub part: String,
    /// In the score's unit; that of the mean if the part is missing.
    pub contribution: f64,
}

/// A term of the sum.
struct Term {
    event: Event,
    contribution: f64,
    of_choice: Option<f64>,
    of_recent_bias: Option<f64>,
}

impl Explainer {
    /// Explains a score by the observations that contributed to it ([`celeris_model::influence`]).
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `EpochNotReached`, `HistoryTooLong` or `Storage`.
    pub async fn why(&self, request: &WhyRequest) -> Result<Why, PredictorError> {
        self.models.check_context(&request.model, request.context.as_ref())?;
        let subject = self.users.subject(self.models.get(&request.model)?, &request.user);
        self.users.reach(&subject, request.min_epoch).await?;
        let (snapshot, past) = self.snapshot_with_past(&subject)?;
        let (mut why, terms) = self.explain(&subject, &snapshot, past, request)?;
        self.users.settle(&subject, snapshot.pending.as_ref()).await?;
        // Only after this is every observation in the log, so that its id can be read.
        why.because = self.named(&subject, terms)?;
        Ok(why)
    }

    /// The user's state and all observations that it has learnt from, read under one lock.
    fn snapshot_with_past(&self, subject: &Subject) -> Result<(UserSnapshot, Vec<Event>), PredictorError> {
        self.users.with_state(subject, |state, sources| {
            let observations = state.observations();
            if observations > OBSERVATIONS_MAX {
                return Err(PredictorError::HistoryTooLong { observations, max: OBSERVATIONS_MAX });
            }
            Ok((state.snapshot(&subject.version, sources)?, state.past(sources, &subject.version)?))
        })
    }

    /// The answer without its `because`, and the terms for it.
    fn explain(
        &self,
        subject: &Subject,
        snapshot: &UserSnapshot,
        past: Vec<Event>,
        request: &WhyRequest,
    ) -> Result<(Why, Vec<Term>), PredictorError> {
        let version = &*subject.version;
        let items = std::slice::from_ref(&request.item);
        let picked = ResolvedItems::all(version, items).in_context(request.context.as_ref());
        let resolved = self.scorer.resolve(subject, &picked)?.swap_remove(0);
        let estimate = estimates(&snapshot.model, version, std::iter::once(&resolved)).swap_remove(0);
        let history = ResolvedEvents::of(Stretch::whole(&past, version), version, &self.users.sources(&subject.key))?;
        let (offset, features) = (resolved.offset(), resolved.features());
        let parts = parts_of_score(version, &snapshot.model.weights(), features);
        let influence = snapshot.model.influence(&version.learning, &history, offset, features)?;
        drop(history);
        let Influence { contributions, choices, recent_bias, .. } = &influence;
        let term = |(index, event)| {
            let (of_choice, of_recent_bias) = (choices.get(index).copied(), recent_bias.get(index).copied());
            let further = of_choice.unwrap_or_default() + of_recent_bias.unwrap_or_default();
            Term { event, contribution: contributions[index] + further, of_choice, of_recent_bias }
        };
        let mut terms: Vec<Term> = past.into_iter().enumerate().map(term).collect();
        // Ties are broken by the latest epoch, so that the order is deterministic.
        let furthest = |a: &Term, b: &Term| {
            b.contribution.abs().total_cmp(&a.contribution.abs()).then(b.event.epoch.cmp(&a.event.epoch))
        };
        let observations = terms.len() as u64;
        terms.sort_unstable_by(furthest);
        let others = terms.split_off(request.limit.min(terms.len()));
        let why = Why {
            version: version.id,
            loss: version.learning.loss(),
            user_epoch: snapshot.epoch,
            estimate,
            known: resolved.known(),
            prior: influence.prior,
            of_attributes: influence.profile,
            because: Vec::new(),
            others: others.iter().map(|term| term.contribution).sum(),
            observations,
            parts,
            missing: missing_parts(version, std::iter::once(&resolved)),
        };
        Ok((why, terms))
    }

    /// Adds the observation ids to the terms. All observations are durable.
    fn named(&self, subject: &Subject, terms: Vec<Term>) -> Result<Vec<Because>, PredictorError> {
        let named = |Term { event, contribution, of_choice, of_recent_bias }| {
            let found = self.storage.histories().event(&subject.key.stream, &subject.key.user, event.epoch)?;
            let Event { item, label, weight, timestamp, .. } = event;
            let observation_id = found.map(|(sequence, record)| observation_id(sequence, &record));
            Ok(Because { item, label, weight, timestamp, observation_id, contribution, of_choice, of_recent_bias })
        };
        terms.into_iter().map(named).collect()
    }
}

fn parts_of_score(version: &ServingVersion, weights: &[f64], features: &[f32]) -> Vec<PartOfScore> {
    let Some(parts) = &version.parts else { return Vec::new() };
    let contribution =
        |columns: std::ops::Range<usize>| columns.map(|column| weights[column] * f64::from(features[column])).sum();
    let part = |(name, columns): (&str, _)| PartOfScore { part: name.to_owned(), contribution: contribution(columns) };
    parts.columns().map(part).collect()
}
