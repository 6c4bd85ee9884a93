//! Random orders of each user's ratings, cut into three parts: what the features are trained on,
//! what users learn later, and what is predicted.

use celeris_retrain::Rating;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The ratings of one order, by user.
pub(crate) struct Parts {
    pub(crate) first: Vec<Vec<Rating>>,
    pub(crate) then: Vec<Vec<Rating>>,
    pub(crate) tested: Vec<Vec<Rating>>,
}

/// Which random order is drawn: each number from a separate stream of the seeded generator.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) number: u64,
}

impl Parts {
    /// The parts of the given order. `cut` returns the sizes of a user's first two parts for their
    /// number of ratings, or `None` to exclude the user.
    pub(crate) fn of(rows: &[Vec<Rating>], cut: impl Fn(usize) -> Option<(usize, usize)>, order: Order) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(order.seed);
        random.set_stream(order.number);
        let mut parts = Self { first: Vec::new(), then: Vec::new(), tested: Vec::new() };
        for row in rows {
            let mut row = row.clone();
            row.shuffle(&mut random);
            let (first, then) = cut(row.len()).unwrap_or((0, 0));
            let tested = if first > 0 { row.split_off(first + then) } else { Vec::new() };
            row.truncate(first + then);
            parts.then.push(row.split_off(first));
            parts.first.push(row);
            parts.tested.push(tested);
        }
        parts
    }

    /// The first two parts.
    pub(crate) fn learnt(&self) -> Vec<Vec<Rating>> {
        self.first.iter().zip(&self.then).map(|(first, then)| [first.as_slice(), then].concat()).collect()
    }

    /// Number of ratings of each part.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        [&self.first, &self.then, &self.tested].map(|rows| rows.iter().map(Vec::len).sum())
    }
}
