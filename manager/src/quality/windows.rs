//! Means of losses over windows: the latest so many, and those of the latest time.

use std::collections::VecDeque;

use celeris_model::Timestamp;

/// The longest window by count.
pub const WINDOW_MAX: usize = 10_000;

/// A mean of losses, and over how many it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MeanLoss {
    /// The mean; 0 where the count is.
    pub mean: f64,
    /// Over how many observations.
    pub count: u64,
}

/// A running mean in constant space.
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

/// The latest losses, oldest first, at most a capacity of them.
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
        // Squared labels reach 1e12, which f32 holds; a mean of thousands needs no more digits of each.
        self.losses.push_back(loss as f32);
    }

    /// The mean of the latest `last`, or of as many as there are; summed anew, so that nothing adds up over time.
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

/// The losses of the latest stretch of time, in slots: the window moves by a slot at a time.
#[derive(Debug, Clone)]
pub(crate) struct Lately {
    slot_ms: i64,
    /// Slot `n` of all time lies at `n` modulo their number; one of another round is empty.
    slots: Vec<(i64, Running)>,
}

impl Lately {
    /// A window of `slots` slots of `slot_ms` milliseconds each.
    pub(crate) fn new(slot_ms: i64, slots: usize) -> Self {
        Self { slot_ms, slots: vec![(i64::MIN, Running::default()); slots] }
    }

    /// Takes in the loss of an observation of time `at`; a time to come is taken for `now`, and what is older than the
    /// window is none of it.
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
    fn a_window_by_time_forgets_what_is_older_and_takes_no_future() {
        let mut lately = Lately::new(60_000, 60);
        let minute = |minute: i64| Timestamp(minute * 60_000 + 5);
        lately.add(minute(100), minute(100), 1.0);
        lately.add(minute(900), minute(130), 3.0);
        lately.add(minute(10), minute(130), 100.0);
        assert_eq!(lately.mean(minute(130)), Some(MeanLoss { mean: 2.0, count: 2 }));
        assert_eq!(lately.mean(minute(160)), Some(MeanLoss { mean: 3.0, count: 1 }), "the first hour is over");
        assert_eq!(lately.mean(minute(1000)), None);
        lately.add(Timestamp(i64::MIN), minute(1000), 1.0);
        assert_eq!(lately.mean(minute(1000)), None, "any time a client sends is a time");
        // A slot that is used anew begins empty.
        lately.add(minute(190), minute(190), 7.0);
        assert_eq!(lately.mean(minute(190)).unwrap().mean, 7.0);
    }
}
