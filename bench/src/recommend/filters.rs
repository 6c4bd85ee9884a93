//! Searches with filters and exclusions.

use celeris_retrieval::{CandidateSet, Row};
use rand::seq::index::sample;

use super::{K, Scene, millis, same};
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Number of items that a filter keeps of a million.
const KEPT: [(&str, usize); 4] = [("50%", 500_000), ("5%", 50_000), ("0.5%", 5_000), ("10", 10)];

/// Number of ids that a request excludes.
const EXCLUDED: usize = 10_000;

/// The number of items to which `KEPT` refers.
const OF: usize = 1_000_000;

/// Runs every case in turn with its baseline: for filters the exact scan of all items, for
/// exclusions the same search without them. All results must equal those of the scan.
pub fn run(report: &mut Report, scene: &Scene) -> Result<(), Failure> {
    let mut rng = scene::rng(61);
    let (count, matrix) = (scene.matrix().len(), scene.matrix());
    let everything = scene.everything();
    for (name, kept) in KEPT {
        // A quick run keeps the same share, but at least as many items as slots.
        let kept = (kept * count / OF).max(K);
        let mut allowed = CandidateSet::none();
        sample(&mut rng, count, kept).into_iter().for_each(|row| allowed.insert(row_of(row)));
        let (mut filtered, mut unfiltered) = (Durations::default(), Durations::default());
        for weights in &scene.world.queries {
            let found = filtered.time(|| scene.table.search(matrix, weights, K, &allowed));
            same(&found, &scene.table.search_exact(matrix, weights, K, &allowed))?;
            unfiltered.time(|| scene.table.search_exact(matrix, weights, K, &everything));
        }
        report.compare(
            scene.case(&format!("filter/keeps={name}")),
            "ms",
            millis(&mut filtered),
            millis(&mut unfiltered),
        );
    }
    let excluded: Vec<Row> = sample(&mut rng, count, EXCLUDED.min(count / 2)).into_iter().map(row_of).collect();
    let (mut without, mut with) = (Durations::default(), Durations::default());
    for weights in &scene.world.queries {
        with.time(|| scene.table.search(matrix, weights, K, &everything));
        let found = without.time(|| {
            // As a request does: the rows of its filter, minus the excluded rows.
            let mut allowed = everything.clone();
            excluded.iter().for_each(|row| allowed.remove(*row));
            let found = scene.table.search(matrix, weights, K, &allowed);
            (found, allowed)
        });
        same(&found.0, &scene.table.search_exact(matrix, weights, K, &found.1))?;
    }
    report.compare(scene.case("exclude=10000"), "ms", millis(&mut without), millis(&mut with));
    Ok(())
}

fn row_of(index: usize) -> Row {
    Row::try_from(index).expect("rows are counted in 32 bits")
}
