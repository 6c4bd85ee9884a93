#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma, StandardNormal};

use super::record::temporary;
use super::{Build, GraphError, GraphIndex, Plan, recall};
use crate::{CandidateSet, Hit, Matrix, Table};

const DIM: usize = 12;
const COUNT: usize = 6_000;

/// Features in random directions with lengths from a gamma distribution, and queries.
struct World {
    features: Vec<f32>,
    offsets: Vec<f32>,
    queries: Vec<Vec<f32>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lengths = Gamma::new(4.0, 1.0).unwrap();
        let mut features: Vec<f32> = (0..COUNT * DIM).map(|_| StandardNormal.sample(&mut rng)).collect();
        for row in features.chunks_exact_mut(DIM) {
            let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            let wanted: f32 = lengths.sample(&mut rng);
            row.iter_mut().for_each(|x| *x *= wanted / length);
            row[DIM - 1] = 1.0;
        }
        let offsets = (0..COUNT).map(|_| rng.random_range(-0.5..0.5)).collect();
        let queries = (0..30).map(|_| (0..DIM).map(|_| StandardNormal.sample(&mut rng)).collect()).collect();
        Self { features, offsets, queries }
    }

    fn matrix(&self) -> Matrix<'_> {
        Matrix::new(DIM, &self.features, &self.offsets)
    }

    fn table(&self) -> Table {
        Table::build(self.matrix(), (0..).take(COUNT).collect())
    }

    fn build(&self, table: &Table, path: &Path, stop: bool) -> Result<GraphIndex, GraphError> {
        let stop = AtomicBool::new(stop);
        Build { table, matrix: self.matrix(), queries: &self.queries, path, threads: 2, stop: &stop }.run()
    }

    /// A graph that is kept although a table as small as this is searched faster without one. Built by one thread, so
    /// that it is the same in every run.
    fn kept(&self, table: &Table, path: &Path) -> GraphIndex {
        let stop = AtomicBool::new(false);
        let build = Build { table, matrix: self.matrix(), queries: &self.queries, path, threads: 1, stop: &stop };
        build.run_unmeasured().unwrap()
    }

    /// The mean recall at `k` of searches by the graph, over the queries it answers.
    fn recall(&self, graph: &GraphIndex, table: &Table, k: usize, allowed: &CandidateSet) -> f64 {
        let recalls = self.queries.iter().map(|weights| {
            let query = table.query(weights).unwrap();
            let pass = table.pass(self.matrix(), weights, &query, allowed);
            let found = graph.search(&pass, k, 256).unwrap();
            assert_eq!(found.len(), k);
            assert!(found.iter().all(|hit| allowed.contains(hit.row)));
            assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score));
            recall(&found, &table.search_exact(self.matrix(), weights, k, allowed))
        });
        recalls.sum::<f64>() / self.queries.len() as f64
    }
}

#[test]
fn a_graph_has_high_recall_and_returns_only_allowed_rows() {
    let (world, folder) = (World::new(1), tempfile::tempdir().unwrap());
    let table = world.table();
    let graph = world.kept(&table, &folder.path().join("graph"));
    assert!(graph.rows() > 0 && graph.rows() < COUNT, "{graph:?}");
    assert!(world.recall(&graph, &table, 10, &CandidateSet::all(COUNT)) >= 0.98);
    let mut half = CandidateSet::none();
    (0..).take(COUNT).filter(|row| row % 2 == 0).for_each(|row| half.insert(row));
    assert!(world.recall(&graph, &table, 10, &half) >= 0.98);
    // More results than the graph was measured for: the rows outside it are scanned as well.
    assert!(world.recall(&graph, &table, 200, &CandidateSet::all(COUNT)) >= 0.9);
}

#[test]
fn an_opened_graph_returns_the_same_hits_as_the_built_one() {
    let (world, folder) = (World::new(2), tempfile::tempdir().unwrap());
    let (table, path) = (world.table(), folder.path().join("graph"));
    let built = world.kept(&table, &path);
    let opened = GraphIndex::open(&path, world.matrix()).unwrap();
    assert_eq!(opened.record, built.record);
    let allowed = CandidateSet::all(COUNT);
    for weights in &world.queries {
        let query = table.query(weights).unwrap();
        let pass = table.pass(world.matrix(), weights, &query, &allowed);
        assert_eq!(opened.search(&pass, 10, 64), built.search(&pass, 10, 64));
    }
    assert!(!temporary(&path).exists());
}

#[test]
fn a_damaged_graph_and_one_of_other_features_are_rejected() {
    let (mut world, folder) = (World::new(3), tempfile::tempdir().unwrap());
    let path = folder.path().join("graph");
    drop(world.kept(&world.table(), &path));
    let whole = fs::read(&path).unwrap();
    let open = |world: &World| GraphIndex::open(&path, world.matrix());
    assert!(open(&world).is_ok());
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(open(&world), Err(GraphError::Torn { .. })), "one byte short");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    fs::write(&path, flipped).unwrap();
    assert!(matches!(open(&world), Err(GraphError::Torn { .. })), "one bit flipped");
    fs::write(&path, whole).unwrap();
    world.offsets[17] += 0.25;
    assert!(matches!(open(&world), Err(GraphError::OtherTable { .. })));
    world.offsets[17] -= 0.25;
    fs::write(path.with_extension("json"), "{").unwrap();
    assert!(matches!(open(&world), Err(GraphError::Torn { .. })), "a torn record");
    fs::remove_file(path.with_extension("json")).unwrap();
    assert!(matches!(open(&world), Err(GraphError::Io { .. })), "a graph without its record");
}

#[test]
fn a_stopped_build_leaves_nothing_to_open() {
    let (world, folder) = (World::new(4), tempfile::tempdir().unwrap());
    let path = folder.path().join("graph");
    assert!(matches!(world.build(&world.table(), &path, true), Err(GraphError::Stopped)));
    assert!(GraphIndex::open(&path, world.matrix()).is_err());
    let none = World { queries: Vec::new(), ..world };
    assert!(matches!(none.build(&none.table(), &path, false), Err(GraphError::NoQueries)));
}

/// Whether a graph is faster depends on the machine; the consequences do not.
#[test]
fn only_a_faster_graph_is_used_and_the_measurement_survives_opening() {
    let (world, folder) = (World::new(5), tempfile::tempdir().unwrap());
    let (table, path) = (world.table(), folder.path().join("graph"));
    let graph = world.build(&table, &path, false).unwrap();
    assert!(!graph.plans().is_empty());
    let pays = graph.plans().iter().any(Plan::pays);
    assert_eq!((graph.rows() > 0, path.exists()), (pays, pays));
    let opened = GraphIndex::open(&path, world.matrix()).unwrap();
    assert_eq!(opened.record, graph.record);
    table.attach(opened);
    let allowed = CandidateSet::all(COUNT);
    assert_eq!(table.is_approximate(1, &allowed), graph.plan(1).is_some());
    assert!(!table.is_approximate(1_000, &allowed), "nothing was measured for this k");
    for weights in &world.queries {
        let found = table.search(world.matrix(), weights, 1_000, &allowed);
        assert_eq!(found, table.search_exact(world.matrix(), weights, 1_000, &allowed));
    }
}

#[test]
fn a_plan_pays_with_sufficient_recall_in_less_time() {
    let plan = Plan { k: 10, expansion: 64, recall: 0.995, graph_micros: 90.0, exact_micros: 100.0 };
    assert!(plan.pays());
    assert!(!Plan { recall: 0.98, ..plan }.pays());
    assert!(!Plan { graph_micros: 110.0, ..plan }.pays());
}

#[test]
fn recall_is_the_share_that_was_found() {
    let hits = |rows: &[u32]| rows.iter().map(|row| Hit { row: *row, score: 1.0 }).collect::<Vec<_>>();
    assert_eq!(recall(&hits(&[1, 2, 9]), &hits(&[1, 2, 3, 4])), 0.5);
    assert_eq!(recall(&hits(&[]), &hits(&[])), 1.0);
}
