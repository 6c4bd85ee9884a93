//! Training data: labelled pairs of a user and an item, and their grouping by user and by item.

use celeris_model::ModelError;
use celeris_model::observation::{WEIGHT_MAX, check_label};

use crate::error::RetrainError;

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
