//! Probabilities of a first slot equal Vowpal Wabbit's for the same scores
//! (`reference/vowpal_wabbit.py`).

use celeris_bandits::PolicySpec;
use celeris_model::{Example, Timestamp, UserModel};
use serde::Deserialize;

use crate::scene::Scene;

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    policy: PolicySpec,
    /// Number of examples learnt before.
    learnt: u64,
    scores: Vec<f32>,
    probabilities: Vec<f64>,
}

#[test]
fn first_slots_have_the_probabilities_of_vowpal_wabbit() {
    let fixture: Fixture = serde_json::from_str(include_str!("reference/vowpal_wabbit.json")).unwrap();
    for case in &fixture.cases {
        let estimates: Vec<(f32, f32)> = case.scores.iter().map(|score| (*score, 0.1)).collect();
        let mut scene = Scene::scored(&estimates);
        // Vowpal Wabbit counts examples from 0; rounds count from 1 here.
        let row = [0.5, 1.0];
        let example = Example {
            features: &row,
            label: 1.0,
            offset: 0.0,
            weight: 1.0,
            timestamp: Timestamp(0),
            taken_before: None,
            choice: &[],
        };
        let history = vec![example; case.learnt as usize - 1];
        scene.posterior = UserModel::rebuild(&scene.learning, history.as_slice(), case.learnt - 1).unwrap();
        for (candidate, probability) in case.probabilities.iter().enumerate() {
            let ours = case.policy.policy().propensities(&scene.candidates(), &[candidate]).unwrap()[0];
            // Vowpal Wabbit computes in `f32`.
            assert!((ours - probability).abs() < 2e-6, "{ours} for {probability} of {candidate} by {:?}", case.policy);
        }
    }
    assert_eq!(fixture.cases.len(), 24);
}
