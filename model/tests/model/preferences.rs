//! Implicit feedback compared with its definition, Hu, Koren and Volinsky (2008): a dense solve in
//! `f64` over all pairs, however often each was observed, corrected or retracted.

use celeris_model::preference::Takings;
use celeris_model::{Example, GramSums, HalfLife, Learning, Loss, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 5;
const ITEMS: usize = 7;
const REGULARIZATION: f64 = 0.8;
const HALF_LIFE_HOURS: f64 = 6.0;

/// One observation as the log has it.
#[derive(Debug, Clone, Copy)]
struct Event {
    item: usize,
    label: f32,
    weight: f32,
    hour: i64,
}

/// An amendment of an earlier observation.
#[derive(Debug, Clone, Copy)]
enum Amended {
    Corrected(usize, f32),
    Retracted(usize),
}

/// Row-major `ITEMS x DIM`, the last entry of a row 1.
fn catalog() -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let row = |_| (0..DIM).map(|j| if j == DIM - 1 { 1.0 } else { rng.random_range(-1.5..1.5) }).collect::<Vec<f32>>();
    (0..ITEMS).flat_map(row).collect()
}

fn features(catalog: &[f32], item: usize) -> &[f32] {
    &catalog[item * DIM..][..DIM]
}

fn items(catalog: &[f32]) -> DMatrix<f64> {
    DMatrix::from_fn(ITEMS, DIM, |item, j| f64::from(catalog[item * DIM + j]))
}

fn learning(catalog: &[f32], half_life: Option<HalfLife>) -> Learning {
    let items = items(catalog);
    let precision = items.transpose() * &items + DMatrix::identity(DIM, DIM) * REGULARIZATION;
    Learning::new(Prior::new(vec![0.0; DIM], precision.as_slice().to_vec(), 1.0).unwrap(), Loss::Implicit, half_life)
}

fn examples<'a>(catalog: &'a [f32], events: &[Event]) -> Vec<Example<'a>> {
    let mut takings = Takings::default();
    let example = |event: &Event| {
        let timestamp = Timestamp(event.hour * 3_600_000);
        let taken_before = takings.next(event.item, event.label, timestamp);
        let features = features(catalog, event.item);
        Example {
            features,
            label: event.label,
            offset: 0.0,
            weight: event.weight,
            timestamp,
            taken_before,
            choice: &[],
        }
    };
    events.iter().map(example).collect()
}

/// `(Y^T C Y + lambda I)^-1 Y^T C p` over the whole catalog, confidences and preferences pair by
/// pair. With a half-life, a pair is a preference of 1 with its decayed confidence, and for the
/// remaining share the 0 of the prior: `c (1 - s)^2 + z s^2`.
fn batch(catalog: &[f32], events: &[Event], half_life_hours: Option<f64>) -> (DVector<f64>, DMatrix<f64>) {
    let latest = events.iter().map(|event| event.hour).max().unwrap_or(0);
    let left = |hour: i64| half_life_hours.map_or(1.0, |life| 0.5_f64.powf((latest - hour) as f64 / life));
    let (mut confidence, mut zero) = (DVector::zeros(ITEMS), DVector::from_element(ITEMS, 1.0));
    for item in 0..ITEMS {
        let taken = events.iter().filter(|event| event.item == item && event.label > 0.0);
        let preferred = taken.clone().map(|event| left(event.hour)).fold(0.0, f64::max);
        let excess: f64 = taken.map(|event| left(event.hour) * f64::from(event.weight) * f64::from(event.label)).sum();
        confidence[item] = preferred + excess;
        zero[item] = 1.0 - preferred;
    }
    let items = items(catalog);
    let all = DMatrix::from_diagonal(&(&confidence + zero));
    let a = items.transpose() * all * &items + DMatrix::identity(DIM, DIM) * REGULARIZATION;
    let inverse = a.try_inverse().unwrap();
    (&inverse * items.transpose() * confidence, inverse)
}

/// Relative distance of a state from weights and inverse.
fn distance(model: &UserModel, exact: &(DVector<f64>, DMatrix<f64>)) -> f64 {
    let weights = (DVector::from_vec(model.weights()) - &exact.0).norm() / exact.0.norm().max(1e-3);
    let inverse = (DMatrix::from_row_slice(DIM, DIM, &model.gram_inverse()) - &exact.1).norm() / exact.1.norm();
    weights.max(inverse)
}

/// The guarantee for states, [`celeris_model::user_model::SINGLE_PRECISION_CONDITION_MAX`].
const GUARANTEED: f64 = 1e-4;

fn live(learning: &Learning, examples: &[Example]) -> UserModel {
    let mut model = UserModel::from_prior(learning).unwrap();
    for _ in examples {
        model.absorb(learning, examples).unwrap();
    }
    model
}

fn half_life() -> HalfLife {
    HalfLife::from_seconds(HALF_LIFE_HOURS * 3600.0).unwrap()
}

fn event() -> impl Strategy<Value = Event> {
    let label = prop_oneof![3 => 0.1_f32..4.0, 1 => Just(0.0_f32), 1 => Just(1.0_f32)];
    let weight = prop_oneof![2 => Just(1.0_f32), 1 => 0.05_f32..3.0];
    (0..ITEMS, label, weight, 0_i64..60).prop_map(|(item, label, weight, hour)| Event { item, label, weight, hour })
}

fn amended() -> impl Strategy<Value = Amended> {
    let label = prop_oneof![Just(0.0_f32), 0.1_f32..4.0];
    prop_oneof![
        (0..200_usize, label).prop_map(|(place, label)| Amended::Corrected(place, label)),
        (0..200_usize).prop_map(Amended::Retracted)
    ]
}

fn amend(mut events: Vec<Event>, amendments: &[Amended]) -> Vec<Event> {
    for amended in amendments {
        let count = events.len();
        match amended {
            _ if count == 0 => {}
            Amended::Corrected(place, label) => events[place % count].label = *label,
            Amended::Retracted(place) => {
                events.remove(place % count);
            }
        }
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(18),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_pair_is_one_preference_however_often_it_was_observed(
        events in prop::collection::vec(event(), 1..140),
        amendments in prop::collection::vec(amended(), 0..6),
        fades: bool,
    ) {
        let catalog = catalog();
        let events = amend(events, &amendments);
        let learning = learning(&catalog, fades.then(half_life));
        let examples = examples(&catalog, &events);
        let model = live(&learning, &examples);
        let exact = batch(&catalog, &events, fades.then_some(HALF_LIFE_HOURS));
        let error = distance(&model, &exact);
        prop_assert!(error <= GUARANTEED, "{error:e} after {}", events.len());
        let rebuilt = UserModel::rebuild(&learning, examples.as_slice(), examples.len() as u64).unwrap();
        prop_assert_eq!(&model, &rebuilt);
        // The contributions sum to the score.
        for item in 0..ITEMS {
            let features = features(&catalog, item);
            let explained = model.influence(&learning, examples.as_slice(), 0.0, features).unwrap();
            let sum = explained.prior + explained.contributions.iter().sum::<f64>();
            let score = f64::from(model.response(features));
            prop_assert!((sum - score).abs() <= GUARANTEED * (1.0 + score.abs()), "{sum} is not {score}");
        }
    }
}

/// A hundred plays of one item are a confident preference of 1, not a preference of 2.
#[test]
fn plays_approach_a_score_of_one_and_do_not_pass_it() {
    let catalog = catalog();
    let learning = learning(&catalog, None);
    for (weight, least) in [(1.0, 0.9), (0.1, 0.5), (100.0, 0.99)] {
        let mut before = 0.0;
        for plays in [1, 2, 5, 10, 100, 1000] {
            let events = vec![Event { item: 2, label: 1.0, weight, hour: 0 }; plays];
            let score = live(&learning, &examples(&catalog, &events)).response(features(&catalog, 2));
            assert!(score > before && score < 1.0, "{score} after {plays} plays of weight {weight}, {before} before");
            before = score;
        }
        assert!(before > least, "{before}");
    }
}

/// With a half-life the preference is as fresh as the latest play, late observations do not make it
/// older, and without further plays it decays to nothing.
#[test]
fn a_preference_is_as_fresh_as_the_latest_play() {
    let catalog = catalog();
    let learning = learning(&catalog, Some(half_life()));
    let score = |plays: &[(usize, i64)]| {
        let events: Vec<Event> =
            plays.iter().map(|&(item, hour)| Event { item, label: 1e-3, weight: 1.0, hour }).collect();
        live(&learning, &examples(&catalog, &events)).response(features(&catalog, 2))
    };
    // With almost no excess, a score is that of the preference alone.
    let once = score(&[(2, 100)]);
    assert!((score(&[(2, 0), (2, 50), (2, 100)]) - once).abs() < 2e-3 * once.abs());
    assert!((score(&[(2, 100), (2, 0), (2, 50)]) - once).abs() < 2e-3 * once.abs());
    let faded = score(&[(2, 0), (2, 100), (3, 100 + HALF_LIFE_HOURS as i64)]) - score(&[(3, 0)]);
    assert!((faded - once / 2.0).abs() < 5e-3 * once.abs(), "{faded} is not half of {once}");
    let gone = score(&[(2, 0), (2, 10), (3, 10_000)]) - score(&[(3, 0)]);
    assert!(gone.abs() < 1e-5, "{gone}");
}

#[test]
fn the_smallest_and_the_largest_excess_are_solved_as_any_other() {
    let catalog = catalog();
    let learning = learning(&catalog, None);
    let least = f32::from_bits(1);
    for (label, weight) in [(least, least), (1e-20, 1e-20), (1e-3, f32::MIN_POSITIVE), (1e3, 1e3)] {
        let events: Vec<Event> =
            [0, 0, 1, 0].iter().map(|item| Event { item: *item, label, weight, hour: 0 }).collect();
        let error = distance(&live(&learning, &examples(&catalog, &events)), &batch(&catalog, &events, None));
        assert!(error <= GUARANTEED, "{error:e} of label {label:e} and weight {weight:e}");
    }
}

/// Repeats on both sides of the checkpoint from which on sums are kept and earlier examples are not
/// read again.
#[test]
fn repeats_across_the_checkpoints_are_the_same_bits_live_rebuilt_and_resumed() {
    let catalog = catalog();
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let events: Vec<Event> = (0..8_300)
        .map(|index| Event {
            // Some items occur early and then only late.
            item: if index % 4_000 < 5 { index % ITEMS } else { rng.random_range(3..ITEMS) },
            label: f32::from(rng.random_range(0_u8..3)),
            weight: rng.random_range(0.5..1.5),
            hour: index as i64,
        })
        .collect();
    for half_life in [None, Some(half_life())] {
        let count = if half_life.is_some() { 4_300 } else { events.len() };
        let events = &events[..count];
        let learning = learning(&catalog, half_life);
        let examples = examples(&catalog, events);
        let mut model = UserModel::from_prior(&learning).unwrap();
        let mut kept = Vec::new();
        for index in 0..count {
            model.absorb(&learning, examples.as_slice()).unwrap();
            if (index + 1) % 4_096 == 0 {
                kept.push(model.sums().unwrap().to_bytes());
            }
        }
        let rebuilt = UserModel::rebuild(&learning, examples.as_slice(), count as u64).unwrap();
        assert_eq!(model.hash(), rebuilt.hash());
        for bytes in &kept {
            let sums = GramSums::from_bytes(bytes).unwrap();
            let resumed = UserModel::resume(&learning, sums, examples.as_slice(), count as u64).unwrap();
            assert_eq!(model.hash(), resumed.hash());
        }
        let error = distance(&model, &batch(&catalog, events, half_life.map(|_| HALF_LIFE_HOURS)));
        assert!(error <= GUARANTEED, "{error:e}");
    }
}
