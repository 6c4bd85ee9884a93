//! A version as a node serves it: features in a context, and states of users that learn from each click.

use celeris_bandits::Policy;
use celeris_datasets::synthetic::Circumstances;
use celeris_datasets::synthetic::clicks::Clicks;
use celeris_features::{ItemParts, LoadedVersion};
use celeris_model::{Estimate, Example, History, Learning, Loss, ModelError, Timestamp, UserModel};
use celeris_predictor::PolicyInputs;
use rand_chacha::ChaCha8Rng;

/// What a user was shown, with whether they clicked.
#[derive(Clone, Default)]
struct Past {
    dim: usize,
    /// Row-major.
    features: Vec<f32>,
    offsets: Vec<f32>,
    labels: Vec<f32>,
}

impl History for Past {
    fn example(&self, index: u64) -> Example<'_> {
        let index = usize::try_from(index).expect("an index into memory");
        Example {
            features: &self.features[index * self.dim..][..self.dim],
            label: self.labels[index],
            offset: self.offsets[index],
            weight: 1.0,
            timestamp: Timestamp::default(),
            taken_before: None,
            choice: &[],
        }
    }
}

#[derive(Clone)]
struct User {
    state: UserModel,
    past: Past,
}

/// An item of the stream under the version.
#[derive(Clone)]
struct Item {
    offset: f32,
    /// Without the columns that depend on the context.
    features: Box<[f32]>,
    parts: Option<ItemParts>,
}

/// Items in a context.
struct InContext {
    offsets: Vec<f32>,
    /// Row-major.
    features: Vec<f32>,
}

/// Users and items of the stream under one version.
#[derive(Clone)]
pub(super) struct Served<'v> {
    version: &'v LoadedVersion,
    learning: Learning,
    items: Vec<Item>,
    users: Vec<User>,
}

impl<'v> Served<'v> {
    /// All users before their first row.
    pub(super) fn new(version: &'v LoadedVersion, clicks: &Clicks) -> Result<Self, ModelError> {
        let learning = Learning::new(version.prior.clone(), Loss::Logistic, None);
        let items = clicks.items.iter().map(|item| {
            let known = version.theta.get(&item.id).unwrap_or(version.theta.cold_item());
            let parts = version.parts.as_ref().map(|parts| parts.item(Some(&item.attributes())));
            Item { offset: known.offset, features: known.features.into(), parts }
        });
        let past = Past { dim: learning.dim(), ..Past::default() };
        let user = User { state: UserModel::from_prior(&learning)?, past };
        Ok(Self { version, items: items.collect(), users: vec![user; clicks.users.len()], learning })
    }

    fn in_context(&self, items: &[usize], circumstances: Circumstances) -> InContext {
        let mut features: Vec<f32> = items.iter().flat_map(|item| &self.items[*item].features).copied().collect();
        if let Some(parts) = &self.version.parts {
            let of_items: Vec<&ItemParts> = items.iter().filter_map(|item| self.items[*item].parts.as_ref()).collect();
            let rows = features.chunks_exact_mut(self.learning.dim());
            let missing = parts.compute(&of_items, Some(&circumstances.context()), rows);
            debug_assert!(missing.iter().all(|missing| missing.is_empty()), "items and contexts are complete");
        }
        InContext { offsets: items.iter().map(|item| self.items[*item].offset).collect(), features }
    }

    /// The probability of a click.
    pub(super) fn probability(&self, user: usize, item: usize, circumstances: Circumstances) -> f64 {
        let InContext { offsets, features } = self.in_context(&[item], circumstances);
        let estimate = self.users[user].state.estimate(&self.learning, offsets[0], &features);
        Loss::Logistic.probability(&estimate).map_or(f64::NAN, f64::from)
    }

    /// The user learns from a row.
    pub(super) fn learn(
        &mut self,
        (user, item): (usize, usize),
        circumstances: Circumstances,
        clicked: bool,
    ) -> Result<(), ModelError> {
        let InContext { offsets, features } = self.in_context(&[item], circumstances);
        let User { state, past } = &mut self.users[user];
        past.features.extend(features);
        past.offsets.extend(offsets);
        past.labels.push(if clicked { 1.0 } else { 0.0 });
        state.absorb(&self.learning, past)
    }

    /// The place among the items of the one that the policy shows first.
    pub(super) fn choose(
        &self,
        (user, items): (usize, &[usize]),
        circumstances: Circumstances,
        (policy, rng): (&dyn Policy, &mut ChaCha8Rng),
    ) -> anyhow::Result<usize> {
        let InContext { offsets, features } = self.in_context(items, circumstances);
        let state = &self.users[user].state;
        let mut estimates: Vec<Estimate> = Vec::with_capacity(items.len());
        state.estimate_all(&self.learning, &offsets, &features, &mut estimates);
        let inputs = PolicyInputs { offsets, features, ..PolicyInputs::of_estimates(estimates.iter()) };
        let slots = policy.rank(&inputs.candidates(state, &self.learning), 1, rng)?;
        Ok(slots.first().map_or(0, |slot| slot.candidate))
    }
}
