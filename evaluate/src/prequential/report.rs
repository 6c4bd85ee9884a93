//! The report of the protocol as text.

use std::fmt;

use super::{Line, PrequentialReport};
use crate::page::{Tabled, cell, percent, table};

impl fmt::Display for PrequentialReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, train_ratings, stream_ratings, retrainings, ours, peers, missing, .. } = self;
        writeln!(out, "prequential on {dataset}, dim {dim}, seed {seed}")?;
        writeln!(
            out,
            "  {train_ratings} rows to train on, then {stream_ratings} that are predicted and learnt, {retrainings} retrainings"
        )?;
        let (users, items) = (self.stream_ratings_of_unseen_users, self.stream_ratings_of_unseen_items);
        writeln!(out, "  {users} of these of users without training rows, {items} of items without")?;
        write!(out, "                          rmse              95 % cover  so far, by tenths of the stream")?;
        for line in ours.iter().chain(peers) {
            write!(out, "\n{line}")?;
        }
        for name in missing {
            write!(out, "\n  {name} is not installed: `cargo xtask peers` installs it")?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let covered = self.coverage_95.map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share));
        let tenths: Vec<String> = self.rmse_so_far.iter().map(|rmse| format!("{rmse:.3}")).collect();
        write!(
            out,
            "  {:<22}  {:.4} ± {:.4}   {covered:<10}  {}",
            self.name,
            self.error.rmse,
            self.error.std_error,
            tenths.join(" ")
        )?;
        match &self.chosen {
            Some(chosen) => write!(out, "\n    {chosen}"),
            None => Ok(()),
        }
    }
}

impl Tabled for PrequentialReport {
    fn parts(&self) -> Vec<(&'static str, String)> {
        let Self { dataset, dim, seed, train_ratings, stream_ratings, retrainings, missing, .. } = self;
        let (users, items) = (self.stream_ratings_of_unseen_users, self.stream_ratings_of_unseen_items);
        let missing = match missing.as_slice() {
            [] => String::new(),
            names => format!(" Not installed: {}.", names.join(", ")),
        };
        let row = |line: &Line| {
            let mut cells = vec![line.name.to_owned(), cell(line.error)];
            cells.push(line.coverage_95.map_or_else(String::new, percent));
            cells.extend([1, 4, 9].map(|tenth| format!("{:.4}", line.rmse_so_far[tenth])));
            cells.push(line.chosen.clone().unwrap_or_default());
            cells
        };
        let rows: Vec<Vec<String>> = self.ours.iter().chain(&self.peers).map(row).collect();
        let head = ["", "RMSE", "95 % intervals cover", "after 2 tenths", "after 5", "after 10", "settings"];
        let text = format!(
            "`celeris evaluate --protocol prequential --dim {dim} --seed {seed}` on {dataset}, in the order of time: \
             {train_ratings} ratings to train on, then {stream_ratings} that are predicted and learnt, {users} of them of users \
             and {items} of items without training ratings, and {retrainings} retrainings. RMSE with standard errors over \
             users.{missing}\n\n{}",
            table(&head, &rows)
        );
        vec![("prequential", text)]
    }
}
