//! A thread that runs stages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::queues::{Queues, Task};
use crate::operators::{Record, TreeRows};
use crate::plan::{Chunk, Scratch};
use crate::stages::SubPlans;

/// Number of buffers that an executor keeps for later chunks.
const POOL_MAX: usize = 256;

/// Runs stages until the queues are closed.
pub(super) fn run(queues: &Queues, kept: Option<&SubPlans>) {
    let (mut pool, mut rows): (Vec<Scratch>, _) = (Vec::new(), TreeRows::default());
    while let Some(mut task) = queues.next() {
        // Buffers are taken when the first stage begins, and returned after the last one.
        while task.scratches.len() < task.range.len() {
            task.scratches.push(pool.pop().unwrap_or_default());
        }
        // A defect in an operator ends its batch, not the executor: the task is dropped, and its buffers with it.
        let outcome = catch_unwind(AssertUnwindSafe(|| task.run_stage(&mut rows, kept)));
        let Ok(is_done) = outcome else { continue };
        if is_done {
            let values = task.values();
            // The caller may have dropped its ticket.
            let _ = task.results.send((task.range.start, values));
            task.scratches.truncate(POOL_MAX.saturating_sub(pool.len()));
            pool.append(&mut task.scratches);
        } else {
            queues.go_on(task);
        }
    }
}

impl Task {
    /// Runs the next stage of all records; returns whether it was the last one.
    fn run_stage(&mut self, rows: &mut TreeRows, kept: Option<&SubPlans>) -> bool {
        if self.stage < self.plan.stages() {
            let records = self.records[self.range.clone()].iter();
            let records = records.map(|record| Record { item: &record.item, context: &record.context });
            self.plan.run_stage_of_all(self.stage, Chunk { records, scratches: &mut self.scratches, rows }, kept);
            self.stage += 1;
        }
        self.stage >= self.plan.stages()
    }

    /// The outputs of all records, row-major.
    fn values(&self) -> Vec<f32> {
        let dim = self.plan.dim();
        let mut values = vec![0.0; self.range.len() * dim];
        for (scratch, out) in self.scratches.iter().zip(values.chunks_exact_mut(dim)) {
            self.plan.write_output(scratch, out);
        }
        values
    }
}
