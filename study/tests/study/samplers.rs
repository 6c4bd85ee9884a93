use celeris_study::{Sampler, Study};

use crate::functions::Function;
use crate::{run, settings};

/// The median of the lowest losses of some studies.
fn median_best(function: Function, sampler: Sampler, (trials, seeds): (u32, u64)) -> f64 {
    let best = |seed| {
        let study = run(Study::new(settings(function, sampler, trials, seed), 0).unwrap(), function);
        study.best().unwrap().outcome.unwrap().value
    };
    let mut best: Vec<f64> = (0..seeds).map(best).collect();
    best.sort_by(f64::total_cmp);
    f64::midpoint(best[(best.len() - 1) / 2], best[best.len() / 2])
}

#[test]
fn a_gaussian_process_finds_lower_losses_than_random_trials() {
    for function in [Function::Sphere, Function::Rosenbrock, Function::Hartmann, Function::Mixed] {
        let [random, gp] = [Sampler::Random, Sampler::Gp].map(|sampler| median_best(function, sampler, (30, 5)));
        // Distances to the minimum; measured are factors of 2.5 to 50.
        let floor = if function == Function::Hartmann { -3.32237 } else { 0.0 };
        assert!(gp - floor < 0.6 * (random - floor), "{function:?}: {gp} with the process, {random} without");
    }
}

#[test]
fn tpe_finds_lower_losses_than_random_trials() {
    for function in [Function::Sphere, Function::Rosenbrock, Function::Mixed] {
        let [random, tpe] = [Sampler::Random, Sampler::Tpe].map(|sampler| median_best(function, sampler, (100, 5)));
        assert!(tpe < 0.6 * random, "{function:?}: {tpe} with tpe, {random} without");
    }
}

#[test]
fn importance_names_the_setting_that_matters() {
    let function = Function::Mixed;
    let study = run(Study::new(settings(function, Sampler::Random, 40, 1), 0).unwrap(), function);
    let importance = study.importance();
    let sum: f64 = importance.values().sum();
    assert!((sum - 1.0).abs() < 1e-9, "shares add up to 1, got {sum}");
    // Over the space, the squares of the axes' own terms have a mean of 5.2 (dim), 4.6 (rate); that
    // of the choice varies least.
    assert!(importance["kind"] < importance["dim"] && importance["kind"] < importance["rate"], "{importance:?}");
    assert!(importance["kind"] > 0.01, "{importance:?}");
}
