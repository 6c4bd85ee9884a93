//! Mean losses over windows by count and by time.

use std::collections::VecDeque;

use celeris_model::Timestamp;

/// Mean of losses and their number.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MeanLoss {
    /// The mean; 0 if there are no observations.
    pub mean: f64,
    /// Number of observations.
    pub count: u64,
}

/// Running mean in constant memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Running {
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Running {
    pub(crate) fn add(&mut self, loss: f64) {
        self.count += 1;
        self.sum += loss;
    }

    pub(crate) fn mean(self) -> Option<MeanLoss> {
        (self.count > 0).then(|| MeanLoss { mean: self.sum / self.count as f64, count: self.count })
    }
}

/// The latest losses, oldest first, up to a fixed capacity.
#[derive(Debug, Clone)]
pub(crate) struct Latest {
    losses: VecDeque<f32>,
    capacity: usize,
}

impl Latest {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { losses: VecDeque::new(), capacity }
    }

    pub(crate) fn add(&mut self, loss: f64) {
        if self.losses.len() == self.capacity {
            self.losses.pop_front();
        }
        // Squared labels reach 1e12, which fits f32; a mean of thousands needs no more digits of
        // each.
        self.losses.push_back(loss as f32);
    }

    /// Mean of the latest `last` losses, or of all if there are fewer. Summed on every call, so
    /// that no rounding error accumulates.
    pub(crate) fn mean(&self, last: usize) -> Option<MeanLoss> {
        let skipped = self.losses.len().saturating_sub(last);
        let mut running = Running::default();
        self.losses.iter().skip(skipped).for_each(|loss| running.add(f64::from(*loss)));
        running.mean()
    }

    pub(crate) fn clear(&mut self) {
        self.losses.clear();
    }
}

/// Losses of the latest period, in slots: the window advances one slot at a time.
#[derive(Debug, Clone)]
pub(crate) struct Lately {
    slot_ms: i64,
    /// The slot with absolute number `n` is stored at `n` modulo their number; an entry with
    /// another number is empty.
    slots: Vec<(i64, Running)>,
}

impl Lately {
    /// A window of `slots` slots of `slot_ms` milliseconds each.
    pub(crate) fn new(slot_ms: i64, slots: usize) -> Self {
        Self { slot_ms, slots: vec![(i64::MIN, Running::default()); slots] }
    }

    /// Adds the loss of an observation at time `at`. A time in the future counts as `now`; a time
    /// before the window is ignored.
    pub(crate) fn add(&mut self, at: Timestamp, now: Timestamp, loss: f64) {
        let slot = at.0.min(now.0).div_euclid(self.slot_ms);
        if !self.covers(slot, now) {
            return;
        }
        let place = self.place(slot);
        let (number, running) = &mut self.slots[place];
        if *number != slot {
            (*number, *running) = (slot, Running::default());
        }
        running.add(loss);
    }

    pub(crate) fn mean(&self, now: Timestamp) -> Option<MeanLoss> {
        let covered = self.slots.iter().filter(|(slot, _)| self.covers(*slot, now));
        let total = covered.fold(Running::default(), |total, (_, slot)| Running {
            count: total.count + slot.count,
            sum: total.sum + slot.sum,
        });
        total.mean()
    }

    fn covers(&self, slot: i64, now: Timestamp) -> bool {
        let newest = now.0.div_euclid(self.slot_ms);
        slot <= newest && slot > newest.saturating_sub(self.slots.len() as i64)
    }

    fn place(&self, slot: i64) -> usize {
        usize::try_from(slot.rem_euclid(self.slots.len() as i64)).expect("a remainder below a length")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_window_by_count_holds_the_latest() {
        let mut latest = Latest::new(4);
        assert_eq!(latest.mean(4), None);
        for loss in 1..=6 {
            latest.add(f64::from(loss));
        }
        assert_eq!(latest.mean(10), Some(MeanLoss { mean: 4.5, count: 4 }));
        assert_eq!(latest.mean(2), Some(MeanLoss { mean: 5.5, count: 2 }));
    }

    #[test]
    fn a_window_by_time_drops_older_losses_and_clamps_future_times() {
        let mut lately = Lately::new(60_000, 60);
        let minute = |minute: i64| Timestamp(minute * 60_000 + 5);
        lately.add(minute(100), minute(100), 1.0);
        lately.add(minute(900), minute(130), 3.0);
        lately.add(minute(10), minute(130), 100.0);
        assert_eq!(lately.mean(minute(130)), Some(MeanLoss { mean: 2.0, count: 2 }));
        assert_eq!(lately.mean(minute(160)), Some(MeanLoss { mean: 3.0, count: 1 }), "the first hour is over");
        assert_eq!(lately.mean(minute(1000)), None);
        lately.add(Timestamp(i64::MIN), minute(1000), 1.0);
        assert_eq!(lately.mean(minute(1000)), None, "any timestamp from a client is accepted");
        // A slot that is reused starts empty.
        lately.add(minute(190), minute(190), 7.0);
        assert_eq!(lately.mean(minute(190)).unwrap().mean, 7.0);
    }
}
