//! Answers of a selection, by one arm or by all arms combined.

use std::collections::BTreeSet;

use celeris_bandits::selection::{Combined, Selected};
use celeris_bandits::{BanditError, Wants};
use celeris_model::{Estimate, Loss, ModelName, UserEpoch};

use super::{
    Draw, PolicyInputs, PredictRequest, Predictions, Ranked, RankedSlots, Ranker, Ranking, RankingInput, ResolvedItems,
    Scored, Seed, TopkRequest, explored, inputs_digest,
};
use crate::error::PredictorError;
use crate::selection::{SelectedBy, Selection, WeightedArm};
use crate::selections::Turn;
use crate::users::Subject;

/// The combined answers of all arms.
struct Together {
    scored: Vec<Scored>,
    confidence: Vec<f32>,
    arms: Vec<WeightedArm>,
    loss: Loss,
    /// The lowest epoch that any arm reflects.
    user_epoch: UserEpoch,
    cold: bool,
    /// The computed parts that an arm lacked.
    missing: Vec<String>,
}

impl Ranker {
    /// Scores items by the arm or arms that the selection chooses.
    ///
    /// # Errors
    /// `UnknownModel`, `Segment`, `EpochNotReached` or `Storage`.
    pub(crate) async fn predict_by_selection(
        &self,
        selection: &Selection,
        request: &PredictRequest,
    ) -> Result<Predictions, PredictorError> {
        let segment = request.segment.as_ref();
        let turn = Turn { user: &request.user, min_epoch: request.min_epoch, segment, seed: None };
        match self.selections.choose(selection, &turn).await? {
            Selected::One { arm, propensity } => {
                let arm = selection.rule.arms[arm].clone();
                let request = PredictRequest { model: arm.clone(), ..request.clone() };
                let mut predictions = self.predict_by_model(&request).await?;
                predictions.selected = Some(SelectedBy::Arm { arm, propensity: propensity as f32 });
                Ok(predictions)
            }
            Selected::All(weights) => {
                let Together { scored: scores, confidence, arms, loss, user_epoch, cold, missing } =
                    self.together(selection, &weights, request).await?;
                let version = heaviest(&arms).version;
                let selected = Some(SelectedBy::All { arms, confidence });
                Ok(Predictions { version, loss, user_epoch, cold, scores, missing, selected })
            }
        }
    }

    /// Predicts by every arm and combines the estimates by `weights`.
    async fn together(
        &self,
        selection: &Selection,
        weights: &[f64],
        request: &PredictRequest,
    ) -> Result<Together, PredictorError> {
        let rule = &selection.rule;
        let mut answers = Vec::with_capacity(rule.arms.len());
        for arm in &rule.arms {
            let request = PredictRequest { model: arm.clone(), ..request.clone() };
            answers.push(self.predict_by_model(&request).await?);
        }
        let weighted = |((arm, weight), answer): ((&ModelName, &f64), &Predictions)| WeightedArm {
            arm: arm.clone(),
            weight: *weight,
            version: answer.version,
        };
        let loss = answers[0].loss;
        let mut estimates: Vec<Estimate> = Vec::with_capacity(answers.len());
        let combine = |item: usize| {
            estimates.clear();
            estimates.extend(answers.iter().map(|answer| answer.scores[item].estimate));
            let Combined { estimate, confidence } = rule.combine(weights, &estimates, loss);
            let known = answers.iter().any(|answer| answer.scores[item].known);
            (Scored { item: request.items[item].clone(), estimate, known }, confidence)
        };
        let (scored, confidence) = (0..request.items.len()).map(combine).unzip();
        Ok(Together {
            scored,
            confidence,
            arms: rule.arms.iter().zip(weights).zip(&answers).map(weighted).collect(),
            loss,
            user_epoch: answers.iter().map(|answer| answer.user_epoch).min().unwrap_or_default(),
            cold: answers.iter().all(|answer| answer.cold),
            missing: answers
                .iter()
                .flat_map(|answer| answer.missing.clone())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
        })
    }

    /// Ranks items by the arm or arms that the selection chooses, and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `Segment`, `EpochNotReached`, `Bandit` or `Storage`.
    pub(crate) async fn topk_by_selection(
        &self,
        selection: &Selection,
        request: &TopkRequest,
        seed: Seed,
    ) -> Result<Ranking, PredictorError> {
        let segment = request.segment.as_ref();
        let turn = Turn { user: &request.user, min_epoch: request.min_epoch, segment, seed: Some(seed.value) };
        let mut request = request.clone();
        match self.selections.choose(selection, &turn).await? {
            Selected::One { arm, propensity } => {
                let (arm, propensity) = (selection.rule.arms[arm].clone(), propensity as f32);
                request.selection = Some(selection.facts(Some(&arm), propensity, segment));
                request.model = arm.clone();
                let mut ranking = self.topk_by_model(&request, seed).await?;
                ranking.selected = Some(SelectedBy::Arm { arm, propensity });
                Ok(ranking)
            }
            Selected::All(weights) => {
                request.selection = Some(selection.facts(None, 1.0, segment));
                self.topk_together(selection, &weights, &request, seed).await
            }
        }
    }

    /// Ranks by the combined scores. The decision is recorded with the version of the arm with the
    /// largest weight.
    async fn topk_together(
        &self,
        selection: &Selection,
        weights: &[f64],
        request: &TopkRequest,
        seed: Seed,
    ) -> Result<Ranking, PredictorError> {
        let rule = &selection.rule;
        let draw = request.draw(seed, &rule.defaults);
        if draw.policy.policy().wants() > Wants::Uncertainty {
            return Err(BanditError::NoPosterior { policy: draw.policy.name() }.into());
        }
        let heaviest = weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(arm, _)| arm);
        let subject = self.users.subject(self.models.get(&rule.arms[heaviest])?, &request.user);
        let items = ResolvedItems::distinct(&subject.version, &request.items);
        let all = PredictRequest {
            model: rule.name.clone(),
            user: request.user.clone(),
            items: items.items().cloned().collect(),
            min_epoch: request.min_epoch,
            segment: None,
            context: request.context.clone(),
        };
        let together = self.together(selection, weights, &all).await?;
        let (slots, confidence) = self.draw_together(&subject, &together, draw)?;
        self.users.settle(&subject, slots.snapshot.pending.as_ref()).await?;
        let selection = request.selection.as_ref();
        let context = request.context.as_deref();
        let input = RankingInput { subject: &subject, items: &items, draw, selection, arrangement: None, context };
        let mut ranking = self.decisions.record(&input, slots);
        ranking.selected = Some(SelectedBy::All { arms: together.arms, confidence });
        (ranking.user_epoch, ranking.cold) = (together.user_epoch, together.cold);
        Ok(ranking)
    }

    /// Draws a ranking by the combined scores; also returns the confidence of each slot.
    fn draw_together(
        &self,
        subject: &Subject,
        together: &Together,
        draw: Draw<'_>,
    ) -> Result<(RankedSlots, Vec<f32>), PredictorError> {
        let snapshot = self.users.snapshot(subject)?;
        let inputs = PolicyInputs::of_estimates(together.scored.iter().map(|scored| &scored.estimate));
        let ranking = draw.draw(&inputs.candidates(&snapshot.model, &subject.version.learning))?;
        let explored = explored(&inputs.scores, &ranking.slots);
        let ranked = ranking
            .slots
            .iter()
            .map(|slot| Ranked { scored: together.scored[slot.candidate].clone(), propensity: slot.propensity });
        let shown = ranked.collect();
        let confidence = ranking.slots.iter().map(|slot| together.confidence[slot.candidate]).collect();
        // Policies that need only scores and uncertainty have closed-form propensities.
        let digest = inputs_digest(&inputs.scores, &[]);
        let missing = together.missing.clone();
        Ok((RankedSlots { snapshot, pool: ranking.pool, shown, explored, digest, missing, unknown: None }, confidence))
    }
}

fn heaviest(arms: &[WeightedArm]) -> &WeightedArm {
    arms.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).expect("a selection has arms")
}
