//! Weights, labels and features anywhere within their bounds: a state always exists, is finite, and
//! is the same live and rebuilt.

use celeris_model::observation::{LABEL_ABS_MAX, WEIGHT_MAX};
use celeris_model::preference::Takings;
use celeris_model::{Example, HalfLife, Learning, Loss, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;

const DIM: usize = 6;

/// The largest magnitude of a feature that a caller may give,
/// `celeris_features::table::FEATURE_ABS_MAX`.
const FEATURE_MAX: f32 = 1e4;

#[derive(Debug, Clone)]
struct Event {
    features: Vec<f32>,
    label: f32,
    weight: f32,
    hour: i64,
}

/// Any magnitude from the smallest to `largest`, including both ends.
fn magnitude(largest: f32) -> impl Strategy<Value = f32> {
    prop_oneof![
        2 => Just(largest),
        1 => Just(f32::from_bits(1)),
        2 => Just(1.0_f32),
        5 => (-44.0_f32..largest.log10()).prop_map(|exponent| 10.0_f32.powf(exponent).max(f32::from_bits(1))),
    ]
}

fn signed(largest: f32) -> impl Strategy<Value = f32> {
    (magnitude(largest), -1_i8..=1).prop_map(|(magnitude, sign)| magnitude * f32::from(sign))
}

fn event() -> impl Strategy<Value = Event> {
    let features = prop_oneof![
        prop::collection::vec(signed(FEATURE_MAX), DIM),
        // All large, and nearly in one direction.
        (signed(1.0), prop::collection::vec(1e4_f32 - 10.0..1e4, DIM))
            .prop_map(|(scale, row)| row.into_iter().map(|x| x * scale).collect()),
    ];
    (features, signed(LABEL_ABS_MAX), magnitude(WEIGHT_MAX), 0_i64..50).prop_map(
        |(mut features, label, weight, hour)| {
            features[DIM - 1] = 1.0;
            Event { features, label, weight, hour }
        },
    )
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![Just(Loss::Squared), Just(Loss::Logistic), Just(Loss::Implicit)]
}

fn examples(events: &[Event], repeats: usize) -> Vec<Example<'_>> {
    let mut takings = Takings::default();
    let all = events.iter().enumerate().cycle().take(events.len() * repeats);
    let example = |(item, event): (usize, &'_ Event)| (item, event.label, event.weight, event.hour);
    let rows = all.map(|(item, event)| (example((item, event)), event.features.as_slice()));
    rows.map(|((item, label, weight, hour), features)| {
        let timestamp = Timestamp(hour * 3_600_000);
        let taken_before = takings.next(item, label, timestamp);
        Example { features, label, offset: 0.0, weight, timestamp, taken_before, choice: &[] }
    })
    .collect()
}

fn check(learning: &Learning, examples: &[Example]) -> Result<UserModel, TestCaseError> {
    let mut model = UserModel::from_prior(learning).unwrap();
    for index in 0..examples.len() {
        let absorbed = model.absorb(learning, examples);
        prop_assert!(absorbed.is_ok(), "{absorbed:?} at {index} of {examples:?}");
        prop_assert!(model.weights().iter().all(|weight| weight.is_finite()), "weights {:?}", model.weights());
        let estimate = model.estimate(learning, 0.0, examples[index].features);
        prop_assert!(estimate.score.is_finite() && estimate.std_error.is_finite(), "{estimate:?} at {index}");
    }
    let rebuilt = UserModel::rebuild(learning, examples, examples.len() as u64).unwrap();
    prop_assert_eq!(model.hash(), rebuilt.hash());
    let drawn = model.sampler(learning).map(|mut sampler| sampler.draw(|| 1.0).to_vec());
    prop_assert!(drawn.as_ref().is_ok_and(|weights| weights.iter().all(|weight| weight.is_finite())), "{drawn:?}");
    Ok(model)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(18),
        ..ProptestConfig::default()
    })]

    #[test]
    fn states_of_extreme_observations_are_finite_and_rebuilt_to_their_bits(
        events in prop::collection::vec(event(), 1..12),
        repeats in 1_usize..5,
        loss in loss(),
        fades: bool,
        precision in prop_oneof![Just(1.0), Just(1e-3), Just(1e4)],
    ) {
        let half_life = fades.then(|| HalfLife::from_seconds(7200.0).unwrap());
        let learning = Learning::new(Prior::isotropic(DIM, precision, 0.5).unwrap(), loss, half_life);
        check(&learning, &examples(&events, repeats))?;
    }

    /// With large weights, the score converges to the label and stays there.
    #[test]
    fn scores_reach_labels_with_the_largest_weights(
        scale in 1.0_f32..FEATURE_MAX,
        others in prop::collection::vec(-1.0_f32..1.0, DIM - 1),
        weight in 1e3_f32..WEIGHT_MAX,
        label in prop_oneof![Just(1.0_f32), 1.0_f32..LABEL_ABS_MAX],
        implicit: bool,
        count in 1_usize..40,
    ) {
        let mut features: Vec<f32> = others.iter().map(|x| x * scale).collect();
        features.push(1.0);
        let loss = if implicit { Loss::Implicit } else { Loss::Squared };
        let learning = Learning::new(Prior::isotropic(DIM, 1.0, 0.5).unwrap(), loss, None);
        let events = vec![Event { features: features.clone(), label, weight, hour: 0 }];
        let model = check(&learning, &examples(&events, count))?;
        let wanted = if implicit { 1.0 } else { label };
        let score = model.response(&features);
        // The prior's zero has a share of one in a thousand at a weight of a thousand, twice that
        // for rounding.
        prop_assert!((score - wanted).abs() <= 3e-3 * wanted, "{score} is not {wanted}");
    }
}

/// After an observation of one direction with the largest weight, the state can still learn another
/// direction.
#[test]
fn a_heavy_observation_does_not_prevent_learning_another_direction() {
    let learning = Learning::from(Prior::isotropic(2, 1.0, 0.5).unwrap());
    let rows: [[f32; 2]; 2] = [[1e4, 1.0], [0.0, 1.0]];
    let example = |row: usize, label, weight| Example {
        features: &rows[row],
        label,
        offset: 0.0,
        weight,
        timestamp: Timestamp(0),
        taken_before: None,
        choice: &[],
    };
    let examples = [example(0, 3.0, 1e6), example(1, 2.0, 1e3), example(1, 2.0, 1e3), example(0, 3.0, 1e6)];
    let model = UserModel::rebuild(&learning, examples.as_slice(), 4).unwrap();
    let mut a = DMatrix::<f64>::identity(2, 2);
    let mut moment = DVector::<f64>::zeros(2);
    for example in &examples {
        let x = DVector::from_iterator(2, example.features.iter().map(|x| f64::from(*x)));
        a.ger(f64::from(example.weight), &x, &x, 1.0);
        moment.axpy(f64::from(example.weight) * f64::from(example.label), &x, 1.0);
    }
    let exact = a.lu().solve(&moment).unwrap();
    for (weight, exact) in model.weights().iter().zip(exact.iter()) {
        assert!((weight - exact).abs() <= 1e-4 * exact.abs(), "{weight} is not {exact}");
    }
}

/// Between two checkpoints, the spreads of rank-one steps may be far below the rounding of their
/// inputs; the steps must not diverge.
#[test]
fn scores_of_contradicting_heavy_observations_stay_between_the_labels() {
    let learning = Learning::new(Prior::isotropic(DIM, 1e-3, 0.5).unwrap(), Loss::Squared, None);
    let rows: Vec<Event> = (0..5_i16)
        .map(|row| {
            let features =
                (0..DIM as i16).map(|j| if j + 1 == DIM as i16 { 1.0 } else { 9e3 + f32::from(row % 3 * j) });
            Event {
                features: features.collect(),
                label: f32::from(row % 2) * LABEL_ABS_MAX,
                weight: WEIGHT_MAX,
                hour: 0,
            }
        })
        .collect();
    let examples = examples(&rows, 180);
    let mut model = UserModel::from_prior(&learning).unwrap();
    for index in 0..examples.len() {
        model.absorb(&learning, examples.as_slice()).unwrap();
        let score = model.response(examples[index].features);
        assert!((-0.2..=1.2).contains(&(score / LABEL_ABS_MAX)), "{score} after {index}");
    }
}
