//! One stage of many records: what executors of the batch engine run.

use super::run::StepInputs;
use super::{PlacedStage, Plan, Scratch};
use crate::operators::{Inputs, Op, Record, TreeRows};
use crate::stages::{Step, SubPlans, Work};

/// Records with their buffers.
pub(crate) struct Chunk<'a, I> {
    pub records: I,
    /// One for each record.
    pub scratches: &'a mut [Scratch],
    pub rows: &'a mut TreeRows,
}

impl Plan {
    /// Runs one stage of all records, with the bits of [`Plan::run`].
    pub(crate) fn run_stage_of_all<'r, I>(&self, stage: usize, mut chunk: Chunk<I>, kept: Option<&SubPlans>)
    where
        I: Iterator<Item = Record<'r>> + Clone,
    {
        if stage == 0 {
            chunk.scratches.iter_mut().for_each(|scratch| scratch.fit(self));
        }
        let placed = &self.stages[stage];
        let keeps = kept.is_some() && placed.is_shared();
        let is_trees = |step: &Step| matches!(step.op, Op::Trees(_));
        match &placed.stage.work {
            // Trees score many rows faster than one by one.
            Work::Steps(steps) if !keeps && steps.iter().any(is_trees) => {
                for number in 0..steps.len() {
                    self.step_of_all(placed, steps, number, &mut chunk);
                }
            }
            _ => {
                for (record, scratch) in chunk.records.zip(chunk.scratches) {
                    self.run_stage(stage, record, scratch, kept);
                }
            }
        }
    }

    /// Computes one step of all records.
    fn step_of_all<'r, I>(&self, placed: &PlacedStage, steps: &[Step], number: usize, chunk: &mut Chunk<I>)
    where
        I: Iterator<Item = Record<'r>> + Clone,
    {
        let step = &steps[number];
        let Op::Trees(trees) = &step.op else {
            for (record, scratch) in chunk.records.clone().zip(&mut *chunk.scratches) {
                let (areas, own, mut around) = self.split(placed.area, record, scratch, None);
                placed.step(steps, number, areas, own, &mut around);
            }
            return;
        };
        chunk.rows.clear();
        for (record, scratch) in chunk.records.clone().zip(&mut *chunk.scratches) {
            let (areas, own, _) = self.split(placed.area, record, scratch, None);
            chunk.rows.push(trees, StepInputs { step, placed, areas, own }.get(0));
        }
        chunk.rows.score(trees);
        let outputs = chunk.rows.outputs(trees);
        for ((record, scratch), outputs) in chunk.records.clone().zip(&mut *chunk.scratches).zip(outputs) {
            let (_, own, _) = self.split(placed.area, record, scratch, None);
            own[placed.first as usize + number].dense().extend_from_slice(outputs);
        }
    }
}
