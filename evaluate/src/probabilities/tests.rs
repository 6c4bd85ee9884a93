#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::process::{Command, Stdio};

use celeris_skip::{self as skip, Need};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::*;
use crate::peers::Python;

/// Sums in another order differ in the last digits.
const ROUNDING: f64 = 1e-12;

/// Clicks with a rate of about a tenth, and predictions that say something about them. Every sixth
/// prediction is one of few values, so that there are ties.
fn clicks(count: usize) -> Vec<Predicted> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let row = |index: usize| {
        let rate: f64 = random.random_range(0.0..0.2);
        let probability = if index.is_multiple_of(6) { (rate * 20.0).round() / 20.0 } else { rate };
        Predicted { label: f64::from(u8::from(random.random_bool(rate))), probability }
    };
    (0..count).map(row).collect()
}

/// The share of pairs of a click and a row without in which the click has the higher prediction.
fn auc_by_pairs(predicted: &[Predicted]) -> f64 {
    let (mut won, mut pairs) = (0.0, 0.0);
    for one in predicted.iter().filter(|one| one.label == 1.0) {
        for other in predicted.iter().filter(|other| other.label == 0.0) {
            pairs += 1.0;
            won += match one.probability.total_cmp(&other.probability) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    won / pairs
}

#[test]
fn figures_are_those_of_their_definitions() {
    let predicted = clicks(600);
    let quality = Quality::of(&predicted);
    assert!((quality.auc.unwrap() - auc_by_pairs(&predicted)).abs() < ROUNDING);
    assert!(quality.auc.unwrap() > 0.55, "the predictions say something: {quality:?}");

    let of_label = |one: &Predicted| if one.label == 1.0 { one.probability } else { 1.0 - one.probability };
    let surprise: f64 = predicted.iter().map(|one| -of_label(one).clamp(CLIP, 1.0 - CLIP).ln()).sum();
    assert!((quality.log_loss - surprise / 600.0).abs() < ROUNDING);
}

#[test]
fn calibration_is_the_mean_distance_of_predicted_and_observed_rates_over_tenths() {
    // Distinct predictions in a known order, so that a tenth is 20 rows.
    let predicted: Vec<Predicted> = (0..200_u32)
        .map(|n| Predicted { label: f64::from(u8::from(n * n % 7 == 2)), probability: f64::from(n) / 400.0 })
        .collect();
    let mut shuffled = predicted.clone();
    shuffled.reverse();
    shuffled.swap(3, 150);
    let parts = reliability(&shuffled);
    assert_eq!(parts.len(), 10);
    let mut error = 0.0;
    for (tenth, part) in predicted.chunks(20).zip(&parts) {
        let (mut probability, mut label) = (0.0, 0.0);
        for one in tenth {
            probability += one.probability / 20.0;
            label += one.label / 20.0;
        }
        assert_eq!(part.rows, 20);
        assert!((part.predicted - probability).abs() < ROUNDING && (part.observed - label).abs() < ROUNDING);
        error += (probability - label).abs() / 10.0;
    }
    assert!((Quality::of(&shuffled).calibration_error - error).abs() < ROUNDING);
}

#[test]
fn equal_predictions_are_in_one_part_of_the_reliability_table() {
    let mut predicted = clicks(100);
    predicted.iter_mut().skip(30).for_each(|one| one.probability = 0.1);
    let parts = reliability(&predicted);
    assert_eq!(parts.iter().map(|part| part.rows).sum::<usize>(), 100);
    assert!(parts.iter().any(|part| part.rows >= 70), "{parts:?}");
    let constant: Vec<Predicted> = predicted.iter().map(|one| Predicted { probability: 0.3, ..*one }).collect();
    let (parts, quality) = (reliability(&constant), Quality::of(&constant));
    assert_eq!(parts.len(), 1, "{parts:?}");
    assert_eq!(quality.auc, Some(0.5));
    assert!((quality.calibration_error - (0.3 - parts[0].observed).abs()).abs() < ROUNDING);
}

#[test]
fn a_share_of_a_click_counts_as_a_row_of_each_kind() {
    let shares = [(0.25, 0.1), (1.0, 0.6), (0.5, 0.3), (0.0, 0.3), (0.75, 0.2)];
    let shares = shares.map(|(label, probability)| Predicted { label, probability });
    // A quarter of a click is a click and three rows without, in a data set of four times the size.
    let quarters = |one: Predicted| {
        [0.25, 0.5, 0.75, 1.0].map(|share| Predicted { label: f64::from(u8::from(one.label >= share)), ..one })
    };
    let whole: Vec<Predicted> = shares.into_iter().flat_map(quarters).collect();
    assert_eq!(whole.len(), 20);
    let (of_shares, of_whole) = (Quality::of(&shares), Quality::of(&whole));
    assert!((of_shares.log_loss - of_whole.log_loss).abs() < ROUNDING);
    assert!((of_shares.auc.unwrap() - auc_by_pairs(&whole)).abs() < ROUNDING);
}

#[test]
fn rows_of_one_kind_have_no_auc_and_certain_errors_a_bounded_loss() {
    let predicted = [Predicted { label: 1.0, probability: 0.0 }, Predicted { label: 1.0, probability: 1.0 }];
    let quality = Quality::of(&predicted);
    assert_eq!(quality.auc, None);
    assert!(quality.log_loss > 7.0 && quality.log_loss < 9.0, "half of -ln(1.2e-7): {quality:?}");
}

/// The figures of the same predictions by scikit-learn.
fn by_scikit_learn(python: &std::path::Path, predicted: &[Predicted]) -> Value {
    let script = "import json, sys\n\
                  from sklearn.metrics import log_loss, roc_auc_score\n\
                  label, probability = json.load(sys.stdin)\n\
                  print(json.dumps([log_loss(label, probability), roc_auc_score(label, probability)]))";
    let mut child =
        Command::new(python).args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let columns: [Vec<f64>; 2] = [
        predicted.iter().map(|one| one.label).collect(),
        predicted.iter().map(|one| one.probability.clamp(CLIP, 1.0 - CLIP)).collect(),
    ];
    child.stdin.take().unwrap().write_all(json!(columns).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn scikit_learn_computes_the_same_figures() {
    let named = std::env::var_os("CELERIS_PYTHON").map(std::path::PathBuf::from);
    let python = named.or_else(|| Python::find().map(|python| python.program("python")));
    let python = python.filter(|python| {
        let imported = Command::new(python).args(["-c", "import sklearn"]).output();
        imported.is_ok_and(|output| output.status.success())
    });
    let Some(python) = skip::unless(Need::Peers, python, "no Python with scikit-learn") else { return };
    let predicted = clicks(5000);
    let quality = Quality::of(&predicted);
    let theirs = by_scikit_learn(&python, &predicted);
    assert!((quality.log_loss - theirs[0].as_f64().unwrap()).abs() < 1e-9, "{quality:?} {theirs}");
    assert!((quality.auc.unwrap() - theirs[1].as_f64().unwrap()).abs() < 1e-9, "{quality:?} {theirs}");
}
