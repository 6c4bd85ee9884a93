//! Builds a graph index and measures whether it is faster than the exact search.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use celeris_kernel::codes::BLOCK_ROWS;
use usearch::Index;

use super::record::{Record, rename, temporary};
use super::search::row_vector;
use super::{GraphError, GraphIndex, Plan, mapped, name, options, recall};
use crate::search::best::Best;
use crate::search::table::{Matrix, Pass, Query, Table};
use crate::{CandidateSet, Hit};

/// The numbers of results that plans are measured for: a page of results, and a shortlist for a policy.
const KS: [usize; 2] = [10, 128];

/// Candidate counts that are tried until recall suffices.
const EXPANSIONS: [usize; 12] = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024];

/// The share of the sampled queries that need no row outside the graph.
const COVERED: f64 = 0.95;

/// Rows after which a growing graph is measured first; again at every doubling.
const FIRST_CHECK: usize = 1 << 15;

/// Rows that a thread adds between two checks of the stop flag: milliseconds.
const ADDED_AT_ONCE: usize = 64;

/// The inputs of an index build, and its destination.
///
/// During the build, the rows are in memory a second time, with some 150 bytes of links each.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// The table.
    pub table: &'a Table,
    /// The matrix that the table was built from.
    pub matrix: Matrix<'a>,
    /// Weights to measure with, representative of users: draws from the prior. About fifty suffice.
    pub queries: &'a [Vec<f32>],
    /// The file of the graph. Its record is stored next to it, with the extension `json`.
    pub path: &'a Path,
    /// Number of threads that add rows.
    pub threads: usize,
    /// Set by the caller to stop the build.
    pub stop: &'a AtomicBool,
}

/// A query with the hits of the exact search for one of [`KS`].
struct Sample {
    query: Query,
    weights: Vec<f32>,
    exact: Vec<Hit>,
}

/// Time and hits of the exact search.
struct Exact {
    k: usize,
    micros: f64,
    samples: Vec<Sample>,
}

impl Build<'_> {
    /// Builds, measures and writes the index, and maps it.
    ///
    /// A search of a graph over part of the rows is no slower than over all rows: if the growing graph is slower than
    /// the exact search of the whole table, the build is abandoned.
    ///
    /// # Errors
    /// `NoQueries`, `Stopped`, and errors of writing and of the library. A failed build leaves nothing that
    /// [`GraphIndex::open`] accepts.
    pub fn run(&self) -> Result<GraphIndex, GraphError> {
        let allowed = CandidateSet::of_rows(self.table.rows());
        let exact = self.measured(&allowed)?;
        let rows = self.rows_needed(&exact[1]);
        let index = match self.grow(rows, &exact[0], &allowed)? {
            Ok(index) => index,
            Err(given_up) => return self.record_without_graph(vec![given_up]),
        };
        let mut graph = self.save(index, rows)?;
        let plans: Vec<Plan> = exact.iter().map(|exact| self.plan(&graph, exact, &allowed)).collect();
        if !plans.iter().any(Plan::pays) {
            drop(graph);
            fs::remove_file(self.path).map_err(|source| GraphError::Io { path: self.path.to_owned(), source })?;
            return self.record_without_graph(plans);
        }
        graph.record.plans = plans;
        graph.record.write(self.path)?;
        Ok(graph)
    }

    fn measured(&self, allowed: &CandidateSet) -> Result<[Exact; 2], GraphError> {
        let exact = KS.map(|k| self.exact(k, allowed));
        if exact[0].samples.is_empty() { Err(GraphError::NoQueries) } else { Ok(exact) }
    }

    /// Writes the graph atomically and maps it; the record has to be written afterwards.
    fn save(&self, index: Index, rows: usize) -> Result<GraphIndex, GraphError> {
        let part = temporary(self.path);
        index.save(name(&part)?).map_err(GraphError::library)?;
        drop(index);
        let synced = fs::File::open(&part).and_then(|file| file.sync_all());
        let renamed = synced.and_then(|()| rename(&part, self.path));
        renamed.map_err(|source| GraphError::Io { path: self.path.to_owned(), source })?;
        let record = Record::new(self.matrix, rows, Vec::new(), Some(self.path))?;
        Ok(GraphIndex { index: Some(mapped(self.path, self.matrix.dim())?), record })
    }

    /// Builds a graph that is kept without being measured.
    #[cfg(test)]
    pub(super) fn run_unmeasured(&self) -> Result<GraphIndex, GraphError> {
        let allowed = CandidateSet::of_rows(self.table.rows());
        let rows = self.rows_needed(&self.measured(&allowed)?[1]);
        let index = Index::new(&options(self.matrix.dim())).map_err(GraphError::library)?;
        index.reserve_capacity_and_threads(rows, self.threads).map_err(GraphError::library)?;
        self.add(&index, &self.table.slots_by_length(rows).collect::<Vec<_>>())?;
        let graph = self.save(index, rows)?;
        graph.record.write(self.path)?;
        Ok(graph)
    }

    fn record_without_graph(&self, plans: Vec<Plan>) -> Result<GraphIndex, GraphError> {
        let record = Record::new(self.matrix, 0, plans, None)?;
        record.write(self.path)?;
        Ok(GraphIndex { index: None, record })
    }

    fn exact(&self, k: usize, allowed: &CandidateSet) -> Exact {
        let mut times = Vec::new();
        let mut samples = Vec::new();
        for weights in self.queries {
            let Some(query) = self.table.query(weights) else { continue };
            let started = Instant::now();
            let exact = self.table.search_without_graph(self.matrix, weights, k, allowed);
            times.push(started.elapsed().as_secs_f64() * 1e6);
            samples.push(Sample { query, weights: weights.clone(), exact });
        }
        Exact { k, micros: median(times), samples }
    }

    /// The number of longest rows such that most queries need no other row.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a vector")]
    fn rows_needed(&self, exact: &Exact) -> usize {
        let mut ends: Vec<usize> = exact
            .samples
            .iter()
            .map(|sample| self.table.rows_in_reach(&sample.query, &sample.exact, exact.k))
            .collect();
        ends.sort_unstable();
        let covered = ends.get((ends.len() as f64 * COVERED) as usize).or(ends.last()).copied().unwrap_or(0);
        covered.next_multiple_of(BLOCK_ROWS).min(self.matrix.len())
    }

    /// A graph of the `rows` longest rows, or the measurement with which it was abandoned.
    fn grow(&self, rows: usize, exact: &Exact, allowed: &CandidateSet) -> Result<Result<Index, Plan>, GraphError> {
        let index = Index::new(&options(self.matrix.dim())).map_err(GraphError::library)?;
        index.reserve_capacity_and_threads(rows, self.threads.max(1)).map_err(GraphError::library)?;
        let slots: Vec<usize> = self.table.slots_by_length(rows).collect();
        let (mut done, mut check) = (0, FIRST_CHECK);
        while done < rows {
            let next = check.min(rows);
            self.add(&index, &slots[done..next])?;
            done = next;
            check *= 2;
            if done < rows {
                let plan = self.plan_of_part(&index, done, exact, allowed);
                if !plan.pays() {
                    return Ok(Err(plan));
                }
            }
        }
        Ok(Ok(index))
    }

    fn add(&self, index: &Index, slots: &[usize]) -> Result<(), GraphError> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), GraphError> {
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(GraphError::Stopped);
                }
                let first = next.fetch_add(ADDED_AT_ONCE, Ordering::Relaxed);
                let Some(rest) = slots.get(first..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
                for slot in rest.iter().take(ADDED_AT_ONCE) {
                    index.add(*slot as u64, &row_vector(self.matrix, *slot)).map_err(GraphError::library)?;
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads.max(1)).map(|_| scope.spawn(work)).collect();
            // All threads are joined before the first error is returned.
            let panicked = |_| Err(GraphError::library("a thread of the build has panicked"));
            let finished: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect();
            finished.into_iter().collect()
        })
    }

    /// The plan of a complete index for one `k`.
    fn plan(&self, graph: &GraphIndex, exact: &Exact, allowed: &CandidateSet) -> Plan {
        let truth: Vec<&[Hit]> = exact.samples.iter().map(|sample| sample.exact.as_slice()).collect();
        calibrated(exact, &truth, |sample, expansion| {
            graph.search(&self.pass(sample, allowed), exact.k, expansion).unwrap_or_default()
        })
    }

    /// The plan of a graph over the `rows` longest rows alone, compared with the exact search of the whole table.
    fn plan_of_part(&self, index: &Index, rows: usize, exact: &Exact, allowed: &CandidateSet) -> Plan {
        let truth: Vec<Vec<Hit>> = exact
            .samples
            .iter()
            .map(|sample| {
                let mut best = Best::new(exact.k);
                self.pass(sample, allowed).run(0..rows.div_ceil(BLOCK_ROWS), &mut best);
                best.into_hits()
            })
            .collect();
        let truth: Vec<&[Hit]> = truth.iter().map(Vec::as_slice).collect();
        calibrated(exact, &truth, |sample, expansion| {
            let best = super::search::among(index, &self.pass(sample, allowed), exact.k, expansion);
            best.map(Best::into_hits).unwrap_or_default()
        })
    }

    fn pass<'b>(&'b self, sample: &'b Sample, allowed: &'b CandidateSet) -> Pass<'b> {
        self.table.pass(self.matrix, &sample.weights, &sample.query, allowed)
    }
}

/// The smallest candidate count with sufficient recall, and its cost; the largest count that was tried if none
/// suffices.
fn calibrated(exact: &Exact, truth: &[&[Hit]], search: impl Fn(&Sample, usize) -> Vec<Hit>) -> Plan {
    let mut plan =
        Plan { k: exact.k, expansion: 0, recall: 0.0, graph_micros: f64::INFINITY, exact_micros: exact.micros };
    for expansion in EXPANSIONS.into_iter().filter(|expansion| *expansion >= exact.k) {
        let (mut times, mut found) = (Vec::new(), 0.0);
        for (sample, truth) in exact.samples.iter().zip(truth) {
            let started = Instant::now();
            let hits = search(sample, expansion);
            times.push(started.elapsed().as_secs_f64() * 1e6);
            found += recall(&hits, truth);
        }
        plan.expansion = expansion;
        plan.recall = found / truth.len() as f64;
        plan.graph_micros = median(times);
        if plan.recall >= Plan::RECALL_MIN {
            break;
        }
    }
    plan
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
