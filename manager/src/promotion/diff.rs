//! Comparison of two versions on request: items, losses on the same observations, and rankings.

use std::collections::{BTreeSet, HashSet};

use celeris_model::{ItemId, ModelName, VersionId};
use celeris_predictor::ServingVersion;
use celeris_storage::Watermark;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;

use super::{Holdout, Promotion};
use crate::comparison::Comparison;
use crate::error::ManagerError;
use crate::low_priority::at_low_priority;
use crate::metric::Metric;
use crate::registry::VersionRecord;

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
    /// Kendall's tau of the scores: 1 for equal rankings, -1 for reversed ones. Pairs that are tied
    /// in one ranking count as neither concordant nor discordant.
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
    /// Comparison with `to` as the candidate and `from` as the incumbent, on the newest
    /// observations, on which one of them may have been trained.
    pub loss: Option<Comparison>,
    /// Difference of the rankings; `None` if there are no users or items.
    pub rankings: Option<Moved>,
}

impl Promotion {
    /// Compares version `to` with version `from`. Reads both from disk and replays some users under
    /// both. A node runs one comparison at a time.
    ///
    /// # Errors
    /// `Comparing` while another comparison is running, `UnknownModel`, `UnknownVersion`,
    /// `Features` if one is damaged, `Predictor` or `Storage`.
    pub fn diff(&self, model: &ModelName, from: VersionId, to: VersionId) -> Result<VersionDiff, ManagerError> {
        let _comparing = self.comparing.try_lock().ok_or(ManagerError::Comparing)?;
        let record = self.registry.model(model)?;
        let (from, to) = (self.registry.version(model, from)?, self.registry.version(model, to)?);
        let (old, new) = (self.registry.load(&record, from.version)?, self.registry.load(&record, to.version)?);
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
                let (a, b) = (before.scores(user, &history, &items)?, after.scores(user, &history, &items)?);
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

/// Kendall's tau of two score lists of the same items: concordant minus discordant pairs, divided
/// by all pairs (Kendall 1938, tau-a). O(n^2).
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
