//! Durations of single records on warm pipelines.

use celeris_cli::Failure;
use celeris_model::Context;
use celeris_pipelines::reference::Reference;
use celeris_pipelines::{Level, Record, Scratch};

use super::fleet::{Fleet, record};
use crate::Settings;
use crate::report::Report;
use crate::stopwatch::Durations;

/// Runs of each pipeline that are not measured, and those that are (PRETZEL, section 2).
const DISCARDED: usize = 10;
const MEASURED: [usize; 2] = [100, 5];

/// The largest difference between two engines: they add numbers up in different orders.
const DIFFERENCE_MAX: f32 = 1e-5;

/// A way to run a record of a pipeline, whose output is one number.
type Run<'a> = Box<dyn FnMut(usize, Record) -> Result<f32, Failure> + 'a>;

/// The sides of the comparison, by the pipeline's number.
struct Sides<'a> {
    names: [&'static str; 3],
    runs: [Run<'a>; 3],
}

/// Compares the optimised plans with plans of a stage for each operator and fresh buffers, and with the interpreter.
///
/// # Errors
/// If the outputs differ.
pub fn run(settings: &Settings, report: &mut Report, name: &str, fleet: &Fleet) -> Result<(), Failure> {
    eprintln!("  {name}: warm pipelines …");
    let (plans, apart) = (fleet.plans(Level::Full)?, fleet.plans(Level::None)?);
    let interpreters: Vec<Reference> = fleet.graphs()?.iter().map(Reference::new).collect();
    let mut scratch = Scratch::default();
    let mut sides = Sides {
        names: ["optimised plan", "operator at a time", "interpreter"],
        runs: [
            Box::new(|number: usize, record: Record| {
                let mut out = [0.0];
                plans[number].run(record, &mut scratch, &mut out)?;
                Ok(out[0])
            }),
            Box::new(|number: usize, record: Record| {
                // Every operator writes into memory of its own that is allocated for this record.
                let mut out = [0.0];
                apart[number].run(record, &mut Scratch::default(), &mut out)?;
                Ok(out[0])
            }),
            Box::new(|number: usize, record: Record| Ok(interpreters[number].run(record)[0])),
        ],
    };
    let mut durations: [Durations; 3] = Default::default();
    for number in 0..fleet.specs.len() {
        sides.measure(fleet, number, settings.pick(MEASURED[0], MEASURED[1]), &mut durations)?;
    }
    let quantile = |durations: &mut [Durations; 3], quantile: f64| {
        let [ours, apart, interpreter] = durations;
        [ours, apart, interpreter].map(|durations| durations.quantile_micros(quantile))
    };
    for (suffix, at) in [("", 0.5), ("/p99", 0.99)] {
        let [ours, apart, interpreter] = quantile(&mut durations, at);
        report.compare(format!("{name}/hot{suffix}"), "us", ours, apart);
        report.compare(format!("{name}/hot/interpreter{suffix}"), "us", ours, interpreter);
    }
    Ok(())
}

impl Sides<'_> {
    /// Runs one pipeline on the same items, on each side without a pause, so that it is warm there.
    fn measure(
        &mut self,
        fleet: &Fleet,
        number: usize,
        measured: usize,
        durations: &mut [Durations; 3],
    ) -> Result<(), Failure> {
        let context = Context::default();
        let mut values: [Vec<f32>; 3] = Default::default();
        for turn in 0..self.runs.len() {
            // Each side is the first one of as many pipelines as the others.
            let side = (turn + number) % self.runs.len();
            let run = &mut self.runs[side];
            for item in 0..DISCARDED {
                run(number, record(fleet.item(number, item), &context))?;
            }
            for item in DISCARDED..DISCARDED + measured {
                let record = record(fleet.item(number, item), &context);
                values[side].push(durations[side].time(|| run(number, record))?);
            }
        }
        let [ours, others @ ..] = &values;
        for (name, other) in self.names[1..].iter().zip(others) {
            expect_equal(name, ours, other)?;
        }
        Ok(())
    }
}

/// Fails if outputs differ: both sides would measure different work.
///
/// # Errors
/// With the largest difference.
pub fn expect_equal(name: &str, ours: &[f32], others: &[f32]) -> Result<f32, Failure> {
    let differences = ours.iter().zip(others).map(|(ours, other)| (ours - other).abs());
    let largest = differences.fold(0.0, f32::max);
    if ours.len() == others.len() && largest <= DIFFERENCE_MAX {
        return Ok(largest);
    }
    Err(Failure::other(format!("{} outputs of ours and {} of {name} differ by {largest}", ours.len(), others.len())))
}
