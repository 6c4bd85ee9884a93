//! The batch engine: throughput by threads, and a pipeline with executors of its own while the others are overloaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_pipelines::engine::Ticket;
use celeris_pipelines::{Engine, EngineSettings, Level, OwnedRecord, PipelineError, Plan};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};

use super::fleet::Fleet;
use crate::Settings;
use crate::report::Report;
use crate::stopwatch::{Durations, Least};

/// Records of a batch of the overload: one chunk.
const CHUNK: usize = 64;

/// The exponent of the law by which the overload chooses pipelines.
const ZIPF_EXPONENT: f64 = 2.0;

/// Time between two requests to the pipeline with executors of its own.
const EVERY: Duration = Duration::from_micros(500);

/// Rounds in which it is asked, idle and overloaded in turns, and requests of a round.
const ROUNDS: [usize; 2] = [5, 1];
const REQUESTS: [usize; 2] = [2000, 20];

/// The plans of a fleet, and its items as records that batches share.
struct Batches {
    plans: Vec<Arc<Plan>>,
    records: Vec<OwnedRecord>,
}

/// Both cases.
///
/// # Errors
/// If the engine fails.
pub fn run(settings: &Settings, report: &mut Report, fleet: &Fleet) -> Result<(), Failure> {
    let plans = fleet.plans(Level::Full)?.into_iter().map(Arc::new).collect();
    let record = |item: &super::fleet::Item| OwnedRecord { item: Arc::new(item.clone()), ..OwnedRecord::default() };
    let batches = Batches { plans, records: fleet.items.iter().map(record).collect() };
    batches.threads(settings, report)?;
    batches.reserved(settings, report)
}

impl Batches {
    /// The records of a batch.
    fn records(&self, first: usize, count: usize) -> Vec<OwnedRecord> {
        self.records.iter().cycle().skip(first % self.records.len()).take(count).cloned().collect()
    }

    /// Records a second on two executors and on one, in turns.
    fn threads(&self, settings: &Settings, report: &mut Report) -> Result<(), Failure> {
        eprintln!("  batches …");
        let count: usize = settings.pick(512, 16);
        let with =
            |executors| Engine::new(EngineSettings { executors, queued_max: 1 << 16, ..EngineSettings::default() });
        let engines = [with(2)?, with(1)?];
        let mut least = [Least::NONE; 2];
        for _ in 0..settings.pick(10, 1) {
            for (engine, least) in engines.iter().zip(&mut least) {
                let batches: Vec<_> = (0..self.plans.len()).map(|number| self.records(number, count)).collect();
                least.sample(count * self.plans.len(), || -> Result<(), PipelineError> {
                    let submit = |(plan, records)| engine.submit(plan, records);
                    let tickets: Vec<Ticket> = self.plans.iter().zip(batches).map(submit).collect::<Result<_, _>>()?;
                    tickets.into_iter().try_for_each(|ticket| ticket.wait().map(drop))
                })?;
            }
        }
        let [two, one] = least.map(|least| 1.0 / least.seconds());
        report.compare("threads=2", "rows/s", two, one);
        Ok(())
    }

    /// Latencies of the first pipeline, which has an executor of its own, while one executor has the others.
    fn reserved(&self, settings: &Settings, report: &mut Report) -> Result<(), Failure> {
        eprintln!("  a pipeline with an executor of its own …");
        let engine = Engine::new(EngineSettings { executors: 1, chunk: CHUNK, ..EngineSettings::default() })?;
        let overload = Overload::new(self, &engine)?;
        let saturation = overload.saturation(settings.pick(400, 10))?;
        let _reservation = engine.reserve(&self.plans[0], 1)?;
        let requests = settings.pick(REQUESTS[0], REQUESTS[1]);
        let mut durations: [Durations; 2] = Default::default();
        let (mut offered, mut refused) = (0, 0);
        for _ in 0..settings.pick(ROUNDS[0], ROUNDS[1]) {
            self.ask(&engine, requests, &mut durations[1])?;
            let done = AtomicBool::new(false);
            let counts = thread::scope(|scope| {
                let load = scope.spawn(|| overload.run(2.0 * saturation, &done));
                let asked = self.ask(&engine, requests, &mut durations[0]);
                done.store(true, Ordering::Relaxed);
                let counts = load.join().map_err(|_| Failure::other("the overload ended early"))?;
                asked.and(counts)
            })?;
            (offered, refused) = (offered + counts.0, refused + counts.1);
            // The next round is idle.
            while engine.waiting() > 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        eprintln!("  overloaded: {refused} of {offered} batches refused, at twice {saturation:.0} batches/s");
        let [loaded, idle] = &mut durations;
        for (suffix, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let (loaded, idle) = (loaded.quantile_micros(quantile), idle.quantile_micros(quantile));
            report.compare(format!("reserved/{suffix}"), "us", loaded, idle);
        }
        Ok(())
    }

    /// Requests of one record to the first pipeline, one after the other at fixed times.
    fn ask(&self, engine: &Engine, requests: usize, durations: &mut Durations) -> Result<(), Failure> {
        let mut due = Instant::now();
        for number in 0..requests {
            due += EVERY;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let record = self.records(number, 1);
            durations.time(|| engine.submit(&self.plans[0], record)?.wait())?;
        }
        Ok(())
    }
}

/// Batches of all pipelines but the first, by a Zipf law.
struct Overload<'a> {
    batches: &'a Batches,
    engine: &'a Engine,
    law: Zipf<f64>,
}

impl<'a> Overload<'a> {
    fn new(batches: &'a Batches, engine: &'a Engine) -> Result<Self, Failure> {
        let law = Zipf::new((batches.plans.len() - 1) as f64, ZIPF_EXPONENT).map_err(Failure::other)?;
        Ok(Self { batches, engine, law })
    }

    /// The plan of the next batch.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the distribution is small")]
    fn plan(&self, rng: &mut ChaCha8Rng) -> &Arc<Plan> {
        &self.batches.plans[self.law.sample(rng) as usize]
    }

    /// Batches a second that the executor can take.
    fn saturation(&self, count: usize) -> Result<f64, Failure> {
        let mut rng = scene::rng(97);
        let started = Instant::now();
        let submit = |number| self.engine.submit(self.plan(&mut rng), self.batches.records(number, CHUNK));
        let tickets: Vec<Ticket> = (0..count).map(submit).collect::<Result<_, _>>()?;
        tickets.into_iter().try_for_each(|ticket| ticket.wait().map(drop))?;
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// Submits batches at this rate until it is done; returns the numbers of submitted and of refused batches.
    fn run(&self, rate: f64, done: &AtomicBool) -> Result<(u64, u64), Failure> {
        let mut rng = scene::rng(98);
        let (started, mut offered, mut refused) = (Instant::now(), 0_u64, 0_u64);
        while !done.load(Ordering::Relaxed) {
            let due = started + Duration::from_secs_f64(offered as f64 / rate);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let first = usize::try_from(offered).map_err(Failure::other)?;
            match self.engine.submit(self.plan(&mut rng), self.batches.records(first, CHUNK)) {
                // Nobody waits for the results.
                Ok(ticket) => drop(ticket),
                Err(PipelineError::Overloaded { .. }) => refused += 1,
                Err(error) => return Err(error.into()),
            }
            offered += 1;
        }
        Ok((offered, refused))
    }
}
