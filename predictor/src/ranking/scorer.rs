//! Scores of a request's items: each item is looked up once, and all are scored in one batch.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use celeris_bandits::{Candidates, Wants};
use celeris_model::{Context, Estimate, FeatureOrigin, ItemId, StreamName, UserEpoch, UserId, UserModel};
use foldhash::fast::RandomState;

use super::Scored;
use super::inputs::PolicyInputs;
use super::predictions::{CachedPrediction, CachedPredictions, PredictionCache, PredictionKey};
use crate::cache::BoundedCache;
use crate::error::PredictorError;
use crate::features::{FeatureStore, MissingVariance, Resolved, in_context};
use crate::users::{Persistence, Subject, UserSnapshot, UserStatus};
use crate::version::ServingVersion;

/// Items of a request, with their rows in the version's table.
pub(crate) struct ResolvedItems<'r> {
    items: Vec<(&'r ItemId, Option<u32>)>,
    /// The context of the request.
    context: Option<&'r Context>,
}

impl<'r> ResolvedItems<'r> {
    pub(crate) fn all(version: &ServingVersion, items: &'r [ItemId]) -> Self {
        Self { items: items.iter().zip(version.theta.slots(items)).collect(), context: None }
    }

    /// The items in the context of the request, which computed parts depend on.
    pub(crate) fn in_context(self, context: Option<&'r Context>) -> Self {
        Self { context, ..self }
    }

    /// The items in the order of their first occurrence.
    pub(crate) fn distinct(version: &ServingVersion, items: &'r [ItemId]) -> Self {
        let mut picked = Vec::with_capacity(items.len());
        let mut trained = Marks::new(version.theta.items().len(), items.len());
        let mut outside: HashSet<&ItemId> = HashSet::new();
        for (item, slot) in items.iter().zip(version.theta.slots(items)) {
            let new = match slot {
                Some(slot) => trained.mark(slot),
                None => outside.insert(item),
            };
            if new {
                picked.push((item, slot));
            }
        }
        Self { items: picked, context: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn items(&self) -> impl ExactSizeIterator<Item = &'r ItemId> {
        self.items.iter().map(|(item, _)| *item)
    }

    /// The items' rows in the version's table, and the items without one, in order.
    pub(crate) fn rows(&self) -> (Vec<Option<u32>>, Vec<ItemId>) {
        let rows = self.items.iter().map(|(_, row)| *row).collect();
        let outside = self.items.iter().filter(|(_, row)| row.is_none());
        (rows, outside.map(|(item, _)| (*item).clone()).collect())
    }

    pub(crate) fn item(&self, index: usize) -> &'r ItemId {
        self.items[index].0
    }
}

/// Set of rows of a table.
enum Marks {
    /// A bit for every row: fastest if the table is not much larger than the request.
    Bits(Vec<u64>),
    Set(HashSet<u32, RandomState>),
}

/// Bits that can be cleared, including touching their pages, in the time of one insertion into a
/// hash set.
const BITS_AN_ITEM: usize = 128;

impl Marks {
    fn new(rows: usize, items: usize) -> Self {
        if rows <= items * BITS_AN_ITEM {
            Self::Bits(vec![0; rows.div_ceil(u64::BITS as usize)])
        } else {
            Self::Set(HashSet::with_capacity_and_hasher(items, RandomState::default()))
        }
    }

    /// Inserts a row; returns whether it is new.
    fn mark(&mut self, row: u32) -> bool {
        match self {
            Self::Bits(words) => {
                let (word, bit) = (&mut words[(row / u64::BITS) as usize], 1 << (row % u64::BITS));
                let new = *word & bit == 0;
                *word |= bit;
                new
            }
            Self::Set(rows) => rows.insert(row),
        }
    }
}

/// Candidates with the inputs that the policy needs.
pub(crate) struct ScoredCandidates<'s> {
    pub(crate) snapshot: UserSnapshot,
    pub(crate) resolved: Vec<Resolved<'s>>,
    pub(crate) inputs: PolicyInputs,
    /// Length `n`, or empty if the policy needs only scores.
    pub(crate) estimates: Vec<Estimate>,
}

impl ScoredCandidates<'_> {
    pub(crate) fn candidates<'a>(&'a self, subject: &'a Subject) -> Candidates<'a> {
        self.inputs.candidates(&self.snapshot.model, &subject.version.learning)
    }
}

/// Scores items, through a cache of predictions.
pub(crate) struct Scorer {
    features: Arc<FeatureStore>,
    predictions: PredictionCache,
    /// The most items of a request whose predictions are cached and looked up.
    cached_items_max: usize,
}

impl Scorer {
    pub(crate) fn new(features: Arc<FeatureStore>, bytes_max: usize, cached_items_max: usize) -> Self {
        Self { features, predictions: BoundedCache::new("predictions", bytes_max), cached_items_max }
    }

    pub(crate) fn resolve<'s>(
        &self,
        subject: &'s Subject,
        items: &ResolvedItems<'_>,
    ) -> Result<Vec<Resolved<'s>>, PredictorError> {
        let version = &*subject.version;
        let scope = self.features.scope_of(&subject.key.stream, &subject.key.user);
        let mut resolved = Vec::with_capacity(items.len());
        for (item, slot) in &items.items {
            resolved.push(match slot {
                Some(slot) => Resolved::trained(version, *slot),
                None => self.features.resolve(version, scope, item)?,
            });
        }
        Ok(in_context(version, resolved, items.context))
    }

    /// Whether the predictions of a request of `items` items are cached and looked up.
    fn caches_predictions(&self, subject: &Subject, items: usize) -> bool {
        // Predictions in a context are hardly asked for again.
        let by_context = subject.version.parts.as_ref().is_some_and(|parts| parts.by_context());
        !by_context && (1..=self.cached_items_max).contains(&items) && subject.persistence == Persistence::Kept
    }

    /// Cache key of an item's prediction; `read` is the revision at which its features were read.
    fn prediction_key(
        &self,
        subject: &Subject,
        (epoch, profile): (UserEpoch, u64),
        item: &ItemId,
        read: Option<u64>,
    ) -> PredictionKey {
        PredictionKey {
            version: subject.version.serial,
            user: subject.key.user.clone(),
            epoch,
            profile,
            losses: subject.losses,
            item: item.clone(),
            revision: read.unwrap_or_else(|| self.features.revision(item)),
        }
    }

    /// The answer from the prediction cache alone, without the user's state or the table; `None` if
    /// any item is missing.
    pub(crate) fn recalled(&self, subject: &Subject, items: &[ItemId]) -> Option<(UserStatus, Vec<Scored>)> {
        if !self.caches_predictions(subject, items.len()) {
            return None;
        }
        let status = subject.entry.status()?;
        let of = (status.epoch, status.profile);
        let keys = items.iter().map(|item| self.prediction_key(subject, of, item, None));
        let found = self.predictions.get_all(keys)?;
        let scored =
            |(item, CachedPrediction { estimate, known }): (&ItemId, _)| Scored { item: item.clone(), estimate, known };
        Some((status, items.iter().zip(found).map(scored).collect()))
    }

    /// The estimates of all items, from the prediction cache if a request of this size uses it.
    pub(crate) fn estimate(
        &self,
        subject: &Subject,
        snapshot: &UserSnapshot,
        items: &ResolvedItems<'_>,
        resolved: &[Resolved<'_>],
    ) -> Vec<Estimate> {
        let version = &*subject.version;
        if !self.caches_predictions(subject, items.len()) {
            return estimates(&snapshot.model, version, resolved.iter());
        }
        let mut answer = Vec::with_capacity(items.len());
        let mut missing = Vec::new();
        for (index, item) in items.items().enumerate() {
            let of = (snapshot.epoch, snapshot.profile);
            let key = self.prediction_key(subject, of, item, resolved[index].revision());
            let found = self.predictions.get(&key);
            answer.push(found.map(|prediction| prediction.estimate));
            if found.is_none() {
                missing.push((index, key));
            }
        }
        let started = Instant::now();
        let computed = estimates(&snapshot.model, version, missing.iter().map(|(index, _)| &resolved[*index]));
        if let Some(took) = u32::try_from(missing.len()).ok().and_then(|count| started.elapsed().checked_div(count)) {
            self.predictions.record_load(took);
        }
        for ((index, key), estimate) in missing.into_iter().zip(computed) {
            answer[index] = Some(estimate);
            self.predictions.insert(key, CachedPrediction { estimate, known: resolved[index].known() });
        }
        answer.into_iter().flatten().collect()
    }

    /// Computes a policy's inputs from the user's state.
    pub(crate) fn score_candidates<'s>(
        &self,
        subject: &'s Subject,
        snapshot: UserSnapshot,
        items: &ResolvedItems<'_>,
        wants: Wants,
    ) -> Result<ScoredCandidates<'s>, PredictorError> {
        let resolved = self.resolve(subject, items)?;
        let (mut inputs, estimates) = if wants == Wants::Scores {
            let scores = scores(&snapshot.model, &resolved);
            (PolicyInputs { scores, ..PolicyInputs::default() }, Vec::new())
        } else {
            let estimates = self.estimate(subject, &snapshot, items, &resolved);
            (PolicyInputs::of_estimates(estimates.iter()), estimates)
        };
        if wants == Wants::Features {
            inputs.add_rows(&resolved, subject.version.dim());
        }
        Ok(ScoredCandidates { snapshot, resolved, inputs, estimates })
    }

    /// The cached predictions under a version, as many as may be prepared, by user and epoch.
    pub(crate) fn hottest(&self, version: &ServingVersion) -> CachedPredictions {
        let of_version = |key: &PredictionKey, _: &CachedPrediction| {
            (key.version == version.serial).then(|| size_of::<PredictionKey>() + key.item.heap_bytes())
        };
        let hottest = self.predictions.hottest(of_version);
        let mut keys: Vec<PredictionKey> = hottest.entries.into_iter().map(|(key, _)| key).collect();
        keys.sort_by(|a, b| (&a.user, a.epoch).cmp(&(&b.user, b.epoch)));
        let by_user = keys.chunk_by(|a, b| a.user == b.user && a.epoch == b.epoch);
        let items = |keys: &[PredictionKey]| keys.iter().map(|key| key.item.clone()).collect();
        CachedPredictions {
            by_user: by_user.map(|keys| (keys[0].user.clone(), keys[0].epoch, items(keys))).collect(),
            of: hottest.of,
        }
    }

    /// Caches the predictions of items for a user by this state, with features from `features`; `losses` is that of
    /// [`Subject`].
    pub(crate) fn prepare(
        &self,
        (version, stream): (&ServingVersion, &StreamName),
        (user, snapshot, losses): (&UserId, &UserSnapshot, u32),
        items: &[ItemId],
        features: &FeatureStore,
    ) -> Result<(), PredictorError> {
        let revisions: Vec<u64> = items.iter().map(|item| self.features.revision(item)).collect();
        let scope = features.scope_of(stream, user);
        let mut resolved = Vec::with_capacity(items.len());
        for item in items {
            resolved.push(features.resolve(version, scope, item)?);
        }
        let resolved = in_context(version, resolved, None);
        let estimates = estimates(&snapshot.model, version, resolved.iter());
        let (epoch, profile) = (snapshot.epoch, snapshot.profile);
        for (((item, revision), resolved), estimate) in items.iter().zip(revisions).zip(&resolved).zip(estimates) {
            let (version, user, item) = (version.serial, user.clone(), item.clone());
            let key = PredictionKey { version, user, epoch, profile, losses, item, revision };
            self.predictions.insert(key, CachedPrediction { estimate, known: resolved.known() });
        }
        Ok(())
    }

    /// Drops the predictions for a user.
    pub(crate) fn purge(&self, user: &UserId) {
        self.predictions.purge(|key| key.user == *user);
    }
}

/// Scores without their uncertainty.
pub(crate) fn scores(model: &UserModel, resolved: &[Resolved<'_>]) -> Vec<f32> {
    let mut scores = Vec::with_capacity(resolved.len());
    model.score_rows(resolved.iter().map(|item| (item.offset(), item.features())), &mut scores);
    scores
}

/// Scores with their uncertainty: that of the user's weights, that of the item if the version knows it, for features mapped
/// from attributes that of the features, and that of computed parts that are missing.
pub(crate) fn estimates<'a>(
    model: &UserModel,
    version: &ServingVersion,
    resolved: impl Iterator<Item = &'a Resolved<'a>> + Clone,
) -> Vec<Estimate> {
    let mut estimates = Vec::with_capacity(resolved.size_hint().0);
    let widened = resolved.clone();
    let rows = resolved.clone().map(|item| (item.offset(), item.features()));
    model.estimate_rows(&version.learning, rows, &mut estimates);
    if !version.theta.variances().is_empty() {
        for (estimate, item) in estimates.iter_mut().zip(resolved.clone()) {
            *estimate = version.learning.widened(*estimate, f64::from(item.variance(version)));
        }
    }
    if let Some(map) = &version.cold_map {
        // The variance depends only on the user, and most requests have no item that needs it.
        let mut variance = None;
        for (estimate, item) in estimates.iter_mut().zip(resolved) {
            if item.origin() == FeatureOrigin::Attributes {
                let variance = *variance.get_or_insert_with(|| map.variance(model, &version.learning));
                *estimate = version.learning.widened(*estimate, variance);
            }
        }
    }
    if version.parts.is_some() {
        let missing = MissingVariance::new(model, version);
        for (estimate, item) in estimates.iter_mut().zip(widened) {
            if !item.missing().is_empty() {
                *estimate = version.learning.widened(*estimate, missing.of(item));
            }
        }
    }
    estimates
}
