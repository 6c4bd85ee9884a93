//! Which of a user's observations have moved a score most: the terms that the posterior is a sum of.

use celeris_model::{Estimate, ItemId, Loss, ModelName, ObservationId, Timestamp, UserEpoch, UserId, VersionId};
use celeris_storage::{Event, observation_id};

use crate::error::PredictorError;
use crate::node::{Predictor, RequestContext, compute};
use crate::scoring::{self, ResolvedItems};
use crate::users::{ResolvedEvents, Stretch, UserSnapshot};

/// Histories longer than this are not explained: their events, some 64 bytes each, are all looked at at once.
const OBSERVATIONS_MAX: u64 = 1 << 18;

/// Which score to explain, and how far.
#[derive(Debug, Clone, PartialEq)]
pub struct WhyRequest {
    /// The model that scores.
    pub model: ModelName,
    /// The user.
    pub user: UserId,
    /// The item.
    pub item: ItemId,
    /// How many observations to name.
    pub limit: usize,
    /// The answer must reflect at least that many of the user's events.
    pub min_epoch: Option<UserEpoch>,
}

/// One observation, and what it has done to the score.
#[derive(Debug, Clone, PartialEq)]
pub struct Because {
    /// What it is about.
    pub item: ItemId,
    /// The label, as corrected.
    pub label: f32,
    /// How many times over it counts, before anything has faded.
    pub weight: f32,
    /// When it happened.
    pub timestamp: Timestamp,
    /// By what it is corrected or forgotten; `None` where it has been forgotten since.
    pub observation_id: Option<ObservationId>,
    /// By how much it has moved the score, in the score's unit; positive is up.
    pub contribution: f64,
}

/// A score and what it is made of: `prior`, every `because`, and `others` sum to it, but for the rounding of the state.
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    /// The version that scored.
    pub version: VersionId,
    /// What its scores mean.
    pub loss: Loss,
    /// How many of the user's events the score reflects.
    pub user_epoch: UserEpoch,
    /// The score with its uncertainty.
    pub estimate: Estimate,
    /// Whether anything is known of the item.
    pub known: bool,
    /// The score of who has said nothing.
    pub prior: f64,
    /// The observations that have moved it furthest, up or down, the furthest first.
    pub because: Vec<Because>,
    /// What all other observations have moved it together.
    pub others: f64,
    /// How many observations there are in all.
    pub observations: u64,
}

/// A term of the sum.
struct Term {
    event: Event,
    contribution: f64,
}

impl Predictor {
    /// Explains a score by the observations that it comes from ([`celeris_model::influence`]).
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `EpochNotReached`, `HistoryTooLong` or `Storage`.
    pub async fn why(&self, request: &WhyRequest) -> Result<Why, PredictorError> {
        let subject = self.subject(&request.model, &request.user)?;
        self.reach(&subject, request.min_epoch).await?;
        let (moment, (mut why, terms)) = compute(false, || {
            let (moment, past) = self.moment_with_past(&subject)?;
            let told = self.told_apart(&subject, &moment, past, request)?;
            Ok::<_, PredictorError>((moment, told))
        })?;
        self.settle(&subject, moment.pending.as_ref()).await?;
        // Only now is it certain that the log knows them all.
        why.because = compute(false, || self.named(&subject, terms))?;
        Ok(why)
    }

    /// The user's state, and all that it has learnt from, at the same moment.
    fn moment_with_past(&self, subject: &RequestContext) -> Result<(UserSnapshot, Vec<Event>), PredictorError> {
        let RequestContext { version, entry, key, .. } = subject;
        let sources = self.sources(key);
        let mut user = entry.lock(&sources, version)?;
        let state = user.state();
        let observations = state.observations();
        if observations > OBSERVATIONS_MAX {
            return Err(PredictorError::HistoryTooLong { observations, max: OBSERVATIONS_MAX });
        }
        let moment =
            UserSnapshot { model: state.model(version, &sources)?, epoch: state.epoch, pending: state.pending() };
        let past = state.past(&sources, version)?;
        drop(user);
        self.update_weight(key);
        Ok((moment, past))
    }

    /// The answer but for the names of its observations, and their terms.
    fn told_apart(
        &self,
        subject: &RequestContext,
        moment: &UserSnapshot,
        past: Vec<Event>,
        request: &WhyRequest,
    ) -> Result<(Why, Vec<Term>), PredictorError> {
        let version = &*subject.version;
        let items = std::slice::from_ref(&request.item);
        let resolved = self.resolve_all(subject, &ResolvedItems::all(version, items))?.swap_remove(0);
        let estimate = scoring::estimates(&moment.model, version, std::iter::once(&resolved)).swap_remove(0);
        let history = ResolvedEvents::of(Stretch::whole(&past, version), version, &self.sources(&subject.key))?;
        let (offset, features) = (resolved.offset(), resolved.features());
        let influence = moment.model.influence(&version.learning, &history, offset, features)?;
        drop(history);
        let contributions = influence.contributions.into_iter();
        let mut terms: Vec<Term> =
            past.into_iter().zip(contributions).map(|(event, contribution)| Term { event, contribution }).collect();
        // Of equal ones the latest comes first, so that the order is always the same.
        let furthest = |a: &Term, b: &Term| {
            b.contribution.abs().total_cmp(&a.contribution.abs()).then(b.event.epoch.cmp(&a.event.epoch))
        };
        let observations = terms.len() as u64;
        terms.sort_unstable_by(furthest);
        let others = terms.split_off(request.limit.min(terms.len()));
        let why = Why {
            version: version.id,
            loss: version.learning.loss(),
            user_epoch: moment.epoch,
            estimate,
            known: resolved.known(),
            prior: influence.prior,
            because: Vec::new(),
            others: others.iter().map(|term| term.contribution).sum(),
            observations,
        };
        Ok((why, terms))
    }

    /// The terms with the ids by which their observations go, all of which are durable.
    fn named(&self, subject: &RequestContext, terms: Vec<Term>) -> Result<Vec<Because>, PredictorError> {
        let named = |Term { event, contribution }| {
            let found = self.storage.event(&subject.key.stream, &subject.key.user, event.epoch)?;
            let Event { item, label, weight, timestamp, .. } = event;
            let observation_id = found.map(|(sequence, record)| observation_id(sequence, &record));
            Ok(Because { item, label, weight, timestamp, observation_id, contribution })
        };
        terms.into_iter().map(named).collect()
    }
}
