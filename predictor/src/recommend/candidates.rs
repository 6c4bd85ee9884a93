//! What a policy chooses from when nobody gives it a list: a shortlist of the best, and a few drawn blindly.
//!
//! A policy cannot look at a million items. What it looks at is found by searches: the best by the mean of the user's
//! weights, for Thompson sampling also by weights drawn from their posterior. Policies that draw, and those that look for
//! uncertainty, are also given rows drawn uniformly from all that are allowed, so that nothing is without a chance. With the
//! candidates fixed, the policy ranks as it ranks a list, and its propensities are those given the candidates.
//!
//! The validation pool must not be chosen by the model, so its candidates are drawn and nothing else. The coin is tossed
//! before: given the candidates, the pool draws for certain or not at all, and the record says so.

use std::collections::HashSet;

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_model::ItemId;
use celeris_retrieval::{CandidateSet, Hit, Row};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::drawing::Draw;
use crate::error::PredictorError;
use crate::node::{Predictor, RequestContext};
use crate::recommend::boosts::{Boosts, Cell};
use crate::recommend::sample::sample;
use crate::scoring::ResolvedItems;
use crate::users::UserSnapshot;

/// Up to so many allowed items, all of them are candidates. No larger than what decisions record in full unless told
/// otherwise, and so are the other numbers together.
const WHOLE: usize = 256;

/// The best by the mean weights that a policy which draws chooses among.
const SHORTLIST: usize = 128;

/// The best by weights drawn from the posterior, for Thompson sampling.
const BY_DRAW: usize = 64;

/// Rows drawn uniformly.
pub(crate) const SAMPLED: usize = 64;

/// Among how many of the best by the mean optimists look for the best by their bound.
const WIDE: usize = 1024;

/// How many of these are candidates.
const BY_BOUND: usize = 192;

/// Candidates behind the last slot, so that there is something to choose.
const SPARE: usize = 16;

/// Among how many for each slot diversity looks, and how many at least and at most.
const DIVERSE: (usize, usize, usize) = (5, 100, 2048);

/// Streams of the seed's generator; rankings draw from stream 0, simulations from 1 and from 2^32 on.
const SAMPLE_STREAM: u64 = 2;
const WEIGHTS_STREAM: u64 = 3;

/// How many rows each search contributes.
struct Widths {
    by_mean: usize,
    by_draw: usize,
    sampled: usize,
    /// How many of all these are kept, by the policy's own bound.
    by_bound: Option<usize>,
}

impl Widths {
    fn of(policy: &PolicySpec, k: usize) -> Self {
        let best = SHORTLIST.max(k + SPARE);
        match policy {
            PolicySpec::Greedy(_) => Self { by_mean: k + SPARE, by_draw: 0, sampled: 0, by_bound: None },
            PolicySpec::EpsilonGreedy(_) | PolicySpec::Softmax(_) | PolicySpec::SquareCb(_) => {
                Self { by_mean: best, by_draw: 0, sampled: SAMPLED, by_bound: None }
            }
            PolicySpec::LinUcb(_) | PolicySpec::RegCb(_) => {
                let kept = BY_BOUND.max(k + SPARE);
                Self { by_mean: WIDE.max(kept), by_draw: 0, sampled: SAMPLED, by_bound: Some(kept) }
            }
            PolicySpec::Thompson(_) => Self {
                by_mean: best - BY_DRAW.min(best / 2),
                by_draw: BY_DRAW.max(k),
                sampled: SAMPLED,
                by_bound: None,
            },
        }
    }
}

/// What is looked for, and where.
pub(crate) struct Search<'a> {
    pub(crate) subject: &'a RequestContext,
    pub(crate) moment: &'a UserSnapshot,
    /// What may be shown.
    pub(crate) allowed: &'a CandidateSet,
    pub(crate) boosts: &'a Boosts,
    pub(crate) draw: Draw<'a>,
}

/// What the policy chooses from: distinct, the best by the mean first.
pub(crate) struct Shortlist {
    pub(crate) rows: Vec<Row>,
    /// Their items.
    pub(crate) items: Vec<ItemId>,
    /// The probability that the pool draws, given these.
    pub(crate) pool_share: Option<PoolShare>,
}

impl Predictor {
    /// The candidates of a ranking: at least `k`, where that many are allowed.
    ///
    /// # Errors
    /// `Bandit` or `Model` where the policy refuses, or `Storage`.
    pub(crate) fn shortlist(&self, search: &Search<'_>) -> Result<Shortlist, PredictorError> {
        let Search { allowed, draw, .. } = search;
        if allowed.count() <= WHOLE {
            let rows = self.best(search, &mean_weights(search.moment), allowed.count());
            return Ok(listed(search, rows, draw.pool_share));
        }
        if draw.is_of_pool() {
            let rows = sampled(search, SAMPLED.max(draw.k));
            return Ok(listed(search, rows, Some(certainly(1.0))));
        }
        let widths = Widths::of(draw.policy, draw.k);
        let mut rows = self.best(search, &mean_weights(search.moment), widths.by_mean);
        if widths.by_draw > 0 {
            rows.extend(self.best(search, &drawn_weights(search)?, widths.by_draw));
        }
        rows.extend(sampled(search, widths.sampled));
        let mut met = HashSet::with_capacity(rows.len());
        rows.retain(|row| met.insert(*row));
        if let Some(kept) = widths.by_bound {
            rows = self.by_bound(search, &rows, kept)?;
        }
        Ok(listed(search, rows, draw.pool_share.map(|_| certainly(0.0))))
    }

    /// The best `n` by these weights, boosts included.
    pub(crate) fn best(&self, search: &Search<'_>, weights: &[f32], n: usize) -> Vec<Row> {
        let Search { subject, allowed, boosts, .. } = search;
        if boosts.is_empty() {
            return self.retrieve(subject, weights, n, allowed).into_iter().map(|hit| hit.row).collect();
        }
        let of_cell = |Cell { rows, add }: Cell| {
            let hits = self.retrieve(subject, weights, n, &rows);
            hits.into_iter().map(move |hit| Hit { score: hit.score + add, ..hit })
        };
        let mut hits: Vec<Hit> = boosts.cells(allowed).into_iter().flat_map(of_cell).collect();
        hits.sort_unstable_by(|left, right| right.score.total_cmp(&left.score).then(left.row.cmp(&right.row)));
        hits.truncate(n);
        hits.into_iter().map(|hit| hit.row).collect()
    }

    /// The `kept` of these rows that the policy, which draws nothing, would show.
    fn by_bound(&self, search: &Search<'_>, rows: &[Row], kept: usize) -> Result<Vec<Row>, PredictorError> {
        let Search { subject, moment, boosts, draw, .. } = search;
        let items = subject.model.catalog.items_of(rows.iter().copied());
        let picked = ResolvedItems::all(&subject.version, &items);
        let policy = draw.policy.policy();
        let mut scene = self.scene(subject, UserSnapshot::clone(moment), &picked, policy.wants())?;
        scene.boost(|candidate| boosts.of(rows[candidate]));
        let mut unused = generator(draw.seed.value, 0);
        let order = policy.choose(&scene.candidates(subject), kept, &mut unused)?;
        Ok(order.into_iter().map(|candidate| rows[candidate]).collect())
    }

    /// Candidates among which slots can differ: enough of the best.
    pub(crate) fn diverse_shortlist(&self, search: &Search<'_>) -> Shortlist {
        let rows = self.best(search, &mean_weights(search.moment), diverse_width(search.draw.k));
        listed(search, rows, None)
    }
}

/// Among how many of the best `k` slots can differ.
pub(crate) fn diverse_width(k: usize) -> usize {
    let (each, least, most) = DIVERSE;
    (each * k).clamp(least, most)
}

fn listed(search: &Search<'_>, rows: Vec<Row>, pool_share: Option<PoolShare>) -> Shortlist {
    let items = search.subject.model.catalog.items_of(rows.iter().copied());
    Shortlist { rows, items, pool_share }
}

/// `n` rows drawn uniformly of those that are allowed, by the stream of the seed that is theirs; all where there are fewer.
fn sampled(search: &Search<'_>, n: usize) -> Vec<Row> {
    let Search { subject, allowed, draw, .. } = search;
    let retrieval = subject.version.retrieval();
    let mut drawn = n;
    loop {
        let mut rows = sample(allowed, drawn, &mut generator(draw.seed.value, SAMPLE_STREAM));
        // What only another model of the stream was trained on is nothing that this one can tell of.
        rows.retain(|row| retrieval.has(*row));
        if rows.len() >= n || drawn >= allowed.count() {
            rows.truncate(n);
            return rows;
        }
        drawn = drawn.saturating_mul(4);
    }
}

fn certainly(share: f64) -> PoolShare {
    PoolShare::new(share).expect("0 and 1 are probabilities")
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

fn mean_weights(moment: &UserSnapshot) -> Vec<f32> {
    moment.model.weights().into_iter().map(|weight| weight as f32).collect()
}

/// Weights drawn from the user's posterior, as wide as the policy draws them.
fn drawn_weights(search: &Search<'_>) -> Result<Vec<f32>, PredictorError> {
    let PolicySpec::Thompson(policy) = search.draw.policy else { return Ok(mean_weights(search.moment)) };
    let mut rng = generator(search.draw.seed.value, WEIGHTS_STREAM);
    let mut sampler = search.moment.model.sampler(&search.subject.version.learning)?;
    let drawn = sampler.draw(|| policy.alpha() * rng.sample::<f64, _>(StandardNormal));
    Ok(drawn.iter().map(|weight| *weight as f32).collect())
}
