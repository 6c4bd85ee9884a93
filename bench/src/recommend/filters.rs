//! Searches among some of the items: what filters keep, and all but those that are excluded.

use celeris_retrieval::{CandidateSet, Row};
use rand::seq::index::sample;

use super::{K, Scene, millis, same};
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Of a million items, how many a filter keeps.
const KEPT: [(&str, usize); 4] = [("50%", 500_000), ("5%", 50_000), ("0.5%", 5_000), ("10", 10)];

/// Ids that a request excludes.
const EXCLUDED: usize = 10_000;

/// The items of the cases' names.
const OF: usize = 1_000_000;

/// Every case in turns with its baseline: of filters the scan of all scores of all items, of exclusions the same search
/// without them. All answers have to be those of the scan.
pub fn run(report: &mut Report, scene: &Scene) -> Result<(), Failure> {
    let mut rng = scene::rng(61);
    let (count, matrix) = (scene.matrix().len(), scene.matrix());
    let everything = scene.everything();
    for (name, kept) in KEPT {
        // A quick run keeps the share, but no fewer than the slots.
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
            // What a request does: the rows of its filter, and out of these the excluded ones.
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
