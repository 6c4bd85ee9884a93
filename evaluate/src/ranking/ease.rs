//! EASE, the linear autoencoder without hidden layers (Steck 2019, "Embarrassingly Shallow
//! Autoencoders for Sparse Data", eq. 8), in closed form.
//!
//! With `X` the matrix of users and items, 1 where the user has taken the item, and
//! `P = (X^T X + lambda I)^-1`, the item weights are `B_ij = -P_ij / P_jj` off the diagonal and 0 on
//! it, and a user's scores are their row of `X B`. If there are fewer users than items, the same
//! scores come from the smaller `K = (X X^T + lambda I)^-1`, since
//! `P = (I - X^T K X) / lambda` (Woodbury).

use anyhow::Context as _;
use celeris_model::preference::is_taken;
use celeris_retrain::Rating;
use nalgebra::DMatrix;

/// Largest number of users or items, whichever are fewer: the inverse takes its third power in time,
/// half a minute on one core.
const SIDE_MAX: usize = 4096;

/// What users have taken: the items of each user and the users of each item, each once.
struct Pairs {
    by_user: Vec<Vec<usize>>,
    by_item: Vec<Vec<usize>>,
}

impl Pairs {
    fn of(items: usize, taken: &[Vec<Rating>]) -> Self {
        let mut by_item = vec![Vec::new(); items];
        let mut by_user = Vec::with_capacity(taken.len());
        for (user, rows) in taken.iter().enumerate() {
            let mut of_user: Vec<usize> =
                rows.iter().filter(|row| is_taken(row.label)).map(|row| row.item as usize).collect();
            of_user.sort_unstable();
            of_user.dedup();
            of_user.iter().for_each(|item| by_item[*item].push(user));
            by_user.push(of_user);
        }
        Self { by_user, by_item }
    }
}

/// `R R^T + lambda I` of the 0-1 matrix whose row `r` has ones in `rows[r]`; `columns` is its
/// transpose.
fn gram(rows: &[Vec<usize>], columns: &[Vec<usize>], lambda: f64) -> DMatrix<f64> {
    let mut gram = DMatrix::from_diagonal_element(rows.len(), rows.len(), lambda);
    for column in columns {
        for one in column {
            column.iter().for_each(|other| gram[(*one, *other)] += 1.0);
        }
    }
    gram
}

/// The model of one `lambda`.
pub(super) struct Ease {
    pairs: Pairs,
    form: Form,
}

enum Form {
    /// `K`, and `(X^T K X)_jj` of each item.
    ByUsers { inverse: DMatrix<f64>, diagonal: Vec<f64>, lambda: f64 },
    /// `P`.
    ByItems { inverse: DMatrix<f64> },
}

impl Ease {
    /// Whether the closed form is solved for so many users and items: the smaller number is inverted.
    pub(super) fn is_feasible(users: usize, items: usize) -> bool {
        users.min(items) <= SIDE_MAX
    }

    /// Solves for what users have taken, by user; `lambda` is above 0.
    ///
    /// # Errors
    /// If the matrix is numerically singular.
    pub(super) fn solve(items: usize, taken: &[Vec<Rating>], lambda: f64) -> anyhow::Result<Self> {
        let pairs = Pairs::of(items, taken);
        let of_users = pairs.by_user.len() < items;
        let (rows, columns) =
            if of_users { (&pairs.by_user, &pairs.by_item) } else { (&pairs.by_item, &pairs.by_user) };
        let factors = gram(rows, columns, lambda).cholesky().context("EASE: lambda is too small for these data")?;
        let inverse = factors.inverse();
        let form = if of_users {
            let quadratic = |users: &Vec<usize>| -> f64 {
                users.iter().map(|one| users.iter().map(|other| inverse[(*one, *other)]).sum::<f64>()).sum()
            };
            let diagonal = pairs.by_item.iter().map(quadratic).collect();
            Form::ByUsers { inverse, diagonal, lambda }
        } else {
            Form::ByItems { inverse }
        };
        Ok(Self { pairs, form })
    }

    /// The scores of all items for a user.
    pub(super) fn scores(&self, user: u32) -> Vec<f32> {
        let user = user as usize;
        let mut scores = vec![0.0; self.pairs.by_item.len()];
        match &self.form {
            Form::ByUsers { inverse, diagonal, lambda } => {
                // With V = X X^T K X = X - lambda K X, the scores are x - (x - v) / (1 - diagonal).
                let taken = &self.pairs.by_user[user];
                for (other, items) in self.pairs.by_user.iter().enumerate() {
                    let weight = lambda * inverse[(user, other)];
                    items.iter().for_each(|item| scores[*item] -= weight / (1.0 - diagonal[*item]));
                }
                taken.iter().for_each(|item| scores[*item] += 1.0);
            }
            Form::ByItems { inverse } => {
                for taken in &self.pairs.by_user[user] {
                    for (item, score) in scores.iter_mut().enumerate() {
                        if item != *taken {
                            *score -= inverse[(*taken, item)] / inverse[(item, item)];
                        }
                    }
                }
            }
        }
        scores.into_iter().map(|score| score as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    fn taken(rows: &[&[u32]]) -> Vec<Vec<Rating>> {
        let of_user = |(user, items): (usize, &&[u32])| {
            items.iter().map(|item| Rating { user: user as u32, item: *item, label: 4.0, weight: 1.0 }).collect()
        };
        rows.iter().enumerate().map(of_user).collect()
    }

    /// The scores of NumPy 2.4.6:
    ///
    ///     P = numpy.linalg.inv(X.T @ X + lam * numpy.eye(items))
    ///     B = -P / numpy.diag(P); numpy.fill_diagonal(B, 0); X @ B
    fn assert_scores(rows: &[&[u32]], (items, lambda): (usize, f64), expected: &[&[f64]]) {
        let ease = Ease::solve(items, &taken(rows), lambda).unwrap();
        for (user, expected) in (0..).zip(expected) {
            for (found, expected) in ease.scores(user).into_iter().zip(*expected) {
                // Scores are single precision.
                assert!((f64::from(found) - expected).abs() < 1e-6, "{found} {expected} of user {user}");
            }
        }
    }

    #[test]
    fn with_fewer_users_than_items_scores_are_those_of_numpy() {
        let rows: [&[u32]; 3] = [&[0, 1, 2, 5], &[1, 2, 3], &[0, 4, 5]];
        let expected: [&[f64]; 3] = [
            &[0.846715328, 0.846715328, 0.846715328, 0.227642276, 0.227642276, 0.846715328, 0.000000000],
            &[0.087591241, 0.861313869, 0.861313869, 0.617886179, -0.130081301, 0.087591241, 0.000000000],
            &[0.861313869, 0.087591241, 0.087591241, -0.130081301, 0.617886179, 0.861313869, 0.000000000],
        ];
        assert_scores(&rows, (7, 0.5), &expected);
    }

    #[test]
    fn with_more_users_than_items_scores_are_those_of_numpy() {
        let rows: [&[u32]; 5] = [&[0, 1], &[1, 2, 3], &[0, 3], &[2, 3], &[0, 1, 2]];
        let expected: [&[f64]; 5] = [
            &[0.375000000, 0.333333333, 0.333333333, 0.125000000],
            &[0.500000000, 0.333333333, 0.666666667, 0.375000000],
            &[0.125000000, 0.333333333, 0.333333333, 0.125000000],
            &[0.125000000, 0.333333333, 0.333333333, 0.375000000],
            &[0.375000000, 0.666666667, 0.333333333, 0.500000000],
        ];
        assert_scores(&rows, (4, 2.0), &expected);
    }
}
