//! Replays users' histories under any version, serving or not, and predicts each observation before
//! it is learnt from.
//!
//! Does not touch the caches or user states that requests use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use celeris_model::preference::Takings;
use celeris_model::{Estimate, Example, ItemId, Record, RecordKind, Sequence, Shard, StreamName, UserId, UserModel};
use celeris_storage::Storage;

use crate::error::PredictorError;
use crate::features::{FeatureStore, LaterItem, Resolved, in_context, one_in_context};
use crate::ranking::scores;
use crate::version::ServingVersion;

/// Items outside the trained table that a replay keeps in memory; beyond it, the map is cleared.
const REMEMBERED_ITEMS_MAX: usize = 10_000;

pub struct Replay<'v> {
    version: &'v ServingVersion,
    stream: StreamName,
    storage: Storage,
    features: FeatureStore,
    later: HashMap<(Shard, ItemId), Arc<LaterItem>>,
}

/// One observation as a version would have predicted it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replayed {
    /// Its position in the user's partition.
    pub sequence: Sequence,
    /// The estimate from the posterior of all earlier observations of the user.
    pub estimate: Estimate,
    /// Whether it took part in the validation pool.
    pub pool: bool,
    pub label: f32,
    /// The share of the other items that score higher, ties counted half; `None` if there are no
    /// others. Items that the user has observations of are left out: they rank high because of
    /// these.
    pub outranked: Option<f32>,
}

impl<'v> Replay<'v> {
    pub(crate) fn new(
        storage: Storage,
        features: FeatureStore,
        stream: StreamName,
        version: &'v ServingVersion,
    ) -> Self {
        Self { version, stream, storage, features, later: HashMap::new() }
    }

    /// Predicts the `wanted` observations of a user, each before it is learnt from, in their order,
    /// and ranks them among other items.
    ///
    /// Observations before the first wanted one are learnt from in one batch, as in a rebuilt
    /// state.
    ///
    /// # Errors
    /// `Model` or `Storage`.
    pub fn user(
        &mut self,
        user: &UserId,
        history: &[(Sequence, Record)],
        among: &[ItemId],
        wanted: impl Fn(Sequence) -> bool,
    ) -> Result<Vec<Replayed>, PredictorError> {
        debug_assert!(history.iter().all(|(_, record)| record.user == *user), "a history is one user's");
        let events = observations(history);
        let Some(first) = events.iter().position(|(sequence, ..)| wanted(*sequence)) else { return Ok(Vec::new()) };
        let last = events.iter().rposition(|(sequence, ..)| wanted(*sequence)).unwrap_or(first);
        let events = &events[..=last];
        let resolved: Vec<Resolved<'v>> =
            events.iter().map(|(_, item, record)| self.learnt(user, item, record)).collect::<Result<_, _>>()?;
        let examples = examples(events.iter().map(|event| event.2).zip(&resolved));
        let met: HashSet<&ItemId> = events.iter().map(|(_, item, _)| *item).collect();
        let among = among.iter().filter(|item| !met.contains(item));
        let among: Vec<Resolved<'v>> = among.map(|item| self.resolve(user, item)).collect::<Result<_, _>>()?;
        let among = in_context(self.version, among, None);
        let learning = &self.version.learning;
        let pull = self.profile(user)?;
        let mut state = UserModel::rebuild(learning, examples.as_slice(), first as u64)?.with_profile(learning, pull);
        let mut replayed = Vec::new();
        for (index, (sequence, _, record)) in events.iter().enumerate().skip(first) {
            if wanted(*sequence) {
                let example = &examples[index];
                let estimate = state.estimate(learning, example.offset, example.features);
                let pool = record.decision.as_ref().is_some_and(|facts| facts.pool);
                let others = scores(&state, &among);
                let outranked = outranked(estimate.score, &others);
                replayed.push(Replayed { sequence: *sequence, estimate, pool, label: record.label, outranked });
            }
            state.absorb(learning, examples.as_slice())?;
        }
        Ok(replayed)
    }

    /// The scores of `items` for a user, by the posterior of the whole history.
    ///
    /// # Errors
    /// `Model` or `Storage`.
    pub fn scores(
        &mut self,
        user: &UserId,
        history: &[(Sequence, Record)],
        items: &[ItemId],
    ) -> Result<Vec<f32>, PredictorError> {
        let events = observations(history);
        let seen = events.iter().map(|(_, item, record)| self.learnt(user, item, record));
        let seen: Vec<Resolved<'v>> = seen.collect::<Result<_, _>>()?;
        let examples = examples(events.iter().map(|event| event.2).zip(&seen));
        let pull = self.profile(user)?;
        let state = UserModel::rebuild(&self.version.learning, examples.as_slice(), examples.len() as u64)?;
        let state = state.with_profile(&self.version.learning, pull);
        let asked: Vec<Resolved<'v>> = items.iter().map(|item| self.resolve(user, item)).collect::<Result<_, _>>()?;
        Ok(scores(&state, &in_context(self.version, asked, None)))
    }

    /// All events of a user, for [`Replay::user`] and [`Replay::scores`].
    ///
    /// # Errors
    /// `Storage`.
    pub fn history(&self, user: &UserId) -> Result<Vec<(Sequence, Record)>, PredictorError> {
        Ok(self.storage.histories().of(&self.stream, user)?)
    }

    /// What the attributes that the user has now move the state by.
    fn profile(&self, user: &UserId) -> Result<Option<Arc<[f32]>>, PredictorError> {
        if self.version.user_map.is_none() {
            return Ok(None);
        }
        let attributes = self.storage.user_attributes().get(&self.stream, user)?;
        Ok(attributes.and_then(|attributes| self.version.profile(&attributes)))
    }

    /// The features that a state learns from by a record of an item.
    fn learnt(&mut self, user: &UserId, item: &ItemId, record: &Record) -> Result<Resolved<'v>, PredictorError> {
        let resolved = self.resolve(user, item)?;
        let context = record.context.as_ref().map(|context| context.named());
        Ok(one_in_context(self.version, resolved, context.as_ref()))
    }

    fn resolve(&mut self, user: &UserId, item: &ItemId) -> Result<Resolved<'v>, PredictorError> {
        if let Some(slot) = self.version.theta.slot(item) {
            return Ok(Resolved::trained(self.version, slot));
        }
        let scope = self.features.scope_of(&self.stream, user);
        let key = (scope.shard, item.clone());
        if let Some(found) = self.later.get(&key) {
            return Ok(Resolved::Later(found.clone()));
        }
        let found = self.features.read(self.version, scope, item)?;
        if self.later.len() >= REMEMBERED_ITEMS_MAX {
            self.later.clear();
        }
        self.later.insert(key, found.clone());
        Ok(Resolved::Later(found))
    }
}

fn outranked(score: f32, others: &[f32]) -> Option<f32> {
    let above = others.iter().filter(|other| **other > score).count() as f32;
    let equal = others.iter().filter(|other| **other == score).count() as f32;
    (!others.is_empty()).then(|| (above + equal / 2.0) / others.len() as f32)
}

fn observations(history: &[(Sequence, Record)]) -> Vec<(Sequence, &ItemId, &Record)> {
    let observed = history.iter().filter(|(_, record)| record.kind == RecordKind::Observe);
    observed.filter_map(|(sequence, record)| Some((*sequence, record.item.as_ref()?, record))).collect()
}

/// The training examples of a whole history, given each record with its item's features.
pub(crate) fn examples<'a>(history: impl IntoIterator<Item = (&'a Record, &'a Resolved<'a>)>) -> Vec<Example<'a>> {
    let mut takings = Takings::default();
    let example = |(record, item): (&'a Record, &'a Resolved<'a>)| Example {
        features: item.features(),
        label: record.label,
        offset: item.offset(),
        weight: record.weight,
        timestamp: record.timestamp,
        taken_before: takings.next(record.item.as_ref(), record.label, record.timestamp),
        choice: item.choice(),
    };
    history.into_iter().map(example).collect()
}
