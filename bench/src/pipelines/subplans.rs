//! Results of stages that several pipelines share, kept within a budget.

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_model::Context;
use celeris_pipelines::{Level, Scratch, SubPlans};
use rand::seq::SliceRandom;

use super::fleet::{Fleet, record};
use super::latency::expect_equal;
use crate::Settings;
use crate::report::Report;
use crate::stopwatch::Durations;

/// Memory of the kept results.
const BYTES_MAX: usize = 8 << 20;

/// Items that go through all pipelines.
const ITEMS: [usize; 2] = [200, 3];

/// Every item goes through all pipelines, in an order of its own: with results kept, and without.
///
/// # Errors
/// If the outputs differ.
pub fn run(settings: &Settings, report: &mut Report, fleet: &Fleet) -> Result<(), Failure> {
    eprintln!("  results of shared stages …");
    let plans = fleet.plans(Level::Full)?;
    let (kept, context) = (SubPlans::new(BYTES_MAX), Context::default());
    let (mut scratch, mut rng) = (Scratch::default(), scene::rng(96));
    let mut order: Vec<usize> = (0..plans.len()).collect();
    let mut durations: [Durations; 2] = Default::default();
    for turn in 0..settings.pick(ITEMS[0], ITEMS[1]) {
        order.shuffle(&mut rng);
        let record = record(fleet.item(0, turn), &context);
        let mut values: [Vec<f32>; 2] = Default::default();
        for side in [turn % 2, 1 - turn % 2] {
            let kept = (side == 0).then_some(&kept);
            for number in &order {
                let mut out = [0.0];
                durations[side].time(|| plans[*number].run_keeping(record, &mut scratch, kept, &mut out))?;
                values[side].push(out[0]);
            }
        }
        expect_equal("computing everything", &values[0], &values[1])?;
    }
    let facts = kept.facts();
    let found = facts.found as f64 / (facts.found + facts.computed).max(1) as f64;
    eprintln!("  {} results of {} bytes kept, {:.1} % found", facts.entries, facts.bytes, found * 100.0);
    let [ours, without] = &mut durations;
    report.compare("subplans/sa", "us", ours.mean_micros(), without.mean_micros());
    for (suffix, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let (ours, without) = (ours.quantile_micros(quantile), without.quantile_micros(quantile));
        report.compare(format!("subplans/sa/{suffix}"), "us", ours, without);
    }
    Ok(())
}
