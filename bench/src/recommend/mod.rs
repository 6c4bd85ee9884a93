//! `celeris-bench recommend`: top-k search in a million items, against faiss on the same rows.

mod filters;
mod http;
mod peer;
mod upserts;
mod world;

use std::iter;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use celeris_retrieval::graph::{Build, Plan};
use celeris_retrieval::{CandidateSet, GraphIndex, Hit, Matrix, Row, Table};

use self::peer::Faiss;
use self::world::{Norms, World};
use crate::Settings;
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;

/// The dimension and catalog size of the cases with targets; a quick run has fewer items under the same case names.
const DIM: usize = 50;
const ITEMS: [usize; 2] = [1_000_000, 10_000];

/// Slots of a result.
pub(super) const K: usize = 10;

/// Queries per turn, and number of turns.
const TURN: usize = 20;
const TURNS: [usize; 2] = [5, 1];

/// Rounds over all turns in which scans are compared: enough that a disturbance of a second does not dominate.
const SCAN_ROUNDS: [usize; 2] = [5, 1];

/// Threads that build indexes, on both sides. Searches are single-threaded.
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
        one.install(|| scene.exact(&mut report, rounds))?;
        one.install(|| filters::run(&mut report, &scene))?;
        scene.graph(&mut report, folder.path(), &one)?;
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

    /// Compares the exact scan, the quantized scan and faiss's scan in turns; all must find the same rows.
    fn exact(&mut self, report: &mut Report, rounds: usize) -> Result<(), Failure> {
        let (mut scan, mut pass, mut flat) = (Durations::default(), Durations::default(), Durations::default());
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
            }
            for (weights, found) in world.queries[queries].iter().zip(&found) {
                let passed = pass.time(|| table.search(world.matrix(), weights, K, &everything));
                same(&passed, found)?;
            }
        }
        let flat = self.faiss.is_some().then(|| millis(&mut flat));
        report.measured(self.case("exact"), "ms", millis(&mut scan), flat);
        report.measured(self.case("quantized_scan"), "ms", millis(&mut pass), flat);
        Ok(())
    }

    /// Compares the graphs of both sides, and reports the planner's choice for ours. For equal norms, faiss builds
    /// none: our build is aborted, and theirs would take minutes only to be slower than a scan.
    fn graph(&mut self, report: &mut Report, folder: &Path, one: &rayon::ThreadPool) -> Result<(), Failure> {
        let started = Instant::now();
        let graph = self.built(&folder.join("graph"), one)?;
        let seconds = started.elapsed().as_secs_f64();
        let Some(plan) = graph.plans().first().copied() else {
            return Err(Failure::other("an index without measurements"));
        };
        let mut theirs = None;
        if let Some(faiss) = self.faiss.as_mut().filter(|_| self.norms == Norms::Spread) {
            eprintln!("  faiss builds its graph …");
            let grown = faiss.grow()?;
            let mut searches = Durations::default();
            faiss.graph(0..self.world.queries.len())?.add_to(&mut searches);
            theirs = Some((grown.seconds.iter().sum::<f64>(), grown.recall, millis(&mut searches)));
        }
        if self.norms == Norms::Spread {
            let millis = theirs.map(|(_, _, millis)| millis);
            report.measured(self.case("approximate"), "ms", plan.graph_micros / 1e3, millis);
            report.measured(self.case("approximate/recall"), "share", plan.recall, theirs.map(|(_, recall, _)| recall));
            report.measured(self.case("approximate/build"), "s", seconds, theirs.map(|(seconds, ..)| seconds));
        }
        self.planned(report, graph, plan, one)
    }

    fn built(&self, path: &Path, one: &rayon::ThreadPool) -> Result<GraphIndex, Failure> {
        eprintln!("  building our graph …");
        let (queries, stop) = (&self.world.queries, AtomicBool::new(false));
        let build = Build { table: self.table, matrix: self.matrix(), queries, path, threads: THREADS, stop: &stop };
        one.install(|| build.run()).map_err(Failure::other)
    }

    /// Compares searches as a node makes them with the faster measured method, and reports the method.
    fn planned(
        &self,
        report: &mut Report,
        graph: GraphIndex,
        plan: Plan,
        one: &rayon::ThreadPool,
    ) -> Result<(), Failure> {
        self.table.attach(graph);
        let everything = self.everything();
        let mut planned = Durations::default();
        one.install(|| {
            for weights in &self.world.queries {
                planned.time(|| self.table.search(self.matrix(), weights, K, &everything));
            }
        });
        let faster = plan.graph_micros.min(plan.exact_micros) / 1e3;
        report.compare(self.case("planner"), "ms", millis(&mut planned), faster);
        let by_graph = f64::from(u8::from(self.table.is_approximate(K, &everything)));
        report.single(self.case("planner/by_graph"), "of 1", Some(by_graph));
        Ok(())
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

/// Fails if the rows differ from those of faiss by more than a hundredth, which allows for rounding among nearly equal
/// scores.
fn agree(ours: &[Vec<Hit>], theirs: &[Vec<Row>]) -> Result<(), Failure> {
    let same = |(ours, theirs): (&Vec<Hit>, &Vec<Row>)| ours.iter().filter(|hit| theirs.contains(&hit.row)).count();
    let (found, wanted): (usize, usize) = (ours.iter().zip(theirs).map(same).sum(), ours.iter().map(Vec::len).sum());
    if found * 100 >= wanted * 99 {
        return Ok(());
    }
    Err(Failure::other(format!("faiss finds {found} of the {wanted} rows that we find")))
}
