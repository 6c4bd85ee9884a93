#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::num::NonZeroUsize;

use celeris_model::Loss;

use super::*;
use crate::progress::Silent;

fn settings() -> EvaluateSettings<'static> {
    EvaluateSettings { dim: 24, seed: 3, threads: NonZeroUsize::MIN, loss: Loss::Logistic, progress: &Silent }
}

/// A stream on which a training takes seconds.
fn small() -> Clicks {
    ClickSettings { users: 400, items: 80, rows: 24_000, seed: 3 }.generate().unwrap()
}

#[test]
fn parts_find_the_effect_of_item_and_context() {
    let clicks = small();
    let (first, second) = clicks.rows.split_at(clicks.rows.len() / 2);
    let training = Training::new(&clicks, first).unwrap();
    let version = |name, parts| training.run(name, parts, &settings(), Part::unreported()).unwrap();
    let (without, with) = (version("without", Vec::new()), version("with", parts().unwrap()));
    assert_eq!((without.theta.dim(), with.theta.dim()), (24, 24));
    let predicted = |version| progressive(version, (&clicks, first, second), Part::unreported()).unwrap();
    let ((without, of_without), (with, of_with)) = (predicted(&without), predicted(&with));
    let truth = quality(second, |row| clicks.truth.probability(row.user, row.item, row.circumstances)).log_loss;
    let (loss_without, loss_with) = (of_without.log_loss, of_with.log_loss);
    // Without the context, most of its effect is lost; with it, the users' tastes are left to learn.
    assert!(loss_with < loss_without - 0.04, "{loss_with} {loss_without} {truth}");
    assert!(
        truth < loss_with && loss_with < truth + 0.45 * (loss_without - truth),
        "{loss_with} {loss_without} {truth}"
    );
    // The rate of clicks in a tenth of the rows varies by 0.012. A level that does not follow the columns costs 0.02 more.
    assert!(of_with.calibration_error < 0.025, "{of_with:?}");

    let regrets = regrets([&without, &with], (&clicks, &second[..4000]), &settings()).unwrap();
    assert_eq!(regrets.len(), 2);
    for regret in regrets {
        assert!(regret.with_parts > 0.0 && regret.ratio < 0.6, "{regret:?}");
    }
}

#[test]
fn targets_without_the_peer_are_not_compared() {
    let quality = Quality { log_loss: 0.5, auc: Some(0.7), calibration_error: 0.01 };
    let policy = PolicySpec::named("greedy").unwrap();
    let mut report = ContextReport {
        protocol: "context",
        dim: 8,
        seed: 1,
        users: 2,
        items: 3,
        rows: [4, 4],
        base_rate: quality,
        without_parts: quality,
        with_parts: quality,
        vowpal_wabbit: None,
        truth: quality,
        candidates: 3,
        regret: vec![Regret { policy, without_parts: 10.0, with_parts: 6.0, ratio: 0.6 }],
        targets: Vec::new(),
    };
    let met = |report: &ContextReport| report.compared().iter().map(|target| target.met).collect::<Vec<_>>();
    assert_eq!(met(&report), [None, Some(false)]);
    report.targets = report.compared();
    let shown = report.to_string();
    assert!(shown.contains("Vowpal Wabbit         not there") && shown.contains("unknown: not compared"), "{shown}");
    report.vowpal_wabbit = Some(VowpalWabbit { log_loss: 0.51, options: "-q ac".to_owned(), tried: 3 });
    assert_eq!(met(&report), [Some(true), Some(false)]);
}
