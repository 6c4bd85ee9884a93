//! Candidate generation for requests without a list of items: the best by score, and a few drawn at
//! random.
//!
//! A policy cannot rank a million items, so searches select its candidates: the best by the mean of
//! the user's weights, and for Thompson sampling also by weights drawn from their posterior.
//! Policies that draw, and those that use uncertainty, also get rows drawn uniformly from all
//! allowed ones, so that every item has a chance. Given the candidates, the policy ranks them like
//! a list, and its propensities are conditional on them.
//!
//! The model must not influence the validation pool, so the pool's candidates are only drawn. The
//! pool is chosen first: given the candidates, its probability is 0 or 1, and the record says
//! which.

use std::collections::HashSet;

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_model::{Context, ItemId};
use celeris_retrieval::{CandidateSet, Hit, Row};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::Recommender;
use super::boosts::{Boosts, Cell};
use super::sample::sample;
use crate::error::PredictorError;
use crate::ranking::{Draw, ResolvedItems};
use crate::users::{Subject, UserSnapshot};

/// Up to this many allowed items, all are candidates. Not more than decisions record in full by
/// default; the same holds for the sum of the other numbers.
const WHOLE: usize = 256;

/// Candidates by mean weights for a policy that draws.
const SHORTLIST: usize = 128;

/// Candidates by weights drawn from the posterior, for Thompson sampling.
const BY_DRAW: usize = 64;

pub(crate) const SAMPLED: usize = 64;

/// Rows by mean weights among which policies with an upper bound select by their bound.
const WIDE: usize = 1024;

/// Candidates selected by the bound.
const BY_BOUND: usize = 192;

/// Candidates beyond the number of slots, so that there is a choice.
const SPARE: usize = 16;

/// Candidates for diversity: for each slot, at least, and at most.
const DIVERSE: (usize, usize, usize) = (5, 100, 2048);

/// Streams of the seed's generator; rankings use stream 0, simulations 1 and those from 2^32.
const SAMPLE_STREAM: u64 = 2;
const WEIGHTS_STREAM: u64 = 3;

/// Number of rows from each search.
struct Widths {
    by_mean: usize,
    by_draw: usize,
    sampled: usize,
    /// How many of these rows are kept, by the policy's own bound.
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

/// Inputs of a search for candidates.
pub(crate) struct Search<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) snapshot: &'a UserSnapshot,
    /// The rows that may be shown.
    pub(crate) allowed: &'a CandidateSet,
    pub(crate) boosts: &'a Boosts,
    pub(crate) draw: Draw<'a>,
    /// The context of the request.
    pub(crate) context: Option<&'a Context>,
}

/// Candidates for a policy: distinct, the best by mean weights first.
pub(crate) struct Shortlist {
    pub(crate) rows: Vec<Row>,
    /// The items of `rows`.
    pub(crate) items: Vec<ItemId>,
    /// The probability that the pool draws, given these candidates.
    pub(crate) pool_share: Option<PoolShare>,
}

impl Search<'_> {
    /// The best `n` by these weights, boosts included.
    pub(crate) fn best(&self, weights: &[f32], n: usize) -> Vec<Row> {
        let (theta, retrieval) = (&self.subject.version.theta, self.subject.version.retrieval());
        if self.boosts.is_empty() {
            return retrieval.search(theta, weights, n, self.allowed).into_iter().map(|hit| hit.row).collect();
        }
        let of_cell = |Cell { rows, add }: Cell| {
            let hits = retrieval.search(theta, weights, n, &rows);
            hits.into_iter().map(move |hit| Hit { score: hit.score + add, ..hit })
        };
        let mut hits: Vec<Hit> = self.boosts.cells(self.allowed).into_iter().flat_map(of_cell).collect();
        hits.sort_unstable_by(|left, right| right.score.total_cmp(&left.score).then(left.row.cmp(&right.row)));
        hits.truncate(n);
        hits.into_iter().map(|hit| hit.row).collect()
    }

    /// The number of rows whose scores computed parts may change: all of them are candidates, so that the order among them
    /// is that of the whole score. 0 without such parts.
    fn rescored(&self) -> usize {
        let by_context = self.subject.version.parts.as_ref().is_some_and(|parts| parts.by_context());
        if by_context { self.subject.model.settings.candidates } else { 0 }
    }

    /// Candidates for a diverse ranking: enough of the best by score.
    pub(crate) fn diverse_shortlist(&self) -> Shortlist {
        let rows = self.best(&mean_weights(self.snapshot), diverse_width(self.draw.k).max(self.rescored()));
        listed(self, rows, None)
    }
}

impl Recommender {
    /// The candidates of a ranking: at least `k`, if that many are allowed.
    ///
    /// # Errors
    /// `Bandit` or `Model` if the policy fails, or `Storage`.
    pub(crate) fn shortlist(&self, search: &Search<'_>) -> Result<Shortlist, PredictorError> {
        let Search { allowed, draw, .. } = search;
        if allowed.count() <= WHOLE {
            let rows = search.best(&mean_weights(search.snapshot), allowed.count());
            return Ok(listed(search, rows, draw.pool_share));
        }
        if draw.is_of_pool() {
            let rows = sampled(search, SAMPLED.max(draw.k));
            return Ok(listed(search, rows, Some(certainly(1.0))));
        }
        let mut widths = Widths::of(draw.policy, draw.k);
        widths.by_mean = widths.by_mean.max(search.rescored());
        let mut rows = search.best(&mean_weights(search.snapshot), widths.by_mean);
        if widths.by_draw > 0 {
            rows.extend(search.best(&drawn_weights(search)?, widths.by_draw));
        }
        rows.extend(sampled(search, widths.sampled));
        let mut met = HashSet::with_capacity(rows.len());
        rows.retain(|row| met.insert(*row));
        if let Some(kept) = widths.by_bound {
            rows = self.by_bound(search, &rows, kept)?;
        }
        Ok(listed(search, rows, draw.pool_share.map(|_| certainly(0.0))))
    }

    /// The `kept` rows with the highest bounds under the policy, which draws nothing.
    fn by_bound(&self, search: &Search<'_>, rows: &[Row], kept: usize) -> Result<Vec<Row>, PredictorError> {
        let Search { subject, snapshot, boosts, draw, context, .. } = search;
        let items = subject.model.catalog.items_of(rows.iter().copied());
        let picked = ResolvedItems::all(&subject.version, &items).in_context(*context);
        let policy = draw.policy.policy();
        let mut scored =
            self.scorer.score_candidates(subject, UserSnapshot::clone(snapshot), &picked, policy.wants())?;
        scored.inputs.boost(|candidate| boosts.of(rows[candidate]));
        let mut unused = generator(draw.seed.value, 0);
        let order = policy.choose(&scored.candidates(subject), kept, &mut unused)?;
        Ok(order.into_iter().map(|candidate| rows[candidate]).collect())
    }
}

/// Number of candidates for `k` diverse slots.
pub(crate) fn diverse_width(k: usize) -> usize {
    let (each, least, most) = DIVERSE;
    (each * k).clamp(least, most)
}

fn listed(search: &Search<'_>, rows: Vec<Row>, pool_share: Option<PoolShare>) -> Shortlist {
    let items = search.subject.model.catalog.items_of(rows.iter().copied());
    Shortlist { rows, items, pool_share }
}

/// `n` rows drawn uniformly from the allowed ones with the seed's sample stream; all if there are
/// fewer.
fn sampled(search: &Search<'_>, n: usize) -> Vec<Row> {
    let Search { subject, allowed, draw, .. } = search;
    let retrieval = subject.version.retrieval();
    let mut drawn = n;
    loop {
        let mut rows = sample(allowed, drawn, &mut generator(draw.seed.value, SAMPLE_STREAM));
        // Rows that only another model of the stream was trained on cannot be scored.
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

fn mean_weights(snapshot: &UserSnapshot) -> Vec<f32> {
    snapshot.model.weights().into_iter().map(|weight| weight as f32).collect()
}

/// Weights drawn from the user's posterior, with the policy's width.
fn drawn_weights(search: &Search<'_>) -> Result<Vec<f32>, PredictorError> {
    let PolicySpec::Thompson(policy) = search.draw.policy else { return Ok(mean_weights(search.snapshot)) };
    let mut rng = generator(search.draw.seed.value, WEIGHTS_STREAM);
    let mut sampler = search.snapshot.model.sampler(&search.subject.version.learning)?;
    let drawn = sampler.draw(|| policy.alpha() * rng.sample::<f64, _>(StandardNormal));
    Ok(drawn.iter().map(|weight| *weight as f32).collect())
}
