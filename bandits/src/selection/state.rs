//! The state of a selection: sums of losses by group, lane and block.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::selection::blocks::{Blocks, Clock, HALF_LIVES_KNOWN, HalfLifeRecords};
use crate::selection::fixed::Fixed;

/// Sums of one arm's outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArmSums {
    /// Number of outcomes with a known loss of the arm.
    pub outcomes: u64,
    /// The sum of these losses.
    pub loss: Fixed,
    /// The estimated sum of the arm's losses over all outcomes.
    pub estimated: Fixed,
}

impl ArmSums {
    fn add(&mut self, other: Self) {
        self.outcomes += other.outcomes;
        self.loss += other.loss;
        self.estimated += other.estimated;
    }
}

/// The sums of one arm, with older outcomes weighted less.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FadedArm {
    /// Number of outcomes with a known loss.
    pub outcomes: f64,
    /// The sum of these losses.
    pub loss: f64,
    /// The estimated sum of its losses over all outcomes.
    pub estimated: f64,
}

impl FadedArm {
    /// The mean of the known losses; `None` if there are none.
    #[must_use]
    pub fn mean_loss(&self) -> Option<f64> {
        (self.outcomes > 0.0).then(|| self.loss / self.outcomes)
    }
}

/// The sums of all arms, with older outcomes weighted less.
#[derive(Debug, Clone, PartialEq)]
pub struct Faded {
    /// In the order of the arms.
    pub arms: Vec<FadedArm>,
}

impl Faded {
    /// The sums of `arms` arms without outcomes.
    #[must_use]
    pub fn nothing(arms: usize) -> Self {
        Self { arms: vec![FadedArm::default(); arms] }
    }

    /// Number of outcomes, if each has one arm.
    #[must_use]
    pub fn outcomes(&self) -> f64 {
        self.arms.iter().map(|arm| arm.outcomes).sum()
    }
}

/// Position of an outcome in the log, and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub lane: usize,
    /// Its number in the lane, from 1.
    pub position: u64,
    /// The group of sums, from 0: a segment.
    pub group: usize,
}

/// The sums of a run of records of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    /// Its number in the lane, from 0.
    index: u64,
    /// `groups x arms`.
    sums: Box<[ArmSums]>,
}

/// The non-empty blocks of one lane, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Lane {
    /// The lane's last record.
    clock: u64,
    /// Records in a block.
    length: u64,
    blocks: VecDeque<Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub arms: usize,
    /// Groups of sums that share the lanes: one, or one for each segment.
    pub groups: usize,
    /// Lanes of the log.
    pub lanes: usize,
    /// Half-life of the sums; `None` if they do not fade.
    pub half_life: Option<HalfLifeRecords>,
}

/// Sums of losses, as a function of places and outcomes, independent of the order in which they
/// were added.
#[derive(Debug, Clone)]
pub struct State {
    layout: Layout,
    blocks: Blocks,
    lanes: Vec<Lane>,
    total: u64,
}

impl State {
    /// A state without outcomes.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        let blocks = Blocks::new(layout.half_life, layout.lanes);
        let lane = Lane { clock: 0, length: blocks.length(0), blocks: VecDeque::new() };
        Self { layout, blocks, lanes: vec![lane; layout.lanes], total: 0 }
    }

    /// A state with lanes that end at `ends`, and the [`State::sums`] of a state with the same
    /// layout and ends, to which it is equal; `None` if a place is not in the layout.
    #[must_use]
    pub fn with_sums(
        layout: Layout,
        ends: &[u64],
        sums: impl IntoIterator<Item = (Place, usize, ArmSums)>,
    ) -> Option<Self> {
        let mut state = Self::new(layout);
        if ends.len() != layout.lanes {
            return None;
        }
        state.advance(ends);
        for (place, arm, sums) in sums {
            let end = *ends.get(place.lane)?;
            if !(1..=end).contains(&place.position) || place.group >= layout.groups || arm >= layout.arms {
                return None;
            }
            state.add(place, &[(arm, sums)]);
        }
        Some(state)
    }

    /// All non-zero sums: the first record of their block with their group, and their arm.
    pub fn sums(&self) -> impl Iterator<Item = (Place, usize, ArmSums)> {
        let arms = self.layout.arms;
        self.lanes.iter().enumerate().flat_map(move |(index, lane)| {
            lane.blocks.iter().flat_map(move |block| {
                let position = block.index * lane.length + 1;
                let sums = block.sums.iter().enumerate().filter(|(_, sums)| **sums != ArmSums::default());
                sums.map(move |(at, sums)| (Place { lane: index, position, group: at / arms }, at % arms, *sums))
            })
        })
    }

    /// The last known record of a lane.
    #[must_use]
    pub fn clock(&self, lane: usize) -> u64 {
        self.lanes[lane].clock
    }

    /// Extends the lanes to these records: `ends` has one entry for each lane, none lower than
    /// before.
    pub fn advance(&mut self, ends: &[u64]) {
        debug_assert_eq!(ends.len(), self.lanes.len());
        for (lane, end) in self.lanes.iter_mut().zip(ends) {
            debug_assert!(*end >= lane.clock, "a log does not shrink");
            lane.clock = *end;
        }
        self.total = ends.iter().sum();
        for index in 0..self.lanes.len() {
            self.drop_dead(index);
            self.lengthen(index);
        }
    }

    fn clock_of(&self, lane: usize) -> Clock {
        Clock { lane: self.lanes[lane].clock, total: self.total }
    }

    fn drop_dead(&mut self, lane: usize) {
        let clock = self.clock_of(lane);
        let Lane { length, blocks, .. } = &mut self.lanes[lane];
        while let Some(first) = blocks.front()
            && !self.blocks.is_live((first.index + 1) * *length, clock)
        {
            blocks.pop_front();
        }
    }

    /// Joins adjacent blocks until they have the length for the lane's current end.
    fn lengthen(&mut self, lane: usize) {
        let Lane { clock, length, blocks } = &mut self.lanes[lane];
        let wanted = self.blocks.length(*clock);
        if *length == wanted {
            return;
        }
        debug_assert!(wanted.is_multiple_of(*length), "blocks are only joined");
        let joined = wanted / *length;
        let old = std::mem::take(blocks);
        for block in old {
            let index = block.index / joined;
            match blocks.back_mut().filter(|last| last.index == index) {
                Some(last) => last.sums.iter_mut().zip(&block.sums).for_each(|(sum, added)| sum.add(*added)),
                None => blocks.push_back(Block { index, ..block }),
            }
        }
        *length = wanted;
    }

    /// Whether a record is in a block that still counts.
    #[must_use]
    pub fn counts(&self, lane: usize, position: u64) -> bool {
        let last = self.span(lane, position).1;
        self.blocks.is_live(last, self.clock_of(lane))
    }

    /// The first record of a lane that counts.
    #[must_use]
    pub fn first_counting(&self, lane: usize) -> u64 {
        self.blocks.first_live(self.clock_of(lane))
    }

    /// The first and last record of the block that contains a record.
    #[must_use]
    pub fn span(&self, lane: usize, position: u64) -> (u64, u64) {
        let length = self.lanes[lane].length;
        let index = position.saturating_sub(1) / length;
        (index * length + 1, (index + 1) * length)
    }

    /// Removes the block of a record, so that it can be read again.
    pub fn clear(&mut self, lane: usize, position: u64) {
        let index = (self.span(lane, position).0 - 1) / self.lanes[lane].length;
        self.lanes[lane].blocks.retain(|block| block.index != index);
    }

    /// Adds an outcome's sums to the arms. The caller guarantees that the lane has been advanced to
    /// the place.
    pub fn add(&mut self, place: Place, sums: &[(usize, ArmSums)]) {
        let Place { lane, position, group } = place;
        debug_assert!((1..=self.lanes[lane].clock).contains(&position) && group < self.layout.groups);
        if sums.is_empty() || !self.counts(lane, position) {
            return;
        }
        let index = (position - 1) / self.lanes[lane].length;
        let Lane { blocks, .. } = &mut self.lanes[lane];
        let found = blocks.binary_search_by_key(&index, |block| block.index);
        let at = found.unwrap_or_else(|at| {
            let empty = vec![ArmSums::default(); self.layout.groups * self.layout.arms].into_boxed_slice();
            blocks.insert(at, Block { index, sums: empty });
            at
        });
        for (arm, added) in sums {
            blocks[at].sums[group * self.layout.arms + arm].add(*added);
        }
    }

    /// The sums of a group, with older outcomes weighted less.
    #[must_use]
    pub fn faded(&self, group: usize) -> Faded {
        self.faded_before(group, 0)
    }

    /// [`State::faded`] as of `records` records earlier, to the accuracy of blocks. If sums fade,
    /// it is available back to [`State::known_back`] records.
    #[must_use]
    pub fn faded_before(&self, group: usize, records: u64) -> Faded {
        let mut faded = Faded::nothing(self.layout.arms);
        for (index, lane) in self.lanes.iter().enumerate() {
            let now = self.clock_of(index);
            // All lanes go back by the same share of their records.
            let back = u128::from(lane.clock) * u128::from(records.min(self.total)) / u128::from(self.total.max(1));
            let clock = lane.clock - u64::try_from(back).unwrap_or(lane.clock);
            for block in &lane.blocks {
                let last = (block.index + 1) * lane.length;
                if records > 0 && last > clock {
                    break;
                }
                let share =
                    self.blocks.retained(last, Clock { lane: clock, total: now.total - records.min(now.total) });
                let sums = &block.sums[group * self.layout.arms..][..self.layout.arms];
                for (arm, sums) in faded.arms.iter_mut().zip(sums) {
                    arm.outcomes += share * sums.outcomes as f64;
                    arm.loss += share * sums.loss.value();
                    arm.estimated += share * sums.estimated.value();
                }
            }
        }
        faded
    }

    /// How many records back the weights can be computed.
    #[must_use]
    pub fn known_back(&self) -> u64 {
        let known = self.layout.half_life.map_or(u64::MAX, |half_life| HALF_LIVES_KNOWN * half_life.records());
        known.min(self.total)
    }

    /// Number of records of all lanes.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.total
    }

    /// The unfaded sums of a group in one lane.
    #[must_use]
    pub fn in_lane(&self, group: usize, lane: usize) -> Vec<ArmSums> {
        let mut sums = vec![ArmSums::default(); self.layout.arms];
        for block in &self.lanes[lane].blocks {
            let added = &block.sums[group * self.layout.arms..][..self.layout.arms];
            sums.iter_mut().zip(added).for_each(|(sum, added)| sum.add(*added));
        }
        sums
    }

    /// All non-zero sums of a group with their places; equal if and only if the sums are equal to
    /// the bit.
    #[must_use]
    pub fn canonical_bytes(&self, group: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            let mut push = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
            push(lane.clock);
            for block in &lane.blocks {
                let sums = block.sums[group * self.layout.arms..][..self.layout.arms].iter().enumerate();
                for (arm, sums) in sums.filter(|(_, sums)| **sums != ArmSums::default()) {
                    push(index as u64);
                    push(block.index);
                    push(arm as u64);
                    push(sums.outcomes);
                    push(sums.loss.units().cast_unsigned());
                    push(sums.estimated.units().cast_unsigned());
                }
            }
        }
        bytes
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let block = size_of::<Block>() + self.layout.groups * self.layout.arms * size_of::<ArmSums>();
        let blocks: usize = self.lanes.iter().map(|lane| lane.blocks.len()).sum();
        size_of::<Self>() + self.lanes.len() * size_of::<Lane>() + blocks * block
    }
}
