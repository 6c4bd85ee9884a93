//! The reward model: cross-fitting, one regression for each position, and leverage.

use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::{RewardFeatures, RewardModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The features of every slot, shown and target.
struct Table(Vec<([f64; 2], [f64; 2])>);

impl RewardFeatures for Table {
    fn dim(&self) -> usize {
        2
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        shown.copy_from_slice(&self.0[slot].0);
        target.copy_from_slice(&self.0[slot].1);
    }
}

fn scene(count: usize, reward: impl Fn(usize, [f64; 2]) -> f64) -> (Vec<RewardRow>, Table) {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let mut pair = || [rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0)];
    let table = Table((0..count).map(|_| (pair(), pair())).collect());
    let row = |(slot, (shown, _)): (usize, &([f64; 2], [f64; 2]))| RewardRow {
        round: slot / 2,
        position: slot % 2,
        reward: reward(slot, *shown),
        weight_above: 1.0,
        kept_weight: if slot % 3 == 0 { 0.5 } else { 0.0 },
    };
    let rows = table.0.iter().enumerate().map(row).collect();
    (rows, table)
}

fn plane(position: usize, [a, b]: [f64; 2]) -> f64 {
    if position == 0 { 1.0 + 2.0 * a - b } else { -3.0 + 0.5 * a }
}

#[test]
fn a_plane_at_each_position_is_recovered() {
    let (rows, table) = scene(400, |slot, shown| plane(slot % 2, shown));
    let model = RewardModel { regularization: 1e-9, ..RewardModel::default() };
    for (slot, found) in model.cross_fit(&rows, &table).unwrap().into_iter().enumerate() {
        let (shown, target) = table.0[slot];
        // Exact up to the regularization and the rounding of the solve.
        assert!((found.expected - plane(slot % 2, shown)).abs() < 1e-8);
        assert!((found.expected_target - plane(slot % 2, target)).abs() < 1e-8);
    }
}

#[test]
fn no_round_is_predicted_from_its_own_reward() {
    let model = RewardModel::default();
    let (rows, table) = scene(60, |slot, shown| plane(slot % 2, shown));
    let before = model.cross_fit(&rows, &table).unwrap();
    let mut other = rows.clone();
    // Both slots of round 3.
    (other[6].reward, other[7].reward) = (1e6, -1e6);
    let after = model.cross_fit(&other, &table).unwrap();
    assert_eq!(&before[6..8], &after[6..8], "predictions for round 3 come from the other rounds");
    assert_ne!(before, after);
}

#[test]
fn leverage_is_the_derivative_of_the_predictions() {
    let model = RewardModel::default();
    let (rows, table) = scene(60, |slot, shown| plane(slot % 2, shown) + (slot as f64).sin());
    let sums = |rows: &[RewardRow]| -> [f64; 2] {
        let found = model.cross_fit(rows, &table).unwrap();
        let corrected: f64 = found.iter().zip(rows).map(|(found, row)| row.kept_weight * found.expected).sum();
        let target: f64 = found.iter().map(|found| found.expected_target).sum();
        [target, target - corrected]
    };
    let (found, before) = (model.cross_fit(&rows, &table).unwrap(), sums(&rows));
    for slot in [0, 7, 31] {
        let mut moved = rows.clone();
        moved[slot].reward += 1.0;
        let after = sums(&moved);
        // Predictions are linear in the rewards, so one step gives the derivative up to rounding.
        assert!((after[0] - before[0] - found[slot].leverage).abs() < 1e-9);
        assert!((after[1] - before[1] - found[slot].leverage_switched).abs() < 1e-9);
    }
}

#[test]
fn invalid_settings_are_refused() {
    let (rows, table) = scene(60, |_, _| 0.0);
    for (model, expected) in [
        (RewardModel { folds: 1, ..RewardModel::default() }, "folds must be at least 2, got 1"),
        (RewardModel { regularization: 0.0, ..RewardModel::default() }, "regularization must be above 0, got 0"),
    ] {
        assert_eq!(model.cross_fit(&rows, &table).unwrap_err().to_string(), expected);
    }
}
