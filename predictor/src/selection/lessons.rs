//! What a record says of a selection's arms.

use celeris_bandits::selection::strategy::Learns;
use celeris_bandits::selection::{ArmSums, Outcome};
use celeris_model::{Partition, Record, RecordKind, SelectionFacts, Sequence};

use crate::selection::SelectionRule;

/// What an outcome adds, and to which group of sums.
pub(crate) struct WeightedTarget {
    pub(crate) group: usize,
    pub(crate) said: Vec<(usize, ArmSums)>,
}

impl SelectionRule {
    /// What a record says of the arms; `None` where it says nothing.
    ///
    /// A function of the rule and the record alone, and so is every state. The weight of an observation does not count: a
    /// loss is one loss.
    pub(crate) fn lesson(&self, sequence: Sequence, record: &Record) -> Option<WeightedTarget> {
        if record.kind != RecordKind::Observe || sequence <= self.begins.get(Partition::of(&record.user)) {
            return None;
        }
        let facts = record.decision.as_ref().and_then(|facts| facts.selection.as_ref());
        let facts = facts.filter(|facts| facts.model_id == self.id);
        let strategy = self.strategy.strategy();
        let group = self.group(facts.and_then(|facts| facts.segment.as_ref())).ok()?;
        let said = match strategy.learns() {
            Learns::FromServed => strategy.observe(self.served(facts?, record)?),
            Learns::FromEvery => {
                let losses: Vec<Option<f64>> = (0..self.arms.len()).map(|arm| self.loss(arm, record)).collect();
                strategy.observe(Outcome::Every(&losses))
            }
        };
        (!said.is_empty()).then_some(WeightedTarget { group, said })
    }

    fn served(&self, facts: &SelectionFacts, record: &Record) -> Option<Outcome<'static>> {
        let served = facts.arm.as_ref()?;
        let arm = self.arms.iter().position(|arm| arm == served)?;
        let propensity = f64::from(facts.propensity);
        let loss = self.loss(arm, record)?;
        (propensity > 0.0).then_some(Outcome::Served { arm, propensity, loss })
    }

    fn loss(&self, arm: usize, record: &Record) -> Option<f64> {
        let predicted = record.predictions.iter().find(|prediction| prediction.model == self.arm_ids[arm]);
        self.scale.loss(predicted.map(|prediction| prediction.predicted), record.label)
    }
}
