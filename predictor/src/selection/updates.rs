//! How a record updates the loss sums of a selection's arms.

use celeris_bandits::selection::strategy::Learns;
use celeris_bandits::selection::{ArmSums, Outcome};
use celeris_model::{Partition, Record, RecordKind, SelectionFacts, Sequence};

use crate::selection::SelectionRule;

/// The sums that an outcome adds to the arms of a group.
pub(crate) struct SumsUpdate {
    pub(crate) group: usize,
    pub(crate) sums: Vec<(usize, ArmSums)>,
}

impl SelectionRule {
    /// The update that a record makes; `None` if it makes none.
    ///
    /// A function of the rule and the record alone, and so is every state. The weight of an
    /// observation is ignored: every loss counts once.
    pub(crate) fn update(&self, sequence: Sequence, record: &Record) -> Option<SumsUpdate> {
        if record.kind != RecordKind::Observe || sequence <= self.begins.get(Partition::of(&record.user)) {
            return None;
        }
        let facts = record.decision.as_ref().and_then(|facts| facts.selection.as_ref());
        let facts = facts.filter(|facts| facts.model_id == self.id);
        let strategy = self.strategy.strategy();
        let group = self.group(facts.and_then(|facts| facts.segment.as_ref())).ok()?;
        let sums = match strategy.learns() {
            Learns::FromServed => strategy.observe(self.served(facts?, record)?),
            Learns::FromEvery => {
                let losses: Vec<Option<f64>> = (0..self.arms.len()).map(|arm| self.loss(arm, record)).collect();
                strategy.observe(Outcome::Every(&losses))
            }
        };
        (!sums.is_empty()).then_some(SumsUpdate { group, sums })
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
