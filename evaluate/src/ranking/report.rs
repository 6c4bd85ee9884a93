//! The report of the protocol.

use std::fmt;

use celeris_retrain::Rating;
use serde::Serialize;

use crate::lists::{mean, ndcg, recall};
use crate::page::{Tabled, table};

/// Lengths of the lists of the figures.
const SHORT: usize = 10;
const LONG: usize = 20;

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankingReport {
    /// `"ranking"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of the trainers.
    pub seed: u64,
    /// Number of users whose last item is searched.
    pub users: usize,
    /// Number of training pairs.
    pub train_pairs: usize,
    /// Number of last items without training pairs, which no list can contain.
    pub unseen_items: usize,
    /// The served lists.
    pub ours: Lists,
    /// The chosen half-life of users' weights, in seconds; null for no decay.
    pub half_life_seconds: Option<f64>,
    /// The served lists without decay.
    pub ours_without_forgetting: Lists,
    /// The lists of the library `implicit`; null if it is not installed.
    pub implicit: Option<Lists>,
    /// The number of factors and the regularization chosen for the library, of twelve settings.
    pub implicit_factors: Option<usize>,
    pub implicit_regularization: Option<f64>,
    /// The lists of EASE; null if both users and items are too many for its closed form.
    pub ease: Option<Lists>,
    /// The regularization chosen for EASE, of six.
    pub ease_lambda: Option<f64>,
    /// Lists by popularity: the most taken items, without those of the user.
    pub popularity: Lists,
    /// The regularization chosen by the first training.
    pub regularization: f64,
    /// Time for tuning and training of the first training, in seconds.
    pub train_seconds: f64,
}

/// Quality of lists of ten and of twenty, averaged over the trainings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lists {
    /// The share of lists that contain the item among the first ten.
    pub recall_at_10: f64,
    /// The mean of `1 / log2(1 + rank)` of the item, or 0 if it is not among the first ten.
    pub ndcg_at_10: f64,
    /// The same among the first twenty.
    pub recall_at_20: f64,
    pub ndcg_at_20: f64,
    /// Standard errors of these figures over users, in their order.
    pub std_errors: [f64; 4],
}

impl Lists {
    /// Computes the quality of the lists for the users of `tested`, each with one item; for each
    /// training, one list per user.
    pub(super) fn of(trainings: &[Vec<Vec<u32>>], tested: &[Rating]) -> Self {
        let of_users = |figure: fn(&[u32], &[u32], usize) -> f64, k: usize| -> (f64, f64) {
            let of_user = |(user, rating): (usize, &Rating)| {
                let figures = trainings.iter().map(|lists| figure(&lists[user], &[rating.item], k));
                figures.sum::<f64>() / trainings.len() as f64
            };
            mean(&tested.iter().enumerate().map(of_user).collect::<Vec<f64>>())
        };
        let figures = [of_users(recall, SHORT), of_users(ndcg, SHORT), of_users(recall, LONG), of_users(ndcg, LONG)];
        let [recall_at_10, ndcg_at_10, recall_at_20, ndcg_at_20] = figures.map(|(mean, _)| mean);
        Self { recall_at_10, ndcg_at_10, recall_at_20, ndcg_at_20, std_errors: figures.map(|(_, error)| error) }
    }

    /// The four figures with their standard errors.
    pub(crate) fn figures(&self) -> [(f64, f64); 4] {
        let means = [self.recall_at_10, self.ndcg_at_10, self.recall_at_20, self.ndcg_at_20];
        std::array::from_fn(|place| (means[place], self.std_errors[place]))
    }
}

impl fmt::Display for RankingReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, users, train_pairs, unseen_items, .. } = self;
        writeln!(out, "ranking of {dataset}, dim {dim}, seed {seed}")?;
        writeln!(
            out,
            "  {train_pairs} pairs to train on; the last items of {users} users to find, {unseen_items} of them unseen"
        )?;
        writeln!(out, "                recall@10         ndcg@10           recall@20         ndcg@20")?;
        let fades = self.half_life_seconds.map_or("never fades".to_owned(), |seconds| format!("half-life {seconds} s"));
        writeln!(out, "  ours          {}   ({fades})", self.ours)?;
        writeln!(out, "  never fading  {}", self.ours_without_forgetting)?;
        match (&self.ease, self.ease_lambda) {
            (Some(lists), Some(lambda)) => writeln!(out, "  EASE          {lists}   (lambda {lambda})")?,
            _ => writeln!(out, "  EASE          too many users and items for its closed form")?,
        }
        match (&self.implicit, self.implicit_factors.zip(self.implicit_regularization)) {
            (Some(lists), Some((factors, regularization))) => {
                writeln!(out, "  implicit      {lists}   ({factors} factors, regularization {regularization})")?;
            }
            _ => writeln!(out, "  implicit      not installed: `cargo xtask peers` installs it")?,
        }
        writeln!(out, "  popularity    {}", self.popularity)?;
        write!(out, "  the trainer chose regularization {} in {:.1} s", self.regularization, self.train_seconds)
    }
}

impl fmt::Display for Lists {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let figures = self.figures().map(|(figure, error)| format!("{figure:.4} ± {error:.4}"));
        write!(out, "{}", figures.join("   "))
    }
}

impl Tabled for RankingReport {
    fn parts(&self) -> Vec<(&'static str, String)> {
        let Self { dataset, dim, seed, users, unseen_items, .. } = self;
        let row = |name: String, lists: &Lists| {
            let figures = lists.figures().map(|(figure, error)| format!("{figure:.4} ± {error:.4}"));
            std::iter::once(name).chain(figures).collect::<Vec<String>>()
        };
        let half_life = self.half_life_seconds.map_or("no half-life".to_owned(), |one| format!("half-life {one} s"));
        let mut rows = vec![
            row(format!("ours, {half_life}"), &self.ours),
            row("ours, no half-life".to_owned(), &self.ours_without_forgetting),
        ];
        if let (Some(lists), Some(lambda)) = (&self.ease, self.ease_lambda) {
            rows.push(row(format!("EASE, lambda {lambda}"), lists));
        }
        let setting = self.implicit_factors.zip(self.implicit_regularization);
        if let (Some(lists), Some((factors, regularization))) = (&self.implicit, setting) {
            rows.push(row(format!("`implicit`, {factors} factors, regularization {regularization}"), lists));
        }
        rows.push(row("the most rated".to_owned(), &self.popularity));
        let peer = if self.implicit.is_some() { "" } else { " The library `implicit` was not installed." };
        let text = format!(
            "`celeris evaluate --protocol ranking --dim {dim} --seed {seed}` on {dataset}: the last item of each of {users} users, \
             {unseen_items} of which have no other rating, with standard errors over users.{peer}\n\n{}",
            table(&["", "recall@10", "NDCG@10", "recall@20", "NDCG@20"], &rows)
        );
        vec![("ranking", text)]
    }
}
