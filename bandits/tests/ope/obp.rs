//! Compares the estimators with the Open Bandit Pipeline, on the logs of `reference/obp_values.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use celeris_bandits::ope::{Estimator, LoggedSlot, OpeSettings, Rounds, values};
use serde::Deserialize;

/// Both sides add some hundred doubles, in another order.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Fixture {
    slots: usize,
    switch_threshold: f64,
    drawing: Log,
    deterministic: Log,
    rankings: Log,
}

#[derive(Deserialize)]
struct Log {
    action: Vec<usize>,
    reward: Vec<f64>,
    propensity: Vec<f64>,
    /// By round (for rankings: by slot) the probability of every action.
    target: Vec<Vec<f64>>,
    /// In the same layout, the model's predictions.
    model: Vec<Vec<f64>>,
    values: BTreeMap<String, Option<f64>>,
}

impl Log {
    fn rounds(&self, slots: usize) -> Rounds {
        let all: Vec<LoggedSlot> = (0..self.action.len())
            .map(|row| LoggedSlot {
                reward: self.reward[row],
                propensity: self.propensity[row],
                target: self.target[row][self.action[row]],
                expected: self.model[row][self.action[row]],
                expected_target: self.target[row].iter().zip(&self.model[row]).map(|(p, q)| p * q).sum(),
                leverage: 0.0,
                leverage_switched: 0.0,
            })
            .collect();
        let mut rounds = Rounds::default();
        all.chunks(slots).for_each(|round| rounds.push(round).unwrap());
        rounds
    }

    fn assert_equal(&self, slots: usize, switch_threshold: f64) {
        let settings = OpeSettings { switch_threshold, ..OpeSettings::default() };
        let ours = values(&self.rounds(slots), &settings);
        for (estimator, ours) in Estimator::ALL.into_iter().zip(ours) {
            let Some(theirs) = self.values.get(estimator.name()).copied().flatten() else { continue };
            let name = estimator.name();
            assert!((ours - theirs).abs() <= TOLERANCE, "{name}: {ours} is not {theirs}");
        }
    }
}

fn fixture() -> Fixture {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ope/reference/obp.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn estimators_equal_those_of_obp() {
    let fixture = fixture();
    assert_eq!(fixture.drawing.values.values().flatten().count(), 6);
    fixture.drawing.assert_equal(1, fixture.switch_threshold);
    assert_eq!(fixture.deterministic.values.values().flatten().count(), 7, "replay needs a deterministic policy");
    fixture.deterministic.assert_equal(1, fixture.switch_threshold);
}

#[test]
fn cascade_weights_equal_those_of_obp() {
    let fixture = fixture();
    assert_eq!(fixture.rankings.values.values().flatten().count(), 3);
    fixture.rankings.assert_equal(fixture.slots, f64::INFINITY);
}
