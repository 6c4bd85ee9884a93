//! Random requests to rank items.

use celeris_bandits::PolicySpec;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::Warm;
use celeris_model::ItemId;
use celeris_predictor::TopkRequest;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Slots of a ranking.
pub const SLOTS: usize = 10;

/// `count` distinct items, as newly allocated ids like those of a request.
pub fn asked(rng: &mut ChaCha8Rng, items: &[ItemId], count: usize) -> Result<Vec<ItemId>, Failure> {
    let chosen = rand::seq::index::sample(rng, items.len(), count.min(items.len()));
    chosen.iter().map(|index| ItemId::new(items[index].as_str())).collect::<Result<_, _>>().map_err(Failure::other)
}

/// A request to rank `count` items for one of the first `users` users, by the default policy if
/// none is given.
pub fn request(
    warm: &Warm,
    rng: &mut ChaCha8Rng,
    users: usize,
    count: usize,
    policy: Option<&PolicySpec>,
) -> Result<TopkRequest, Failure> {
    Ok(TopkRequest {
        model: warm.model.clone(),
        user: scene::user(rng.random_range(0..users)).map_err(Failure::other)?,
        items: asked(rng, &warm.items, count)?,
        k: SLOTS,
        policy: policy.cloned(),
        seed: Some(rng.random()),
        min_epoch: None,
        segment: None,
        selection: None,
        context: None,
    })
}
