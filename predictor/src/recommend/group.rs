//! Recommendations for a group of users, by the mean or the minimum of their scores.
//!
//! The mean of scores is the score of the mean weights, so one search finds the best by mean. The
//! minimum is never above the mean, so the best by minimum are among the best by mean: once the
//! `k`-th best minimum among the `n` best by mean exceeds the lowest of these means, every other
//! item has a lower mean, and so a lower minimum. `n` grows until that holds. (Fagin, Lotem and
//! Naor, "Optimal aggregation algorithms for middleware", PODS 2001, use the same stopping rule.)
//!
//! Groups are ranked greedily. No decision is recorded: a decision belongs to one user, and so do
//! the rewards that join it.

use celeris_bandits::{Greedy, PolicySpec};
use celeris_model::{Estimate, FeatureOrigin, UserEpoch, UserId};
use celeris_retrieval::{CandidateSet, Row};

use super::boosts::Boosts;
use super::candidates::{Search, diverse_width};
use super::{
    Aggregate, DIVERSE_POLICY, Recommendation, Recommender, Recommending, Relevant, marginal_relevance,
    without_constant,
};
use crate::error::PredictorError;
use crate::features::{Resolved, missing_parts};
use crate::ranking::{Ranked, Ranking, ResolvedItems, Scored, estimates, new_decision_id, scores};
use crate::users::{Subject, UserSnapshot};

/// Allowed numbers of users in a group.
pub const GROUP_SIZES: std::ops::RangeInclusive<usize> = 2..=16;

/// Initial number of rows for the search by minimum: for each slot, and at least in total.
const WIDENING: (usize, usize) = (4, 64);

/// Growth factor of the number of rows.
const GROWTH: usize = 4;

/// Relative rounding error of a sum of `f32`, as a margin of the stopping rule.
const ROUNDING: f32 = 1e-5;

/// A member with a snapshot of their state.
struct Member {
    subject: Subject,
    snapshot: UserSnapshot,
}

/// A group's request with its inputs.
struct Group<'a> {
    members: &'a [Member],
    by: Aggregate,
    allowed: &'a CandidateSet,
    boosts: &'a Boosts,
    recommending: Recommending<'a>,
}

/// A row with the group's scores.
#[derive(Debug, Clone, Copy)]
struct ScoredRow {
    row: Row,
    /// The mean of the members' scores, plus boosts.
    mean: f32,
    /// The score used for ranking: the mean, or the minimum of the members' scores plus boosts.
    rank_score: f32,
}

impl Recommender {
    /// Recommends to the group `users`.
    pub(super) async fn recommend_to_group(
        &self,
        users: &[UserId],
        by: Aggregate,
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        check(users, &recommending)?;
        let mut members: Vec<Member> = Vec::with_capacity(users.len());
        for user in users {
            let mut subject = self.users.subject(self.models.get(recommending.model)?, user);
            if let Some(first) = members.first() {
                // All members use one version, even if a switch happens meanwhile.
                subject.version = first.subject.version.clone();
            }
            self.users.load(&subject).await?;
            let snapshot = self.users.snapshot(&subject)?;
            self.users.settle(&subject, snapshot.pending.as_ref()).await?;
            members.push(Member { subject, snapshot });
        }
        let (first, request) = (&members[0].subject, recommending.request);
        let mut allowed = self.showable(first, &recommending);
        let catalog = &first.model.catalog;
        for Member { subject, snapshot } in &members {
            if let Some(rule) = &request.exclude_seen {
                let seen = self.seen.of(&subject.key, snapshot.epoch, &self.storage, catalog)?;
                seen.take_out(rule, recommending.now, &mut allowed, catalog);
            }
        }
        let boosts = self.boosts(first, &recommending);
        self.recommend_to(&Group { members: &members, by, allowed: &allowed, boosts: &boosts, recommending })
    }

    fn recommend_to(&self, group: &Group<'_>) -> Result<Recommendation, PredictorError> {
        let Group { members, allowed, recommending, .. } = group;
        let (subject, request) = (&members[0].subject, recommending.request);
        let wanted = request.diversity.map_or(request.k, |_| diverse_width(request.k));
        let mut best = self.best_of_group(group, wanted)?;
        let items = subject.model.catalog.items_of(best.iter().map(|scored| scored.row));
        let picked = ResolvedItems::all(&subject.version, &items).in_context(request.context.as_deref());
        let resolved = self.scorer.resolve(subject, &picked)?;
        let mut order: Vec<usize> = (0..best.len()).collect();
        if let Some(diversity) = request.diversity {
            let scores: Vec<f32> = best.iter().map(|scored| scored.rank_score).collect();
            let features = resolved.iter().map(|item| without_constant(item.features())).collect();
            order = marginal_relevance(&Relevant { scores: &scores, features }, diversity, request.k);
        }
        let estimates = group.estimates(order.iter().map(|index| &resolved[*index]));
        let ranked = |(index, estimate): (&usize, Estimate)| Ranked {
            scored: Scored { item: items[*index].clone(), estimate, known: resolved[*index].known() },
            propensity: Some(1.0),
        };
        let slots: Vec<Ranked> = order.iter().zip(estimates).map(ranked).collect();
        best = order.iter().map(|index| best[*index]).collect();
        let shown = best.iter().map(|scored| scored.row).zip(slots.iter().map(|slot| &slot.scored.item));
        let is_more = slots.len() == request.k && allowed.count() > request.k;
        let next = is_more.then(|| request.page.clone().unwrap_or_default().after(shown)).flatten();
        let missing = missing_parts(&subject.version, &resolved);
        Ok(self.recommendation(subject, allowed, recommending, (group.ranking(slots, missing), next)))
    }

    /// The best `wanted` rows by the group's score, best first.
    fn best_of_group(&self, group: &Group<'_>, wanted: usize) -> Result<Vec<ScoredRow>, PredictorError> {
        let weights = group.mean_weights();
        let Group { members, by, allowed, boosts, recommending } = group;
        let (subject, snapshot) = (&members[0].subject, &members[0].snapshot);
        let search = Search {
            subject,
            snapshot,
            allowed,
            boosts,
            draw: recommending.draw(subject),
            context: recommending.request.context.as_deref(),
        };
        let (each, least) = WIDENING;
        let mut width = if *by == Aggregate::Mean { wanted } else { (each * wanted).max(least) };
        loop {
            let rows = search.best(&weights, width);
            let is_whole = rows.len() < width;
            let mut scored = self.score_rows(group, &rows)?;
            if *by == Aggregate::Mean {
                // Already in order of the mean.
                return Ok(scored);
            }
            let beyond = scored.iter().map(|scored| scored.mean).fold(f32::INFINITY, f32::min);
            scored.sort_unstable_by(|a, b| b.rank_score.total_cmp(&a.rank_score).then(a.row.cmp(&b.row)));
            let is_certain =
                |last: &ScoredRow| last.rank_score > beyond + ROUNDING * (1.0 + last.rank_score.abs() + beyond.abs());
            if is_whole || scored.get(wanted.saturating_sub(1)).is_some_and(is_certain) {
                scored.truncate(wanted);
                return Ok(scored);
            }
            width *= GROWTH;
        }
    }

    /// The group's scores of each row.
    fn score_rows(&self, group: &Group<'_>, rows: &[Row]) -> Result<Vec<ScoredRow>, PredictorError> {
        let subject = &group.members[0].subject;
        let items = subject.model.catalog.items_of(rows.iter().copied());
        let context = group.recommending.request.context.as_deref();
        let picked = ResolvedItems::all(&subject.version, &items).in_context(context);
        let resolved = self.scorer.resolve(subject, &picked)?;
        let mut sums = vec![0.0_f64; rows.len()];
        let mut leasts = vec![f32::INFINITY; rows.len()];
        for Member { snapshot, .. } in group.members {
            let scores = scores(&snapshot.model, &resolved);
            for ((sum, least), score) in sums.iter_mut().zip(&mut leasts).zip(scores) {
                *sum += f64::from(score);
                *least = least.min(score);
            }
        }
        let scored = |((row, sum), least): ((&Row, f64), f32)| {
            let add = group.boosts.of(*row);
            let mean = (sum / group.members.len() as f64) as f32 + add;
            ScoredRow { row: *row, mean, rank_score: if group.by == Aggregate::Mean { mean } else { least + add } }
        };
        Ok(rows.iter().zip(sums).zip(leasts).map(scored).collect())
    }
}

impl Group<'_> {
    /// Weights whose scores are the mean of the members' scores.
    fn mean_weights(&self) -> Vec<f32> {
        let mut mean = vec![0.0; self.members[0].subject.version.dim()];
        for Member { snapshot, .. } in self.members {
            for (sum, weight) in mean.iter_mut().zip(snapshot.model.weights()) {
                *sum += weight;
            }
        }
        mean.into_iter().map(|sum: f64| (sum / self.members.len() as f64) as f32).collect()
    }

    /// The estimate reported for each item: for the mean, the mean with its uncertainty; for the
    /// minimum, the estimate of the member with the lowest score.
    fn estimates<'r>(&self, resolved: impl Iterator<Item = &'r Resolved<'r>> + Clone) -> Vec<Estimate> {
        let version = &*self.members[0].subject.version;
        let of_member = |member: &Member| estimates(&member.snapshot.model, version, resolved.clone());
        let all: Vec<Vec<Estimate>> = self.members.iter().map(of_member).collect();
        let of_item = |(item, resolved): (usize, &Resolved<'_>)| {
            let estimates: Vec<Estimate> = all.iter().map(|estimates| estimates[item]).collect();
            match self.by {
                // Errors of features mapped from attributes are common to all members.
                Aggregate::Mean if resolved.origin() == FeatureOrigin::Attributes => {
                    mean_of(&estimates, Errors::Shared)
                }
                Aggregate::Mean => mean_of(&estimates, Errors::Independent),
                Aggregate::LeastMisery => {
                    let least = estimates.into_iter().min_by(|a, b| a.score.total_cmp(&b.score));
                    least.expect("a group has members")
                }
            }
        };
        resolved.enumerate().map(of_item).collect()
    }

    fn ranking(&self, items: Vec<Ranked>, missing: Vec<String>) -> Ranking {
        let version = &self.members[0].subject.version;
        Ranking {
            decision_id: new_decision_id(&self.members[0].subject.key.user),
            logged: false,
            version: version.id,
            loss: version.learning.loss(),
            user_epoch: UserEpoch(0),
            cold: self.members.iter().all(|member| member.snapshot.model.observations() == 0),
            policy: DIVERSE_POLICY.clone(),
            seed: self.recommending.seed.value,
            seed_given: self.recommending.seed.given,
            pool: false,
            items,
            missing,
            selected: None,
        }
    }
}

/// How errors of the members' scores combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errors {
    /// Independent posteriors: variances add.
    Independent,
    /// Partly a common cause: standard deviations add, an upper bound for any correlation.
    Shared,
}

/// The mean of the scores, with the standard deviation of a mean.
fn mean_of(estimates: &[Estimate], errors: Errors) -> Estimate {
    let count = estimates.len() as f64;
    let mean = |entry: fn(&Estimate) -> f32| estimates.iter().map(|it| f64::from(entry(it))).sum::<f64>() / count;
    let std = |entry: fn(&Estimate) -> f32| match errors {
        Errors::Independent => estimates.iter().map(|it| f64::from(entry(it)).powi(2)).sum::<f64>().sqrt() / count,
        Errors::Shared => mean(entry),
    };
    Estimate {
        score: mean(|it| it.score) as f32,
        std_error: std(|it| it.std_error) as f32,
        label_std: std(|it| it.label_std) as f32,
    }
}

fn check(users: &[UserId], recommending: &Recommending<'_>) -> Result<(), PredictorError> {
    let refused = |field, problem: String| Err(PredictorError::Field { field, problem });
    let (least, most) = (GROUP_SIZES.start(), GROUP_SIZES.end());
    if !GROUP_SIZES.contains(&users.len()) {
        return refused("users", format!("from {least} to {most}, got {}", users.len()));
    }
    if let Some(twice) = users.iter().enumerate().find(|(index, user)| users[..*index].contains(user)) {
        return refused("users", format!("{} is named twice", twice.1));
    }
    let request = recommending.request;
    if request.min_epoch.is_some() {
        return refused("min_epoch", "belongs to one known user; leave it out".to_owned());
    }
    if !matches!(request.policy, None | Some(PolicySpec::Greedy(Greedy))) {
        return refused("policy", "a group is ranked by greedy; name that one or none".to_owned());
    }
    Ok(())
}
