//! `celeris-bench recommend`: top-k search in a million items, against faiss on the same rows.

mod filters;
mod http;
mod peer;
mod upserts;
mod world;

use std::iter;
use std::time::Instant;

use celeris_retrieval::{CandidateSet, Hit, Matrix, Row, Table};

use self::peer::Faiss;
use self::world::{Norms, World};
use crate::Settings;
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;

/// The dimension and catalog size of the cases with targets; a quick run has fewer items under the
/// same case names.
const DIM: usize = 50;
const ITEMS: [usize; 2] = [1_000_000, 10_000];

/// Slots of a result.
pub(super) const K: usize = 10;

/// Queries per turn, and number of turns.
const TURN: usize = 20;
const TURNS: [usize; 2] = [5, 1];

/// Rounds over all turns in which scans are compared: enough that a disturbance of a second does
/// not dominate.
const SCAN_ROUNDS: [usize; 2] = [5, 1];

/// Threads on which faiss builds its graph. Searches are single-threaded on both sides.
const THREADS: usize = 2;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("recommend");
    let one = rayon_of_one()?;
    for norms in Norms::ALL {
        eprintln!("  making items with norms that are {norms:?} …");
        let turns = settings.pick(TURNS[0], TURNS[1]);
        let world = World::new(norms, settings.pick(ITEMS[0], ITEMS[1]), DIM, turns * TURN)?;
        let folder = tempfile::tempdir().map_err(Failure::other)?;
        let started = Instant::now();
        let rows: Vec<Row> = (0..).take(world.matrix().len()).collect();
        let table = Table::build(world.matrix(), rows);
        report.single(format!("build/table{}", norms.suffix()), "s", Some(started.elapsed().as_secs_f64()));
        let bytes = table.bytes() as f64 / world.matrix().len() as f64;
        report.single(format!("bytes/table{}", norms.suffix()), "bytes/item", Some(bytes));
        // The quick run skips the peers.
        let faiss = if settings.quick { None } else { Faiss::start(&world, folder.path(), THREADS)? };
        let mut scene = Scene { norms, world: &world, table: &table, faiss };
        let rounds = settings.pick(SCAN_ROUNDS[0], SCAN_ROUNDS[1]);
        one.install(|| scene.unfiltered(&mut report, rounds))?;
        one.install(|| filters::run(&mut report, &scene))?;
    }
    http::run(&mut report, settings)?;
    upserts::run(&mut report, settings)?;
    Ok(report)
}

/// A pool with a single thread for searches, as in faiss.
fn rayon_of_one() -> Result<rayon::ThreadPool, Failure> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(Failure::other)
}

/// One distribution of norms, for both sides on the same rows and queries.
pub(super) struct Scene<'a> {
    pub norms: Norms,
    pub world: &'a World,
    pub table: &'a Table,
    faiss: Option<Faiss>,
}

impl Scene<'_> {
    /// The name of a case.
    pub fn case(&self, what: &str) -> String {
        format!("{what}/n={}/d={DIM}{}", ITEMS[0], self.norms.suffix())
    }

    pub fn matrix(&self) -> Matrix<'_> {
        self.world.matrix()
    }

    pub fn everything(&self) -> CandidateSet {
        CandidateSet::all(self.matrix().len())
    }

    /// Compares the exact scan, the quantized scan and faiss's scan in turns; all must find the
    /// same rows. Takes turns with faiss's graph as well, which may miss some of them.
    fn unfiltered(&mut self, report: &mut Report, rounds: usize) -> Result<(), Failure> {
        let (mut scan, mut pass) = (Durations::default(), Durations::default());
        let (mut flat, mut graph) = (Durations::default(), Durations::default());
        let recall = self.grow()?;
        let (everything, world, table) = (self.everything(), self.world, self.table);
        let turns = (0..world.queries.len()).step_by(TURN);
        for first in iter::repeat_n(turns, rounds).flatten() {
            let queries = first..first + TURN;
            let mut found = Vec::new();
            for weights in &world.queries[queries.clone()] {
                found.push(scan.time(|| table.search_exact(world.matrix(), weights, K, &everything)));
            }
            if let Some(faiss) = &mut self.faiss {
                let theirs = faiss.flat(queries.clone())?;
                theirs.add_to(&mut flat);
                agree(&found, &theirs.found)?;
                if recall.is_some() {
                    faiss.graph(queries.clone())?.add_to(&mut graph);
                }
            }
            for (weights, found) in world.queries[queries].iter().zip(&found) {
                let passed = pass.time(|| table.search(world.matrix(), weights, K, &everything));
                same(&passed, found)?;
            }
        }
        let (flat, pass) = (self.faiss.is_some().then(|| millis(&mut flat)), millis(&mut pass));
        report.measured(self.case("exact"), "ms", millis(&mut scan), flat);
        report.measured(self.case("quantized_scan"), "ms", pass, flat);
        if self.norms == Norms::Spread {
            report.measured(self.case("hnsw"), "ms", pass, recall.map(|_| millis(&mut graph)));
            // Every result of the quantized scan was compared above.
            report.measured(self.case("hnsw/recall"), "share", 1.0, recall);
        }
        Ok(())
    }

    /// Builds faiss's graph and returns its recall; `None` without faiss. Not for equal norms:
    /// building it would take minutes, only for searches slower than a scan.
    fn grow(&mut self) -> Result<Option<f64>, Failure> {
        let Some(faiss) = self.faiss.as_mut().filter(|_| self.norms == Norms::Spread) else { return Ok(None) };
        eprintln!("  faiss builds its graph …");
        Ok(Some(faiss.grow()?.recall))
    }
}

/// The median, in milliseconds.
pub(super) fn millis(durations: &mut Durations) -> f64 {
    durations.quantile_micros(0.5) / 1e3
}

/// Fails if a search result differs from that of the exact scan.
pub(super) fn same(found: &[Hit], expected: &[Hit]) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(Failure::other("a search differs from computing all scores")) }
}

/// Fails if the rows differ from those of faiss by more than a hundredth, which allows for rounding
/// among nearly equal scores.
fn agree(ours: &[Vec<Hit>], theirs: &[Vec<Row>]) -> Result<(), Failure> {
    let same = |(ours, theirs): (&Vec<Hit>, &Vec<Row>)| ours.iter().filter(|hit| theirs.contains(&hit.row)).count();
    let (found, wanted): (usize, usize) = (ours.iter().zip(theirs).map(same).sum(), ours.iter().map(Vec::len).sum());
    if found * 100 >= wanted * 99 {
        return Ok(());
    }
    Err(Failure::other(format!("faiss finds {found} of the {wanted} rows that we find")))
}
