//! Recommendations for several users at once: by the mean of their scores, or by the least of them.
//!
//! A mean of scores is the score by the mean of the weights, so the best by the mean are found by one search. The least
//! of several numbers is never above their mean, so the best by the least are found among the best by the mean: once
//! the `k`-th best least score among `n` of them is above the mean of the last, whatever was not looked at has a mean,
//! and so a least score, below it. Until ack, `n` grows. (Fagin, Lotem and Naor, "Optimal aggregation algorithms for
//! middleware", PODS 2001, stop by the same argument.)
//!
//! Groups are ranked greedily. No decision is recorded: decisions are one user's, and so are the rewards that join
//! them.

use celeris_bandits::{Greedy, PolicySpec};
use celeris_model::{DecisionId, Estimate, FeatureOrigin, UserEpoch, UserId};
use celeris_retrieval::{CandidateSet, Row};

use super::boosts::Boosts;
use super::candidates::{Search, diverse_width};
use super::{Aggregate, DIVERSE_POLICY, Recommendation, Recommending, Relevant, marginal_relevance, without_constant};
use crate::error::PredictorError;
use crate::features::Resolved;
use crate::node::{Predictor, RequestContext, compute};
use crate::predict::Scored;
use crate::scoring::{self, ResolvedItems};
use crate::topk::{Ranked, Ranking};
use crate::users::UserSnapshot;

/// How many users a group has, at least and at most.
pub const GROUP_SIZES: std::ops::RangeInclusive<usize> = 2..=16;

/// Where the search for the best least scores begins: so many for each slot, and at least so many in all.
const WIDENING: (usize, usize) = (4, 64);

/// By how much it grows where that was not enough.
const GROWTH: usize = 4;

/// How far a sum of `f32` may be from what it stands for, relative to its size: the threshold keeps this distance.
const ROUNDING: f32 = 1e-5;

/// A member, and their state at this moment.
struct Member {
    subject: RequestContext,
    moment: UserSnapshot,
}

/// A group on its way.
struct Group<'a> {
    members: &'a [Member],
    by: Aggregate,
    allowed: &'a CandidateSet,
    boosts: &'a Boosts,
    recommending: Recommending<'a>,
}

/// An item with what the group makes of it.
#[derive(Debug, Clone, Copy)]
struct Judged {
    row: Row,
    /// The mean of the members' scores, and what boosts add.
    mean: f32,
    /// What the item is ranked by: the mean, or the least of their scores and what boosts add.
    worth: f32,
}

impl Predictor {
    /// Recommends to all of `users` at once.
    pub(super) async fn recommend_to_group(
        &self,
        users: &[UserId],
        by: Aggregate,
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        check(users, &recommending)?;
        let mut members: Vec<Member> = Vec::with_capacity(users.len());
        for user in users {
            let mut subject = self.subject(recommending.model, user)?;
            if let Some(first) = members.first() {
                // A switch meanwhile does not part the group.
                subject.version = first.subject.version.clone();
            }
            let moment = compute(subject.entry.is_warm(&subject.version), || self.moment(&subject))?;
            self.settle(&subject, moment.pending.as_ref()).await?;
            members.push(Member { subject, moment });
        }
        compute(false, || {
            let (first, request) = (&members[0].subject, recommending.request);
            let mut allowed = self.showable(first, &recommending);
            let catalog = &first.model.catalog;
            for Member { subject, moment } in &members {
                if let Some(rule) = &request.exclude_seen {
                    let seen = self.seen.of(&subject.key, moment.epoch, &self.storage, catalog)?;
                    seen.take_out(rule, recommending.now, &mut allowed, catalog);
                }
            }
            let boosts = self.boosts(first, &recommending);
            self.recommend_to(&Group { members: &members, by, allowed: &allowed, boosts: &boosts, recommending })
        })
    }

    fn recommend_to(&self, group: &Group<'_>) -> Result<Recommendation, PredictorError> {
        let Group { members, allowed, recommending, .. } = group;
        let (subject, request) = (&members[0].subject, recommending.request);
        let wanted = request.diversity.map_or(request.k, |_| diverse_width(request.k));
        let mut best = self.best_of_group(group, wanted)?;
        let items = subject.model.catalog.items_of(best.iter().map(|judged| judged.row));
        let picked = ResolvedItems::all(&subject.version, &items);
        let resolved = self.resolve_all(subject, &picked)?;
        let mut order: Vec<usize> = (0..best.len()).collect();
        if let Some(diversity) = request.diversity {
            let scores: Vec<f32> = best.iter().map(|judged| judged.worth).collect();
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
        let shown = best.iter().map(|judged| judged.row).zip(slots.iter().map(|slot| &slot.scored.item));
        let is_more = slots.len() == request.k && allowed.count() > request.k;
        let next = is_more.then(|| request.page.clone().unwrap_or_default().after(shown)).flatten();
        Ok(Recommendation { ranking: group.ranking(slots), next })
    }

    /// The best `wanted` by what the group makes of them, the best first.
    fn best_of_group(&self, group: &Group<'_>, wanted: usize) -> Result<Vec<Judged>, PredictorError> {
        let weights = group.mean_weights();
        let Group { members, by, allowed, boosts, recommending } = group;
        let (subject, moment) = (&members[0].subject, &members[0].moment);
        let search = Search { subject, moment, allowed, boosts, draw: recommending.draw(subject) };
        let (each, least) = WIDENING;
        let mut width = if *by == Aggregate::Mean { wanted } else { (each * wanted).max(least) };
        loop {
            let rows = self.best(&search, &weights, width);
            let is_whole = rows.len() < width;
            let mut judged = self.judge(group, &rows)?;
            if *by == Aggregate::Mean {
                // In the order in which the search has found them.
                return Ok(judged);
            }
            let beyond = judged.iter().map(|judged| judged.mean).fold(f32::INFINITY, f32::min);
            judged.sort_unstable_by(|a, b| b.worth.total_cmp(&a.worth).then(a.row.cmp(&b.row)));
            let is_certain = |last: &Judged| last.worth > beyond + ROUNDING * (1.0 + last.worth.abs() + beyond.abs());
            if is_whole || judged.get(wanted.saturating_sub(1)).is_some_and(is_certain) {
                judged.truncate(wanted);
                return Ok(judged);
            }
            width *= GROWTH;
        }
    }

    /// What the group makes of each row.
    fn judge(&self, group: &Group<'_>, rows: &[Row]) -> Result<Vec<Judged>, PredictorError> {
        let subject = &group.members[0].subject;
        let items = subject.model.catalog.items_of(rows.iter().copied());
        let resolved = self.resolve_all(subject, &ResolvedItems::all(&subject.version, &items))?;
        let mut sums = vec![0.0_f64; rows.len()];
        let mut leasts = vec![f32::INFINITY; rows.len()];
        for Member { moment, .. } in group.members {
            let scores = scoring::scores(&moment.model, &resolved);
            for ((sum, least), score) in sums.iter_mut().zip(&mut leasts).zip(scores) {
                *sum += f64::from(score);
                *least = least.min(score);
            }
        }
        let judged = |((row, sum), least): ((&Row, f64), f32)| {
            let add = group.boosts.of(*row);
            let mean = (sum / group.members.len() as f64) as f32 + add;
            Judged { row: *row, mean, worth: if group.by == Aggregate::Mean { mean } else { least + add } }
        };
        Ok(rows.iter().zip(sums).zip(leasts).map(judged).collect())
    }
}

impl Group<'_> {
    /// The weights whose scores are the mean of the members' scores.
    fn mean_weights(&self) -> Vec<f32> {
        let mut mean = vec![0.0; self.members[0].subject.version.dim()];
        for Member { moment, .. } in self.members {
            for (sum, weight) in mean.iter_mut().zip(moment.model.weights()) {
                *sum += weight;
            }
        }
        mean.into_iter().map(|sum: f64| (sum / self.members.len() as f64) as f32).collect()
    }

    /// What is told of each item: of a mean, the mean with its uncertainty; of the least score, the estimate of the
    /// member whose it is.
    fn estimates<'r>(&self, resolved: impl Iterator<Item = &'r Resolved<'r>> + Clone) -> Vec<Estimate> {
        let version = &*self.members[0].subject.version;
        let of_member = |member: &Member| scoring::estimates(&member.moment.model, version, resolved.clone());
        let all: Vec<Vec<Estimate>> = self.members.iter().map(of_member).collect();
        let of_item = |(item, resolved): (usize, &Resolved<'_>)| {
            let estimates: Vec<Estimate> = all.iter().map(|estimates| estimates[item]).collect();
            match self.by {
                // What attributes do not tell of an item puts all members wrong together.
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

    fn ranking(&self, items: Vec<Ranked>) -> Ranking {
        let version = &self.members[0].subject.version;
        Ranking {
            decision_id: DecisionId::new(uuid::Uuid::now_v7().to_string()).expect("a UUID is a valid id"),
            logged: false,
            version: version.id,
            loss: version.learning.loss(),
            user_epoch: UserEpoch(0),
            cold: self.members.iter().all(|member| member.moment.model.observations() == 0),
            policy: DIVERSE_POLICY.clone(),
            seed: self.recommending.seed.value,
            seed_given: self.recommending.seed.given,
            pool: false,
            items,
            selected: None,
        }
    }
}

/// How the errors of members' scores go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errors {
    /// Each member's posterior is their own: variances add.
    Independent,
    /// In part they have one cause. Deviations add, which no correlation exceeds.
    Shared,
}

/// The mean of the scores, with the deviation of a mean.
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
