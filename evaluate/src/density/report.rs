//! The report of the protocol as text.

use std::fmt;

use super::{Density, DensityReport};
use crate::accuracy::{Accuracy, Rmse};

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
        let [initial, online, retrained] = stages.map(|stage| shown(stage.error));
        writeln!(out, "    ours                   {initial}   {online}   {retrained}")?;
        for peer in &self.peers {
            let (initial, retrained) = (shown(peer.initial), shown(peer.retrained));
            writeln!(out, "    {:<21}  {initial}                     {retrained}", peer.name)?;
        }
        let [initial, retrained] = self.own_weights.map(shown);
        writeln!(out, "    own weights            {initial}                     {retrained}")?;
        let [initial, online, retrained] = stages.map(|stage| percent(stage.coverage_95));
        writeln!(out, "    95 % intervals cover   {initial:<15}   {online:<15}   {retrained}")?;
        let [initial, online, retrained] = stages.map(rare);
        write!(out, "    of rare items          {initial:<15}   {online:<15}   {retrained}")
    }
}

fn shown(Rmse { rmse, std_error }: Rmse) -> String {
    format!("{rmse:.4} ± {std_error:.4}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Coverage for items with few training labels, and the number of these predictions.
fn rare(stage: &Accuracy) -> String {
    stage.rare.map_or_else(|| "none".to_owned(), |rare| format!("{} ({})", percent(rare.coverage_95), rare.rows))
}
