//! A selection's arms answer for it.

use celeris_bandits::selection::{Combined, Selected};
use celeris_bandits::{BanditError, Candidates, Wants};
use celeris_model::{Estimate, ModelName, SelectionFacts, UserEpoch};

use crate::drawing::{Draw, explored};
use crate::error::PredictorError;
use crate::node::{Predictor, Subject, compute};
use crate::predict::{PredictRequest, Predictions, Scored};
use crate::scoring::Picked;
use crate::selection::choose::{SelectedBy, Turn, WeightedArm};
use crate::selection::Selection;
use crate::topk::{Asked, Drawn, Ranked, Ranking, TopkRequest, fresh_seed};

/// What all arms say of the same items, made one.
struct Together {
    scored: Vec<Scored>,
    confidence: Vec<f32>,
    arms: Vec<WeightedArm>,
    /// The least that any arm reflects.
    user_epoch: UserEpoch,
    cold: bool,
}

impl Selection {
    /// What a decision's record says of who answered.
    fn facts(&self, arm: Option<ModelName>, propensity: f32, context: Option<&ModelName>) -> SelectionFacts {
        SelectionFacts { model: self.rule.name.clone(), arm, propensity, context: context.cloned() }
    }
}

impl Predictor {
    pub(crate) async fn predict_among(
        &self,
        selection: &Selection,
        request: &PredictRequest,
    ) -> Result<Predictions, PredictorError> {
        let PredictRequest { user, min_epoch, context, .. } = request;
        let turn = Turn { user, min_epoch: *min_epoch, context: context.as_ref(), seed: None };
        match self.choose(selection, &turn).await? {
            Selected::One { arm, propensity } => {
                let arm = selection.rule.arms[arm].clone();
                let request = PredictRequest { model: arm.clone(), ..request.clone() };
                let mut predictions = self.predict_by_model(&request).await?;
                predictions.selected = Some(SelectedBy::Arm { arm, propensity: propensity as f32 });
                Ok(predictions)
            }
            Selected::All(weights) => {
                let together = self.together(selection, &weights, request).await?;
                let heaviest = heaviest(&together.arms);
                Ok(Predictions {
                    version: heaviest.version,
                    loss: self.active(&heaviest.arm)?.learning.loss(),
                    user_epoch: together.user_epoch,
                    cold: together.cold,
                    scores: together.scored,
                    selected: Some(SelectedBy::All { arms: together.arms, confidence: together.confidence }),
                })
            }
        }
    }

    /// What every arm says of the items, and their mean by `weights`.
    async fn together(
        &self,
        selection: &Selection,
        weights: &[f64],
        request: &PredictRequest,
    ) -> Result<Together, PredictorError> {
        let rule = &selection.rule;
        let mut answers = Vec::with_capacity(rule.arms.len());
        for arm in &rule.arms {
            let request = PredictRequest { model: arm.clone(), context: None, ..request.clone() };
            answers.push(self.predict_by_model(&request).await?);
        }
        let arms = rule.arms.iter().zip(weights).zip(&answers).map(|((arm, weight), answer)| WeightedArm {
            arm: arm.clone(),
            weight: *weight,
            version: answer.version,
        });
        let mut estimates: Vec<Estimate> = Vec::with_capacity(answers.len());
        let combine = |item: usize| {
            estimates.clear();
            estimates.extend(answers.iter().map(|answer| answer.scores[item].estimate));
            let Combined { estimate, confidence } = rule.combine(weights, &estimates);
            let known = answers.iter().any(|answer| answer.scores[item].known);
            (Scored { item: request.items[item].clone(), estimate, known }, confidence)
        };
        let (scored, confidence) = (0..request.items.len()).map(combine).unzip();
        Ok(Together {
            scored,
            confidence,
            arms: arms.collect(),
            user_epoch: answers.iter().map(|answer| answer.user_epoch).min().unwrap_or_default(),
            cold: answers.iter().all(|answer| answer.cold),
        })
    }

    pub(crate) async fn topk_among(
        &self,
        selection: &Selection,
        request: &TopkRequest,
    ) -> Result<Ranking, PredictorError> {
        let seed = request.seed.unwrap_or_else(fresh_seed);
        let context = request.context.as_ref();
        let turn = Turn { user: &request.user, min_epoch: request.min_epoch, context, seed: Some(seed) };
        match self.choose(selection, &turn).await? {
            Selected::One { arm, propensity } => {
                let (arm, propensity) = (selection.rule.arms[arm].clone(), propensity as f32);
                let facts = selection.facts(Some(arm.clone()), propensity, context);
                let request = TopkRequest {
                    model: arm.clone(),
                    seed: Some(seed),
                    selection: Some(facts),
                    context: None,
                    ..request.clone()
                };
                let mut ranking = self.topk_by_model(&request).await?;
                ranking.selected = Some(SelectedBy::Arm { arm, propensity });
                Ok(ranking)
            }
            Selected::All(weights) => {
                let facts = selection.facts(None, 1.0, context);
                let request = TopkRequest { seed: Some(seed), selection: Some(facts), ..request.clone() };
                self.topk_together(selection, &weights, &request).await
            }
        }
    }

    /// Ranks by the combined scores. The decision is recorded with the version of the arm that weighs most.
    async fn topk_together(
        &self,
        selection: &Selection,
        weights: &[f64],
        request: &TopkRequest,
    ) -> Result<Ranking, PredictorError> {
        let rule = &selection.rule;
        let draw = Draw::asked(request, &rule.defaults);
        if draw.policy.policy().wants() > Wants::Uncertainty {
            return Err(BanditError::NoPosterior { policy: draw.policy.name() }.into());
        }
        let heaviest = weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(arm, _)| arm);
        let subject = self.subject(&rule.arms[heaviest], &request.user)?;
        let picked = Picked::distinct(&subject.version, &request.items);
        let all = PredictRequest {
            model: rule.name.clone(),
            user: request.user.clone(),
            items: picked.items().cloned().collect(),
            min_epoch: request.min_epoch,
            context: None,
        };
        let Together { scored, confidence, arms, user_epoch, cold } = self.together(selection, weights, &all).await?;
        let drawn = self.draw_together(&subject, &scored, &draw)?;
        self.settle(&subject, &drawn.moment).await?;
        let slots: Vec<usize> = drawn.slots.clone();
        let mut ranking = self.decide(&Asked { subject: &subject, picked: &picked, draw, request }, drawn.drawn);
        let confidence = slots.iter().map(|candidate| confidence[*candidate]).collect();
        ranking.selected = Some(SelectedBy::All { arms, confidence });
        (ranking.user_epoch, ranking.cold) = (user_epoch, cold);
        Ok(ranking)
    }
}

fn heaviest(arms: &[WeightedArm]) -> &WeightedArm {
    arms.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).expect("a selection has arms")
}
