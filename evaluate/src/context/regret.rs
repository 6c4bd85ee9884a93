//! Regret of policies: they choose among items, clicks are drawn from the truth, and the users' states learn from them.

use celeris_bandits::{Policy, PolicySpec};
use celeris_datasets::synthetic::clicks::{ClickRow, Clicks};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::CANDIDATES;
use super::served::Served;
use crate::progress::Part;

/// Random streams beside those of the data.
const TURNS: u64 = 100;
const CHOICES: u64 = 101;

/// The regret of a policy over the second half of the stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Regret {
    pub policy: PolicySpec,
    /// The sum over the rows of the best item's probability of a click less that of the chosen one.
    pub without_parts: f64,
    pub with_parts: f64,
    /// `with_parts / without_parts`
    pub ratio: f64,
}

/// The regret of the policy from these states on. Sets of items, and whether an item would be clicked, are equal in all
/// runs with one seed.
pub(super) fn play(
    mut served: Served,
    (clicks, rows): (&Clicks, &[ClickRow]),
    policy: &dyn Policy,
    (seed, progress): (u64, Part),
) -> anyhow::Result<f64> {
    let generator = |stream: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        rng
    };
    let (mut turns, mut choices) = (generator(TURNS), generator(CHOICES));
    let mut regret = 0.0;
    for (number, row) in rows.iter().enumerate() {
        let count = CANDIDATES.min(clicks.items.len());
        let items = rand::seq::index::sample(&mut turns, clicks.items.len(), count).into_vec();
        let threshold = turns.random::<f64>();
        let chosen = served.choose((row.user, &items), row.circumstances, (policy, &mut choices))?;
        let probability = |item: &usize| clicks.truth.probability(row.user, *item, row.circumstances);
        let best = items.iter().map(probability).fold(0.0, f64::max);
        let clicked = probability(&items[chosen]);
        regret += best - clicked;
        served.learn((row.user, items[chosen]), row.circumstances, threshold < clicked)?;
        progress.at(number as f64 / rows.len() as f64);
    }
    Ok(regret)
}
