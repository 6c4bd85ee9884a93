//! Lists that should contain the items that users took next: implicit loss.

use std::collections::HashSet;
use std::fmt;

use anyhow::ensure;
use celeris_model::preference::is_taken;
use celeris_model::{Learning, Loss};
use celeris_retrieval::Matrix;
use serde::Serialize;

use super::{Chosen, Header, Parts};
use crate::EvaluateSettings;
use crate::lists::{Taken, mean, ndcg, recall, weights};

/// The report of a split of plays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlaysReport {
    #[serde(flatten)]
    pub header: Header,
    /// Length of a list.
    pub k: usize,
    /// Number of users with lists: those with items to find.
    pub users: usize,
    /// Number of them without training rows.
    pub users_without_training: usize,
    /// Number of items to find: each item that a user took in the predicted rows and not before.
    pub searched: usize,
    /// Number of predicted rows of items that their user had taken before, which are not listed.
    pub taken_before: usize,
    /// The served lists.
    pub ours: Lists,
    /// Lists of the items with the most training rows.
    pub popularity: Lists,
    #[serde(flatten)]
    pub chosen: Chosen,
}

/// Quality of lists: means over users, and their standard errors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lists {
    /// The share of a user's items that are in the list, of at most `k`.
    pub recall: f64,
    /// The discounted gain of the list, as a share of that of the best list.
    pub ndcg: f64,
    /// Standard errors of both figures.
    pub std_errors: [f64; 2],
}

impl Lists {
    /// The quality of these lists for users who took the items `searched`.
    pub(super) fn of(lists: &[Vec<u32>], searched: &[(u32, Vec<u32>)], k: usize) -> Self {
        let figures = |figure: fn(&[u32], &[u32], usize) -> f64| -> (f64, f64) {
            let values = lists.iter().zip(searched).map(|(list, (_, relevant))| figure(list, relevant, k));
            mean(&values.collect::<Vec<f64>>())
        };
        let ((recall, recall_error), (ndcg, ndcg_error)) = (figures(recall), figures(ndcg));
        Self { recall, ndcg, std_errors: [recall_error, ndcg_error] }
    }
}

/// The items to find of each user, and the number of rows of items that were taken before.
pub(super) fn searched(parts: &Parts) -> (Vec<(u32, Vec<u32>)>, usize) {
    let mut searched = Vec::new();
    let mut taken_before = 0;
    let [known, tested] = parts.by_user();
    for (user, (known, tested)) in (0..).zip(known.iter().zip(&tested)) {
        let known: HashSet<u32> = known.iter().map(|row| row.item).collect();
        let mut items: Vec<u32> = Vec::new();
        for row in tested.iter().filter(|row| is_taken(row.label)) {
            if known.contains(&row.item) {
                taken_before += 1;
            } else if !items.contains(&row.item) {
                items.push(row.item);
            }
        }
        if !items.is_empty() {
            searched.push((user, items));
        }
    }
    (searched, taken_before)
}

pub(super) fn evaluate(
    header: Header,
    parts: &Parts,
    k: usize,
    settings: &EvaluateSettings,
) -> anyhow::Result<PlaysReport> {
    let (searched, taken_before) = searched(parts);
    ensure!(
        !searched.is_empty(),
        "no row to predict has an item that its user took (label above 0) and had not taken before"
    );
    let (trained, chosen) = parts.train(settings)?;

    let [known, _] = parts.by_user();
    let mut counts = vec![0_u32; parts.numbered.items.len()];
    for row in parts.known.iter().filter(|row| is_taken(row.label)) {
        counts[row.item as usize] = counts[row.item as usize].saturating_add(1);
    }
    let taken = Taken { counts: &counts, by_user: &known };
    let ranked = taken.ranked(Matrix::new(trained.dim, &trained.item_features, &trained.item_offsets));
    let learning = Learning::new(trained.prior.clone(), Loss::Implicit, None);
    let listing = settings.stage("listing for users", Some(searched.len()));
    let mut ours = Vec::new();
    for (user, _) in &searched {
        ours.push(ranked.best(*user, &weights(&trained, &learning, &known[*user as usize], &[])?, k));
        listing.at(ours.len() as f64 / searched.len() as f64);
    }
    let popular = taken.popular(searched.iter().map(|(user, _)| *user), k);
    Ok(PlaysReport {
        header,
        k,
        users: searched.len(),
        users_without_training: searched.iter().filter(|(user, _)| known[*user as usize].is_empty()).count(),
        searched: searched.iter().map(|(_, items)| items.len()).sum(),
        taken_before,
        ours: Lists::of(&ours, &searched, k),
        popularity: Lists::of(&popular, &searched, k),
        chosen,
    })
}

impl fmt::Display for PlaysReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}", self.header)?;
        let Self { k, users, users_without_training: cold, searched, taken_before, .. } = self;
        writeln!(
            out,
            "  {users} users ({cold} of them without training rows) took {searched} items for the first time"
        )?;
        if *taken_before > 0 {
            writeln!(out, "  {taken_before} rows repeat what their user had taken before; such items are not listed")?;
        }
        writeln!(out, "                        {:<17} ndcg@{k}", format!("recall@{k}"))?;
        for (name, lists) in [("ours", &self.ours), ("popularity", &self.popularity)] {
            let Lists { recall, ndcg, std_errors: [recall_error, ndcg_error] } = lists;
            writeln!(out, "  {name:<21} {recall:.4} ± {recall_error:.4}   {ndcg:.4} ± {ndcg_error:.4}")?;
        }
        write!(out, "{}", self.chosen)
    }
}
