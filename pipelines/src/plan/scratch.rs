//! Memory of a running plan.

use super::{AREAS, Plan};
use crate::graph::Depends;
use crate::operators::{CrossScratch, Memo};
use crate::text::TextScratch;
use crate::values::Slot;

/// Buffers for the values of one record. They serve one plan after the other and grow to what the largest needs, so that
/// a run in the steady state allocates nothing. A thread keeps one; executors keep a pool.
#[derive(Debug, Clone, Default)]
pub struct Scratch {
    /// Slots by area.
    pub(super) areas: [Vec<Slot>; AREAS],
    /// For each slot of the values of item and context: sums of a cross that candidates share.
    pub(super) memos: Vec<Memo>,
    /// Counts the requests whose sums the memos hold.
    pub(super) request: u64,
    pub(super) text: TextScratch,
    pub(super) cross: CrossScratch,
    pub(super) row: Vec<f32>,
    pub(super) key: Vec<u8>,
}

impl Scratch {
    /// Has at least the slots that the plan needs.
    pub(super) fn fit(&mut self, plan: &Plan) {
        for (area, slots) in self.areas.iter_mut().zip(plan.slots) {
            if area.len() < slots {
                area.resize_with(slots, Slot::default);
            }
        }
        let pairs = plan.slots[Depends::ItemAndContext as usize];
        if self.memos.len() < pairs {
            self.memos.resize_with(pairs, Memo::default);
        }
    }

    /// Memory of the slots, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.areas.iter().flatten().map(Slot::bytes).sum::<usize>()
    }
}
