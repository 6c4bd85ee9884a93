//! Execution of plans: the request-response engine. The batch engine runs the same stages.

use std::sync::Arc;

use celeris_model::Context;
use serde_json::{Map, Value};

use super::kept::{ContextValues, ItemValues, Kept};
use super::scratch::Scratch;
use super::{Place, PlacedStage, Plan};
use crate::error::PipelineError;
use crate::graph::Depends;
use crate::operators::{CrossScratch, Inputs, Memo, Record, Surroundings};
use crate::stages::{Outcome, Step, SubPlans, TextRun, Wire, Work};
use crate::text::TextScratch;
use crate::values::{Slot, View, write_dense};

/// Where the values of an area are read.
#[derive(Clone, Copy)]
enum Source<'a> {
    Slots(&'a [Slot]),
    Kept(&'a Kept),
}

/// The areas that a stage reads besides its own.
#[derive(Clone, Copy)]
pub(super) struct Areas<'a> {
    constants: &'a [Slot],
    item: Source<'a>,
    context: Source<'a>,
}

impl<'a> Areas<'a> {
    fn view(&self, place: Place) -> View<'a> {
        let source = match place.area {
            Depends::Nothing => Source::Slots(self.constants),
            Depends::Item => self.item,
            // A value of both is read in its own area.
            Depends::Context | Depends::ItemAndContext => self.context,
        };
        match source {
            Source::Slots(slots) => slots[place.slot as usize].view(),
            Source::Kept(kept) => kept.view(place.export),
        }
    }
}

/// The inputs of a step.
pub(super) struct StepInputs<'a> {
    pub step: &'a Step,
    pub placed: &'a PlacedStage,
    pub areas: Areas<'a>,
    pub own: &'a [Slot],
}

impl Inputs for StepInputs<'_> {
    fn count(&self) -> usize {
        self.step.inputs.len()
    }

    fn get(&self, position: usize) -> View<'_> {
        match self.step.inputs[position] {
            Wire::Local(local) => self.own[(self.placed.first + local) as usize].view(),
            Wire::Input(input) => {
                let place = self.placed.inputs[input as usize];
                if place.area == self.placed.area {
                    self.own[place.slot as usize].view()
                } else {
                    self.areas.view(place)
                }
            }
        }
    }
}

/// Buffers and circumstances of a stage, besides the slots.
pub(super) struct Around<'a> {
    record: Record<'a>,
    text: &'a mut TextScratch,
    cross: &'a mut CrossScratch,
    row: &'a mut Vec<f32>,
    /// The input of a stage whose results are kept.
    key: &'a mut Vec<u8>,
    /// For each slot of the stage's area, if candidates share sums.
    memos: Option<&'a mut [Memo]>,
    kept: Option<&'a SubPlans>,
}

impl PlacedStage {
    fn run(&self, areas: Areas, own: &mut [Slot], around: &mut Around) {
        let first = self.first as usize;
        match &self.stage.work {
            Work::Text(stage) => {
                let (record, kept, is_shared) = (around.record, around.kept, self.is_shared());
                let mut run = TextRun { record, scratch: around.text, kept, is_shared };
                stage.run(&mut run, &mut own[first..first + stage.branches.len()]);
            }
            Work::Steps(steps) => match around.kept {
                Some(kept) if self.is_shared() && self.stage.is_worth_keeping() => {
                    self.run_keeping(steps, areas, own, around, kept);
                }
                _ => (0..steps.len()).for_each(|step| self.step(steps, step, areas, own, around)),
            },
        }
    }

    /// Whether another plan has the stage too.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.stage) > 1
    }

    /// Computes one step.
    pub(super) fn step(&self, steps: &[Step], number: usize, areas: Areas, own: &mut [Slot], around: &mut Around) {
        let (step, slot) = (&steps[number], self.first as usize + number);
        // Taken out while the others are read; its buffers come along.
        let mut out = std::mem::take(&mut own[slot]);
        let inputs = StepInputs { step, placed: self, areas, own };
        let memo = around.memos.as_deref_mut().map(|memos| &mut memos[slot]);
        let Around { record, text, cross, row, .. } = around;
        step.op.compute(&inputs, Surroundings { record: *record, text, cross, row, memo }, &mut out);
        own[slot] = out;
    }

    /// Takes the last value from the kept ones, or computes and keeps it. Its input are the inputs of the stage, and the
    /// values that it reads of the record.
    fn run_keeping(&self, steps: &[Step], areas: Areas, own: &mut [Slot], around: &mut Around, kept: &SubPlans) {
        let mut key = std::mem::take(around.key);
        key.clear();
        for place in &self.inputs {
            let view = if place.area == self.area { own[place.slot as usize].view() } else { areas.view(*place) };
            view.write_key(&mut key);
        }
        let is_read = |step: &usize| steps[*step].op.reads_record();
        for step in (0..steps.len()).filter(is_read) {
            self.step(steps, step, areas, own, around);
            own[self.first as usize + step].view().write_key(&mut key);
        }
        let last = self.first as usize + steps.len() - 1;
        if let Some(Outcome::Value(value)) = kept.get(self.stage.fingerprint, &key) {
            own[last].set(value.view());
        } else {
            (0..steps.len()).filter(|step| !is_read(step)).for_each(|step| self.step(steps, step, areas, own, around));
            let mut value = Slot::default();
            value.set(own[last].view());
            kept.insert(self.stage.fingerprint, &key, Outcome::Value(Arc::new(value)));
        }
        *around.key = key;
    }
}

impl Plan {
    /// Computes the output of a record into `out`, of length [`Plan::dim`]; missing numbers are 0.
    ///
    /// # Errors
    /// [`PipelineError::OutputLength`].
    pub fn run(&self, record: Record, scratch: &mut Scratch, out: &mut [f32]) -> Result<(), PipelineError> {
        self.run_keeping(record, scratch, None, out)
    }

    /// As [`Plan::run`], with results of stages that several plans share taken from `kept` or added to it.
    ///
    /// # Errors
    /// [`PipelineError::OutputLength`].
    pub fn run_keeping(
        &self,
        record: Record,
        scratch: &mut Scratch,
        kept: Option<&SubPlans>,
        out: &mut [f32],
    ) -> Result<(), PipelineError> {
        self.check_length(self.dim(), out)?;
        (0..self.stages.len()).for_each(|stage| self.run_stage(stage, record, scratch, kept));
        self.write_output(scratch, out);
        Ok(())
    }

    /// Appends the output of a record as ascending columns and their values, without zeros.
    pub fn run_sparse(&self, record: Record, scratch: &mut Scratch, columns: &mut Vec<(u32, f32)>) {
        (0..self.stages.len()).for_each(|stage| self.run_stage(stage, record, scratch, None));
        let is_entry = |(_, value): &(u32, f32)| *value != 0.0 && !value.is_nan();
        match self.output_of(scratch) {
            View::Number(number) => columns.extend([(0, number)].into_iter().filter(is_entry)),
            View::Dense(numbers) => columns.extend((0..).zip(numbers.iter().copied()).filter(is_entry)),
            View::Sparse(of, numbers) => {
                columns.extend(of.iter().copied().zip(numbers.iter().copied()).filter(is_entry));
            }
            _ => {}
        }
    }

    /// Runs one stage of a record. Stages are run in their order; those before it lie in `scratch`.
    pub(super) fn run_stage(&self, stage: usize, record: Record, scratch: &mut Scratch, kept: Option<&SubPlans>) {
        if stage == 0 {
            scratch.fit(self);
        }
        let placed = &self.stages[stage];
        let (areas, own, mut around) = self.split(placed.area, record, scratch, kept);
        placed.run(areas, own, &mut around);
    }

    /// What a stage of this area reads and writes.
    pub(super) fn split<'a>(
        &'a self,
        area: Depends,
        record: Record<'a>,
        scratch: &'a mut Scratch,
        kept: Option<&'a SubPlans>,
    ) -> (Areas<'a>, &'a mut [Slot], Around<'a>) {
        let Scratch { areas, text, cross, row, key, .. } = scratch;
        let [_, item, context, both] = areas;
        let (own, item, context): (&mut [Slot], &[Slot], &[Slot]) = match area {
            Depends::Nothing | Depends::ItemAndContext => (both, item, context),
            Depends::Item => (item, &[], context),
            Depends::Context => (context, item, &[]),
        };
        let areas = Areas { constants: &self.constants, item: Source::Slots(item), context: Source::Slots(context) };
        (areas, own, Around { record, text, cross, row, key, memos: None, kept })
    }

    /// Writes the output of the record whose stages have been run.
    pub(crate) fn write_output(&self, scratch: &Scratch, out: &mut [f32]) {
        write_dense(self.output_of(scratch), out);
    }

    /// The output of the record whose stages have been run.
    fn output_of<'a>(&'a self, scratch: &'a Scratch) -> View<'a> {
        let slot = self.output.slot as usize;
        match self.output.area {
            Depends::Nothing => self.constants[slot].view(),
            area => scratch.areas[area as usize][slot].view(),
        }
    }

    /// What depends on the item alone.
    #[must_use]
    pub fn item_part(&self, item: &Map<String, Value>, scratch: &mut Scratch) -> ItemValues {
        let context = Context::default();
        ItemValues(self.part(Depends::Item, Record { item, context: &context }, scratch))
    }

    /// What depends on the context alone.
    #[must_use]
    pub fn context_part(&self, context: &Context, scratch: &mut Scratch) -> ContextValues {
        let item = Map::new();
        ContextValues(self.part(Depends::Context, Record { item: &item, context }, scratch))
    }

    fn part(&self, area: Depends, record: Record, scratch: &mut Scratch) -> Kept {
        scratch.fit(self);
        for stage in (0..self.stages.len()).filter(|stage| self.stages[*stage].area == area) {
            self.run_stage(stage, record, scratch, None);
        }
        Kept::of(self.fingerprint, &scratch.areas[area as usize], &self.exports[area as usize])
    }

    /// Computes the outputs of the candidates of one request into `out`, row-major `items x dim`. Sums over the features
    /// of the context that a cross needs are computed once for each feature of the items.
    ///
    /// # Errors
    /// [`PipelineError::OutputLength`], and [`PipelineError::ForeignValues`] for values of another plan.
    pub fn pairs<'a>(
        &self,
        items: impl ExactSizeIterator<Item = &'a ItemValues>,
        context: &ContextValues,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), PipelineError> {
        self.check_length(self.dim() * items.len(), out)?;
        if context.0.plan != self.fingerprint {
            return Err(PipelineError::ForeignValues);
        }
        scratch.fit(self);
        scratch.request += 1;
        scratch.memos.iter_mut().for_each(|memo| memo.begin(scratch.request));
        for (item, out) in items.zip(out.chunks_exact_mut(self.dim())) {
            if item.0.plan != self.fingerprint {
                return Err(PipelineError::ForeignValues);
            }
            self.pair(&item.0, &context.0, scratch, out);
        }
        Ok(())
    }

    fn pair(&self, item: &Kept, context: &Kept, scratch: &mut Scratch, out: &mut [f32]) {
        let (empty, nothing) = (Map::new(), Context::default());
        // The stages of both read no field.
        let record = Record { item: &empty, context: &nothing };
        let Scratch { areas, memos, text, cross, row, key, .. } = scratch;
        let [_, _, _, own] = areas;
        let areas = Areas { constants: &self.constants, item: Source::Kept(item), context: Source::Kept(context) };
        let mut around = Around { record, text, cross, row, key, memos: Some(memos), kept: None };
        for placed in self.stages.iter().filter(|placed| placed.area == Depends::ItemAndContext) {
            placed.run(areas, own, &mut around);
        }
        let output = match self.output.area {
            Depends::ItemAndContext => own[self.output.slot as usize].view(),
            _ => areas.view(self.output),
        };
        write_dense(output, out);
    }

    fn check_length(&self, expected: usize, out: &[f32]) -> Result<(), PipelineError> {
        if out.len() == expected {
            return Ok(());
        }
        Err(PipelineError::OutputLength { expected, received: out.len() })
    }
}
