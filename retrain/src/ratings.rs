//! Training data: labelled pairs of a user and an item, and their grouping by user and by item.

use celeris_model::observation::{WEIGHT_MAX, check_label};
use celeris_model::{LabelRange, ModelError};

use crate::error::RetrainError;

/// One label in this many is beyond the 1st percentile, and one beyond the 99th.
const TAIL_ONE_IN: usize = 100;

/// A labelled pair. Several labels of a pair are several ratings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rating {
    /// Index of the user, below [`Ratings::users`].
    pub user: u32,
    /// Index of the item, below [`Ratings::items`].
    pub item: u32,
    pub label: f32,
    /// Weight of the rating, as a number of repetitions; above zero.
    pub weight: f32,
}

/// Validated ratings.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratings {
    users: usize,
    items: usize,
    list: Vec<Rating>,
}

impl Ratings {
    /// Checks every rating against the counts of users and items.
    ///
    /// # Errors
    /// `NoRatings`, or the first rating with an index, label or weight out of range.
    pub fn new(users: usize, items: usize, list: Vec<Rating>) -> Result<Self, RetrainError> {
        if list.is_empty() {
            return Err(RetrainError::NoRatings);
        }
        for (row, rating) in list.iter().enumerate() {
            check_index(row, "user", rating.user, users)?;
            check_index(row, "item", rating.item, items)?;
            check_label(rating.label).map_err(|source| RetrainError::Rating { row, source })?;
            check_weight(rating.weight).map_err(|source| RetrainError::Rating { row, source })?;
        }
        Ok(Self { users, items, list })
    }

    /// The ratings selected by `chosen`, over the same users and items; possibly empty.
    pub(crate) fn filtered(&self, chosen: impl Fn(usize) -> bool) -> Self {
        let picked = self.list.iter().enumerate().filter(|(row, _)| chosen(*row)).map(|(_, rating)| *rating);
        Self { users: self.users, items: self.items, list: picked.collect() }
    }

    /// Number of users, with or without ratings.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users
    }

    /// Number of items, with or without ratings.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items
    }

    /// The ratings in their original order.
    #[must_use]
    pub fn list(&self) -> &[Rating] {
        &self.list
    }

    /// Number of ratings of each item.
    #[must_use]
    pub fn observed(&self) -> Vec<u32> {
        let mut observed = vec![0_u32; self.items];
        for rating in &self.list {
            let count = &mut observed[rating.item as usize];
            *count = count.saturating_add(1);
        }
        observed
    }

    /// Weighted mean and variance of the labels.
    pub(crate) fn label_moments(&self) -> (f64, f64) {
        let total: f64 = self.list.iter().map(|r| f64::from(r.weight)).sum();
        let mean = self.list.iter().map(|r| f64::from(r.weight) * f64::from(r.label)).sum::<f64>() / total;
        let square = |r: &Rating| f64::from(r.weight) * (f64::from(r.label) - mean).powi(2);
        (mean, self.list.iter().map(square).sum::<f64>() / total)
    }

    /// With outlying labels moved to the nearest usual one: to the 1st percentile less the distance
    /// to the 99th, or to the 99th percentile plus that distance. If the percentiles are equal, no
    /// label is usual, and none is moved.
    #[must_use]
    pub(crate) fn without_outliers(mut self) -> Self {
        let Some(usual) = self.usual_labels() else { return self };
        for rating in &mut self.list {
            rating.label = usual.nearest(rating.label);
        }
        self
    }

    fn usual_labels(&self) -> Option<LabelRange> {
        let mut labels: Vec<f32> = self.list.iter().map(|rating| rating.label).collect();
        let tail = labels.len() / TAIL_ONE_IN;
        let last = labels.len() - 1 - tail;
        let low = *labels.select_nth_unstable_by(tail, f32::total_cmp).1;
        let high = *labels.select_nth_unstable_by(last, f32::total_cmp).1;
        LabelRange::new(low, high).ok().map(LabelRange::widened)
    }

    /// The smallest and the largest label.
    #[must_use]
    pub fn label_range(&self) -> (f32, f32) {
        self.list
            .iter()
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), r| (low.min(r.label), high.max(r.label)))
    }
}

fn check_index(row: usize, what: &'static str, index: u32, count: usize) -> Result<(), RetrainError> {
    if (index as usize) < count { Ok(()) } else { Err(RetrainError::IndexOutOfRange { row, what, index, count }) }
}

/// Checks one weight.
///
/// # Errors
/// [`ModelError::NonFinite`] or [`ModelError::OutOfRange`].
pub(crate) fn check_weight(weight: f32) -> Result<(), ModelError> {
    if !weight.is_finite() {
        return Err(ModelError::NonFinite { what: "weight" });
    }
    if weight <= 0.0 || weight > WEIGHT_MAX {
        let range = "above 0 and at most 1e6";
        return Err(ModelError::OutOfRange { what: "weight", range, value: f64::from(weight) });
    }
    Ok(())
}

/// One entry of a [`Rows`] row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    /// The item in a user's row, the user in an item's row.
    pub(crate) other: u32,
    pub(crate) label: f32,
    pub(crate) weight: f32,
}

/// Ratings grouped by user or by item (compressed sparse rows), each row in the original order.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    starts: Vec<usize>,
    entries: Vec<Entry>,
}

impl Rows {
    pub(crate) fn by_user(ratings: &Ratings) -> Self {
        Self::grouped(ratings.users, &ratings.list, |r| (r.user, r.item))
    }

    pub(crate) fn by_item(ratings: &Ratings) -> Self {
        Self::grouped(ratings.items, &ratings.list, |r| (r.item, r.user))
    }

    pub(crate) fn grouped(count: usize, list: &[Rating], sides: impl Fn(&Rating) -> (u32, u32)) -> Self {
        let mut starts = vec![0_usize; count + 1];
        for rating in list {
            starts[sides(rating).0 as usize + 1] += 1;
        }
        for row in 0..count {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut entries = vec![Entry { other: 0, label: 0.0, weight: 0.0 }; list.len()];
        for rating in list {
            let (own, other) = sides(rating);
            entries[next[own as usize]] = Entry { other, label: rating.label, weight: rating.weight };
            next[own as usize] += 1;
        }
        Self { starts, entries }
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn row(&self, index: usize) -> &[Entry] {
        &self.entries[self.starts[index]..self.starts[index + 1]]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn cleaned(labels: &[f32]) -> Vec<f32> {
        let list = labels.iter().map(|label| Rating { user: 0, item: 0, label: *label, weight: 1.0 }).collect();
        Ratings::new(1, 1, list).unwrap().without_outliers().list().iter().map(|rating| rating.label).collect()
    }

    #[test]
    fn only_labels_far_from_the_usual_ones_are_moved() {
        let stars: Vec<f32> = (0..1000_u16).map(|n| f32::from(n % 5) + 1.0).collect();
        assert_eq!(cleaned(&stars), stars);
        let mut wrong = stars.clone();
        (wrong[7], wrong[500], wrong[900]) = (500.0, -1e6, 8.5);
        let mut moved = wrong.clone();
        (moved[7], moved[500]) = (9.0, -3.0);
        assert_eq!(cleaned(&wrong), moved);
        for few in [&[4.0][..], &[1.0, 5.0], &[3.0, 3.0, 500.0], &[1.0; 300]] {
            assert_eq!(cleaned(few), few);
        }
    }
}
