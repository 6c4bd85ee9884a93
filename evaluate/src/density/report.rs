//! The report of the protocol as text.

use std::fmt;

use super::{Density, DensityReport};
use crate::accuracy::Accuracy;
use crate::page::{Tabled, cell, percent, table};

impl fmt::Display for DensityReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, orders, then, .. } = self;
        writeln!(out, "density on {dataset}, dim {dim}, seed {seed}, orders {orders}, {then} ratings learnt online")?;
        write!(out, "  rmse                     initial           online            retrained")?;
        for density in &self.densities {
            write!(out, "\n{density}")?;
        }
        if self.densities.iter().all(|density| density.peers.is_empty()) {
            write!(out, "\n  myFM is not installed: `cargo xtask peers` installs it")?;
        }
        Ok(())
    }
}

impl fmt::Display for Density {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { ratings_per_user, users, users_left_out, ratings: [first, then, tested], .. } = self;
        writeln!(
            out,
            "  {ratings_per_user} ratings a user: {users} users ({users_left_out} left out), {first} + {then} ratings learnt, \
             {tested} predicted"
        )?;
        let stages = [&self.initial, &self.online, &self.retrained];
        let [initial, online, retrained] = stages.map(|stage| cell(stage.error));
        writeln!(out, "    ours                   {initial}   {online}   {retrained}")?;
        for peer in &self.peers {
            let (initial, retrained) = (cell(peer.initial), cell(peer.retrained));
            writeln!(out, "    {:<21}  {initial}                     {retrained}", peer.name)?;
        }
        let [initial, retrained] = self.own_weights.map(cell);
        writeln!(out, "    own weights            {initial}                     {retrained}")?;
        let [initial, online, retrained] = stages.map(|stage| percent(stage.coverage_95));
        writeln!(out, "    95 % intervals cover   {initial:<15}   {online:<15}   {retrained}")?;
        let [initial, online, retrained] = stages.map(rare);
        write!(out, "    of rare items          {initial:<15}   {online:<15}   {retrained}")
    }
}

/// Coverage for items with few training labels, and the number of these predictions.
fn rare(stage: &Accuracy) -> String {
    stage.rare.map_or_else(|| "none".to_owned(), |rare| format!("{} ({})", percent(rare.coverage_95), rare.rows))
}

impl Tabled for DensityReport {
    fn parts(&self) -> Vec<(&'static str, String)> {
        let Self { dataset, dim, seed, orders, then, densities, .. } = self;
        let is_compared = densities.iter().any(|density| !density.peers.is_empty());
        let peer = if is_compared { "" } else { " myFM was not installed." };
        let text = format!(
            "`celeris evaluate --protocol density --dim {dim} --seed {seed} --orders {orders}` on {dataset}. RMSE with standard \
             errors over users, after training on so many ratings of each user, after {then} more online, and after training on \
             all of these.{peer}\n\n{}\n\nCoverage of the 95 % intervals, of all predicted ratings and of those of items with 1 to \
             5 training labels:\n\n{}",
            self.errors(),
            self.coverage()
        );
        vec![("density", text)]
    }
}

impl DensityReport {
    /// The table of errors.
    fn errors(&self) -> String {
        let mut rows = Vec::new();
        for density in &self.densities {
            let Density { ratings_per_user, users, ratings, initial, online, retrained, peers, .. } = density;
            let name = format!("{ratings_per_user} ({users} users, {} predicted)", ratings[2]);
            let [initial, online, retrained] = [initial, online, retrained].map(|stage| cell(stage.error));
            rows.push(vec![name, "ours".to_owned(), initial, online, retrained]);
            rows.extend(peers.iter().map(|peer| {
                vec![String::new(), peer.name.to_owned(), cell(peer.initial), String::new(), cell(peer.retrained)]
            }));
        }
        table(&["ratings a user", "", "initial", "online", "retrained"], &rows)
    }

    /// The table of coverage.
    fn coverage(&self) -> String {
        let row = |density: &Density| {
            let stages = [&density.initial, &density.online, &density.retrained];
            let cells = stages.into_iter().flat_map(|stage| [percent(stage.coverage_95), rare(stage)]);
            std::iter::once(density.ratings_per_user.to_string()).chain(cells).collect()
        };
        let rows: Vec<Vec<String>> = self.densities.iter().map(row).collect();
        let head =
            ["ratings a user", "initial", "1 to 5 labels", "online", "1 to 5 labels", "retrained", "1 to 5 labels"];
        table(&head, &rows)
    }
}
