//! The versions of a model: listing, pinning, pruning and comparison.

use std::collections::{BTreeSet, HashSet};

use celeris_model::{ItemId, ModelId, ModelName, VersionId};
use celeris_predictor::ServingVersion;
use celeris_storage::{RegistryBatch, RegistryKey, StorageError, Watermark};
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::comparison::Comparison;
use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind};
use crate::holdout::Holdout;
use crate::manager::{Manager, remove_dir};
use crate::pause::{self, Step};
use crate::quality::Metric;
use crate::records::{ModelRecord, VersionRecord, model_key, version_key, versions_key};
use crate::service::unfit;
use crate::switch::at_low_priority;

/// Default number of versions that a model keeps.
pub const KEEP_VERSIONS_DEFAULT: u32 = 10;

/// Maximum number of versions that a model can keep.
pub const KEEP_VERSIONS_MAX: u32 = 1000;

/// Number of differing items that a comparison names; more are only counted.
pub const DIFFERENT_ITEMS_MAX: usize = 100;

/// Number of log records that two versions are compared on.
const COMPARED_RECORDS: f64 = 2000.0;

/// Number of users whose rankings are compared.
const COMPARED_USERS: usize = 50;

/// Number of items ranked for each of these users.
const RANKED_ITEMS: usize = 300;

/// Number of leading slots in the reported overlap.
const TOP: usize = 10;

/// Seed of the draw of the ranked items.
const SEED: u64 = 5;

/// Items that only one of two versions has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemsOnlyIn {
    pub count: usize,
    /// The first of them in the order of their ids, at most [`DIFFERENT_ITEMS_MAX`].
    pub first: Vec<ItemId>,
}

/// Difference between the rankings of two versions, as means over users.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// Number of users, drawn from those of the newest observations.
    pub users: usize,
    /// Number of items, drawn from both tables and ranked for each user.
    pub items: usize,
    /// Share of the ten best items that both versions have in common.
    pub overlap_at_10: f64,
    /// Kendall's tau of the scores: 1 for equal rankings, -1 for reversed ones. Pairs that are tied in one ranking
    /// count as neither concordant nor discordant.
    pub kendall_tau: f64,
}

/// Difference between two versions.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionDiff {
    pub from: VersionRecord,
    pub to: VersionRecord,
    pub added: ItemsOnlyIn,
    pub removed: ItemsOnlyIn,
    /// Metric of the losses.
    pub measure: Metric,
    /// Comparison with `to` as the candidate and `from` as the incumbent, on the newest observations, on which one of
    /// them may have been trained.
    pub loss: Option<Comparison>,
    /// Difference of the rankings; `None` if there are no users or items.
    pub rankings: Option<Moved>,
}

impl Manager {
    /// The versions of a model, newest first.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn versions(&self, model: &ModelName) -> Result<Vec<VersionRecord>, ManagerError> {
        self.model(model)?;
        self.version_records(model)
    }

    /// The versions of a model, in service or not.
    pub(crate) fn version_records(&self, model: &ModelName) -> Result<Vec<VersionRecord>, ManagerError> {
        let mut versions = Vec::new();
        for (key, record) in self.storage.registry().list::<VersionRecord>(&versions_key(model)?)?.into_iter().rev() {
            let record = record?;
            if key != version_key(model, record.version)? {
                return Err(unfit(&key, format!("its version is {}", record.version)));
            }
            versions.push(record);
        }
        Ok(versions)
    }

    /// Exempts a version from pruning.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownVersion` or `Storage`.
    pub fn pin(&self, model: &ModelName, version: VersionId) -> Result<VersionRecord, ManagerError> {
        self.set_pinned(model, version, EventKind::Pinned)
    }

    /// Makes a version subject to pruning again.
    ///
    /// # Errors
    /// Same as [`Manager::pin`].
    pub fn unpin(&self, model: &ModelName, version: VersionId) -> Result<VersionRecord, ManagerError> {
        self.set_pinned(model, version, EventKind::Unpinned)
    }

    fn set_pinned(
        &self,
        model: &ModelName,
        version: VersionId,
        kind: EventKind,
    ) -> Result<VersionRecord, ManagerError> {
        let _changing = self.changing.lock();
        let of = self.model(model)?;
        let mut record = self.version(model, version)?;
        let pinned = kind == EventKind::Pinned;
        if record.pinned != pinned {
            record.pinned = pinned;
            let mut batch = RegistryBatch::new();
            batch.put(version_key(model, version)?, &record)?;
            let event = Event::now(of.identity(), kind, Actor::Operator, "on request").with("version", version.0);
            self.commit_noting(batch, &[event])?;
        }
        Ok(record)
    }

    /// Removes the oldest versions beyond the model's `keep_versions`. The active version, the target of a rollback,
    /// the previous version of a running guard, and pinned versions are kept, and do not count.
    ///
    /// The registry is changed first: the versions that it names are always complete, and the next start removes
    /// directories left by a crash.
    ///
    /// # Errors
    /// `UnknownModel`, `Storage` or `Io`.
    pub(crate) fn prune(&self, record: &ModelRecord) -> Result<Vec<VersionId>, ManagerError> {
        let (model, id) = record.identity();
        let pruned = {
            let _changing = self.changing.lock();
            let mut record = self.current(record)?;
            let protected = protected(&record);
            let unprotected = |version: &VersionRecord| !version.pinned && !protected.contains(&version.version);
            let pruned: Vec<VersionId> = self
                .versions(model)?
                .into_iter()
                .filter(unprotected)
                .skip(record.config.keep_versions as usize)
                .map(|version| version.version)
                .collect();
            if pruned.is_empty() {
                return Ok(pruned);
            }
            record.served.retain(|version| !pruned.contains(version));
            let mut batch = RegistryBatch::new();
            let mut events = Vec::new();
            for version in &pruned {
                batch.delete(version_key(model, *version)?);
                batch.put(pruned_key(id, *version)?, &(model.clone(), id, *version))?;
                let why = format!("the model keeps {} versions", record.config.keep_versions);
                events
                    .push(Event::now(record.identity(), EventKind::Pruned, Actor::Job, why).with("version", version.0));
            }
            batch.put(model_key(model)?, &record)?;
            self.commit_noting(batch, &events)?;
            pruned
        };
        pause::at(Step::Pruning);
        for version in &pruned {
            self.remove_pruned((model, id), *version)?;
        }
        Ok(pruned)
    }

    fn remove_pruned(&self, model: (&ModelName, ModelId), version: VersionId) -> Result<(), ManagerError> {
        remove_dir(&self.versions_dir_of(model).join(version.to_string()))?;
        self.storage.items().delete_frozen(model.1, version)?;
        let mut batch = RegistryBatch::new();
        batch.delete(pruned_key(model.1, version)?);
        Ok(self.storage.registry().commit(&batch)?)
    }

    /// Finishes prunings that a stopped node had started.
    pub(crate) fn finish_pruning(&self) -> Result<(), ManagerError> {
        let pruned = self.storage.registry().list::<(ModelName, ModelId, VersionId)>(&all_pruned_key()?)?;
        for (_, pruned) in pruned {
            match pruned {
                Ok((model, id, version)) => {
                    if let Err(error) = self.remove_pruned((&model, id), version) {
                        tracing::warn!(%model, %version, %error, "cannot remove all files of a pruned version; retried at start");
                    }
                }
                Err(error) => tracing::error!(%error, "cannot read which pruned versions to remove"),
            }
        }
        Ok(())
    }

    /// Compares version `to` with version `from`. Reads both from disk and replays some users under both. A node runs
    /// one comparison at a time.
    ///
    /// # Errors
    /// `Comparing` while another comparison is running, `UnknownModel`, `UnknownVersion`, `Features` if one is damaged,
    /// `Predictor` or `Storage`.
    pub fn diff(&self, model: &ModelName, from: VersionId, to: VersionId) -> Result<VersionDiff, ManagerError> {
        let _comparing = self.comparing.try_lock().ok_or(ManagerError::Comparing)?;
        let record = self.model(model)?;
        let (from, to) = (self.version(model, from)?, self.version(model, to)?);
        let (old, new) = (self.load(&record, from.version)?, self.load(&record, to.version)?);
        let config = record.config;
        let (added, removed) = (only_in(&new, &old), only_in(&old, &new));
        let log = self.storage.log().watermark(&config.stream);
        let share = (COMPARED_RECORDS / log.records().max(1) as f64).min(1.0);
        let holdout = Holdout::of(log, share, &Watermark::start());
        let metric = Metric::of_replay(config.loss);
        at_low_priority("celeris-diff", || {
            let losses = self.compare_on(&config, &holdout, &new, &old, |_| {})?;
            let loss = losses.all.comparison(metric);
            let users = &losses.users[..losses.users.len().min(COMPARED_USERS)];
            let items = ranked_items(&old, &new);
            let (mut before, mut after) =
                (self.predictor.explainer().replay(&old)?, self.predictor.explainer().replay(&new)?);
            let mut moved = Moved { users: users.len(), items: items.len(), overlap_at_10: 0.0, kendall_tau: 0.0 };
            for user in users {
                let history = before.history(user)?;
                let (a, b) = (before.scores(&history, &items)?, after.scores(&history, &items)?);
                moved.overlap_at_10 += overlap(&a, &b);
                moved.kendall_tau += kendall_tau(&a, &b);
            }
            moved.overlap_at_10 /= users.len() as f64;
            moved.kendall_tau /= users.len() as f64;
            let rankings = (moved.users > 0 && moved.items > 1).then_some(moved);
            Ok(VersionDiff { from, to, added, removed, measure: metric, loss, rankings })
        })?
    }
}

/// The versions that must not be pruned.
fn protected(record: &ModelRecord) -> BTreeSet<VersionId> {
    let mut protected = BTreeSet::from([record.active]);
    protected.extend(record.served.last());
    protected.extend(record.guarding.as_ref().map(|guarding| guarding.against));
    protected
}

fn only_in(here: &ServingVersion, there: &ServingVersion) -> ItemsOnlyIn {
    let known: HashSet<&ItemId> = there.theta.items().iter().collect();
    let mut only: Vec<&ItemId> = here.theta.items().iter().filter(|item| !known.contains(item)).collect();
    only.sort_unstable();
    ItemsOnlyIn { count: only.len(), first: only.into_iter().take(DIFFERENT_ITEMS_MAX).cloned().collect() }
}

/// Items drawn from both tables, without duplicates.
fn ranked_items(old: &ServingVersion, new: &ServingVersion) -> Vec<ItemId> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let tables = [old.theta.items(), new.theta.items()];
    let drawn: BTreeSet<&ItemId> = tables.iter().flat_map(|items| items.sample(&mut rng, RANKED_ITEMS / 2)).collect();
    drawn.into_iter().cloned().collect()
}

/// Share of the ten best of `a` that are among the ten best of `b`.
fn overlap(a: &[f32], b: &[f32]) -> f64 {
    let best = |scores: &[f32]| -> HashSet<usize> {
        let mut ranked: Vec<usize> = (0..scores.len()).collect();
        ranked.sort_by(|x, y| scores[*y].total_cmp(&scores[*x]));
        ranked.truncate(TOP);
        ranked.into_iter().collect()
    };
    let (a, b) = (best(a), best(b));
    a.intersection(&b).count() as f64 / a.len().max(1) as f64
}

/// Kendall's tau of two score lists of the same items: concordant minus discordant pairs, divided by all pairs
/// (Kendall 1938, tau-a). O(n^2).
fn kendall_tau(a: &[f32], b: &[f32]) -> f64 {
    let pairs = a.len() * a.len().saturating_sub(1) / 2;
    let mut agreeing = 0_i64;
    for i in 0..a.len() {
        for j in 0..i {
            let product = (a[i] - a[j]).partial_cmp(&0.0).zip((b[i] - b[j]).partial_cmp(&0.0));
            agreeing += product.map_or(0, |(a, b)| a as i64 * b as i64);
        }
    }
    agreeing as f64 / pairs.max(1) as f64
}

/// Pruned versions whose files may still exist.
fn all_pruned_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["pruned"])
}

fn pruned_key(model: ModelId, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["pruned".to_owned(), model.to_string(), version.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rankings_agree_and_reversed_rankings_disagree() {
        let rising: Vec<f32> = (0..20_u8).map(f32::from).collect();
        let falling: Vec<f32> = rising.iter().map(|score| -score).collect();
        let mut swapped = rising.clone();
        swapped.swap(0, 1);
        assert_eq!((kendall_tau(&rising, &rising), overlap(&rising, &rising)), (1.0, 1.0));
        assert_eq!((kendall_tau(&rising, &falling), overlap(&rising, &falling)), (-1.0, 0.0));
        // One of 190 pairs is reversed.
        assert!((kendall_tau(&rising, &swapped) - 188.0 / 190.0).abs() < 1e-12);
        assert_eq!(overlap(&rising, &swapped), 1.0);
        assert_eq!(kendall_tau(&rising, &[1.0; 20]), 0.0);
    }
}
