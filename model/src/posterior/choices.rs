//! What the items that a user has taken say about the user, whatever their labels.
//!
//! A version may have a *choice vector* `y_j` for each item, the implicit factors of Koren (KDD
//! 2008, eq. 15). The prior mean of a user who has taken `n` items with choice vectors is then not
//! `w0`, but `w0 + p` with `p = n^-1/2 sum y_j`. With `A` and `w'` the posterior under the mean
//! `w0`, that under the mean `w0 + p` has the same `A` and the weights `w = w' + A^-1 Lambda p`:
//! labels are learnt as without choice vectors, and the shift is added.
//!
//! Examples therefore carry `Lambda y_j`, of which a state keeps the sum, and an observation costs
//! one more product with `A^-1`. With a half-life, sum and number decay as the rest does.

use crate::linear::Real;

/// The sum over the choice vectors of the items taken so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choices {
    /// `sum Lambda y_j`, length `dim`.
    sum: Vec<f64>,
    /// Number of items in the sum, as far as they have not decayed.
    count: f64,
}

impl Choices {
    /// The sum over no items.
    fn none(dim: usize) -> Self {
        Self { sum: vec![0.0; dim], count: 0.0 }
    }

    /// Adds an item to the sum, which begins with the first item that has a choice vector.
    pub(crate) fn add_to(sum: &mut Option<Self>, choice: &[f32], share: f64) {
        if !choice.is_empty() {
            sum.get_or_insert_with(|| Self::none(choice.len())).add(choice, share);
        }
    }

    /// Adds an item with this share of its weight; `choice` is its `Lambda y_j`.
    fn add(&mut self, choice: &[f32], share: f64) {
        for (sum, entry) in self.sum.iter_mut().zip(choice) {
            *sum += share * f64::from(*entry);
        }
        self.count += share;
    }

    /// Leaves this share of every item.
    pub(crate) fn fade(&mut self, retained: f64) {
        self.sum.iter_mut().for_each(|sum| *sum *= retained);
        self.count *= retained;
    }

    /// The factor of an item in `p`: `n^-1/2`.
    pub(crate) fn scale(&self) -> f64 {
        if self.count > 0.0 { self.count.sqrt().recip() } else { 0.0 }
    }

    /// `Lambda p`.
    fn pull(&self) -> impl Iterator<Item = f64> {
        let scale = self.scale();
        self.sum.iter().map(move |sum| scale * sum)
    }

    /// The number of items and the sum, for storage.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        std::iter::once(self.count).chain(self.sum.iter().copied())
    }

    /// From the output of [`Choices::numbers`]; `None` if there are none.
    pub(crate) fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let (count, sum) = numbers.split_first()?;
        Some(Self { sum: sum.to_vec(), count: *count })
    }

    /// Size on the heap and inline.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<f64>() * self.sum.capacity()
    }
}

/// `Lambda` times what choices and profile move a user's prior mean by.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'a> {
    pub(crate) choices: Option<&'a Choices>,
    pub(crate) profile: Option<&'a [f32]>,
}

impl Pull<'_> {
    /// Whether the prior mean stays where it is.
    pub(crate) fn is_none(self) -> bool {
        self.choices.is_none() && self.profile.is_none()
    }

    /// Writes the pull, or zeros if there is none, to `out`, length `dim`.
    pub(crate) fn write<T: Real>(self, out: &mut [T]) {
        match (self.choices, self.profile) {
            (None, None) => out.fill(T::ZERO),
            (Some(choices), None) => fill(out, choices.pull()),
            (None, Some(profile)) => fill(out, profile.iter().map(|entry| f64::from(*entry))),
            (Some(choices), Some(profile)) => {
                fill(out, choices.pull().zip(profile).map(|(choice, entry)| choice + f64::from(*entry)));
            }
        }
    }
}

fn fill<T: Real>(out: &mut [T], entries: impl Iterator<Item = f64>) {
    for (out, entry) in out.iter_mut().zip(entries) {
        *out = T::from_f64(entry);
    }
}
