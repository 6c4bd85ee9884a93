//! Clipper's figures 7, 8 and 10 on simulated models.

use celeris_bandits::selection::trial::{Dialects, Failure, Kept, Trial, alone, cumulative_mean};
use celeris_bandits::selection::{Exp3, Exp4, HalfLifeRecords, Strategy, TsallisInf};

fn half_life() -> Option<HalfLifeRecords> {
    Some(HalfLifeRecords::new(1000).unwrap())
}

/// Figure 8: the best model fails after 5,000 of 20,000 queries and recovers after 10,000.
#[test]
fn strategies_leave_a_failing_model_and_return_after_recovery() {
    let strategies: [(&str, &dyn Strategy); 3] =
        [("exp3", &Exp3::default()), ("exp4", &Exp4::default()), ("tsallis_inf", &TsallisInf::default())];
    for seed in [1, 2, 3] {
        let queries = Failure::of_the_paper(seed).queries();
        let best = Failure::NOISE.len() - 1;
        let singles: Vec<f64> = (0..=best).map(|arm| *alone(&queries, arm).last().unwrap()).collect();
        let best_single = singles.iter().copied().fold(f64::INFINITY, f64::min);
        for (name, strategy) in strategies {
            let trial = Trial { strategy, half_life: half_life(), kept: Kept::Together, seed };
            let answered = trial.run(&queries);
            let ours = *cumulative_mean(answered.iter().map(|answer| answer.error)).last().unwrap();
            assert!(ours < best_single, "{name}, seed {seed}: {ours} against {singles:?}");
            let mean_weight = |from: usize, to: usize| {
                answered[from..to].iter().map(|answer| answer.weights[best]).sum::<f64>() / (to - from) as f64
            };
            assert!(mean_weight(4_000, 5_000) > 0.5, "{name} had found the best");
            assert!(mean_weight(9_000, 10_000) < 0.15, "{name} turned away: {}", mean_weight(9_000, 10_000));
            assert!(mean_weight(19_000, 20_000) > 0.5, "{name} came back: {}", mean_weight(19_000, 20_000));
        }
    }
}

/// Figure 10: where users differ, a state for each of them beats one for all.
#[test]
fn states_by_user_beat_a_shared_state_if_users_differ() {
    let queries = Dialects { users: 50, queries_each: 200, kinds: 4, seed: 5 }.queries();
    for strategy in [&Exp4::default() as &dyn Strategy, &TsallisInf::default()] {
        let mean = |kept| {
            let answered = Trial { strategy, half_life: half_life(), kept, seed: 6 }.run(&queries);
            answered.iter().map(|answer| answer.error).sum::<f64>() / answered.len() as f64
        };
        let (by_user, together) = (mean(Kept::ByUser), mean(Kept::Together));
        assert!(by_user < 0.9 * together, "{by_user} against {together}");
    }
}

/// Figure 7: combined answers are better if the models agree.
#[test]
fn answers_with_agreement_are_better() {
    let queries = Failure { degraded: 0..0, ..Failure::of_the_paper(9) }.queries();
    let answered =
        Trial { strategy: &Exp4::default(), half_life: None, kept: Kept::Together, seed: 1 }.run(&queries[..5000]);
    let mean_error = |wanted: fn(f32) -> bool| {
        let errors: Vec<f64> =
            answered.iter().filter(|answer| answer.confidence.is_some_and(wanted)).map(|answer| answer.error).collect();
        assert!(errors.len() > 200, "enough of them: {}", errors.len());
        errors.iter().sum::<f64>() / errors.len() as f64
    };
    let (agreed, disputed) = (mean_error(|share| share >= 0.8), mean_error(|share| share <= 0.4));
    assert!(agreed < 0.9 * disputed, "{agreed} against {disputed}");
}
