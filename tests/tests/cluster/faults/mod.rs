//! Faults under load.
//!
//! Each scenario is a function of a [`Run`](crate::run::Run): what happens to a cluster while clients work. A run
//! of all tests plays some, which a seed draws; each can be run by its name.

mod damage;
mod disks;
mod erasure;
mod network;
mod nodes;
mod servers;
mod versions;

use crate::run::{Scenario, draw};

#[test]
fn faults_drawn_by_a_seed() {
    let all: [&[Scenario]; 7] = [
        nodes::SCENARIOS,
        servers::SCENARIOS,
        network::SCENARIOS,
        disks::SCENARIOS,
        damage::SCENARIOS,
        erasure::SCENARIOS,
        versions::SCENARIOS,
    ];
    draw(all.concat());
}
