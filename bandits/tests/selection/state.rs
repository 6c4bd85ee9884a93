//! States: independent of the order, exact under changes, and faded by places only.

use celeris_bandits::selection::{ArmSums, Exp4, Fixed, HalfLifeRecords, Layout, Outcome, Place, State, Strategy as _};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

const LANES: usize = 4;

fn layout(half_life: Option<u64>) -> Layout {
    let half_life = half_life.map(|records| HalfLifeRecords::new(records).unwrap());
    Layout { arms: 3, groups: 2, lanes: LANES, half_life }
}

/// A record of a lane: its group and the losses of the arms.
type Logged = (usize, [f64; 3]);

fn add(state: &mut State, lane: usize, position: u64, (group, losses): Logged) {
    let losses = losses.map(Some);
    state.add(Place { lane, position, group }, &Exp4::default().observe(Outcome::Every(&losses)));
}

fn log() -> impl Strategy<Value = Vec<(usize, Logged)>> {
    let record = (0_usize..2, [0.0..1.0_f64, 0.0..1.0, 0.0..1.0]);
    prop::collection::vec((0_usize..LANES, record), 1..600)
}

/// Adds record by record, like a live node.
fn live(layout: Layout, log: &[(usize, Logged)]) -> State {
    let mut state = State::new(layout);
    let mut ends = [0; LANES];
    for (lane, logged) in log {
        ends[*lane] += 1;
        state.advance(&ends);
        add(&mut state, *lane, ends[*lane], *logged);
    }
    state
}

/// Sets the ends first, then adds the records that count in any order, like a restart.
fn rebuilt(layout: Layout, log: &[(usize, Logged)], seed: u64) -> State {
    let mut ends = [0; LANES];
    let mut records = Vec::new();
    for (lane, logged) in log {
        ends[*lane] += 1;
        records.push((*lane, ends[*lane], *logged));
    }
    records.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut state = State::new(layout);
    state.advance(&ends);
    for (lane, position, logged) in records {
        if position >= state.first_counting(lane) {
            add(&mut state, lane, position, logged);
        }
    }
    state
}

/// The state built from the sums of another one.
fn restored(layout: Layout, state: &State) -> State {
    let ends: Vec<u64> = (0..LANES).map(|lane| state.clock(lane)).collect();
    State::with_sums(layout, &ends, state.sums()).unwrap()
}

#[test]
fn sums_outside_the_layout_are_refused() {
    let fits = Place { lane: 1, position: 3, group: 1 };
    let sums = ArmSums { outcomes: 1, ..ArmSums::default() };
    let refused = |place, arm| State::with_sums(layout(None), &[0, 3, 0, 0], [(place, arm, sums)]).is_none();
    assert!(!refused(fits, 2));
    assert!(refused(fits, 3));
    assert!(refused(Place { lane: LANES, ..fits }, 0) && refused(Place { lane: 0, ..fits }, 0));
    assert!(refused(Place { position: 0, ..fits }, 0) && refused(Place { position: 4, ..fits }, 0));
    assert!(refused(Place { group: 2, ..fits }, 0));
    assert!(State::with_sums(layout(None), &[0; LANES - 1], []).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    /// A state built from the sums of another one is equal to it, and stays equal while both learn.
    #[test]
    fn a_restored_state_continues_as_the_live_one(log in log(), fades in any::<bool>(), at in 0.0..1.0_f64) {
        let layout = layout(fades.then_some(20));
        let (before, after) = log.split_at((at * log.len() as f64) as usize);
        let mut live = live(layout, before);
        let mut restored = restored(layout, &live);
        let mut ends: Vec<u64> = (0..LANES).map(|lane| live.clock(lane)).collect();
        for (lane, logged) in after {
            ends[*lane] += 1;
            for state in [&mut live, &mut restored] {
                state.advance(&ends);
                add(state, *lane, ends[*lane], *logged);
            }
        }
        for group in 0..2 {
            prop_assert_eq!(live.canonical_bytes(group), restored.canonical_bytes(group));
            prop_assert_eq!(live.faded(group), restored.faded(group));
        }
    }

    #[test]
    fn a_rebuilt_state_equals_the_live_one_in_any_order(log in log(), fades in any::<bool>(), seed in any::<u64>()) {
        let layout = layout(fades.then_some(20));
        let (live, rebuilt) = (live(layout, &log), rebuilt(layout, &log, seed));
        for group in 0..2 {
            prop_assert_eq!(live.canonical_bytes(group), rebuilt.canonical_bytes(group));
            prop_assert_eq!(live.faded(group), rebuilt.faded(group));
        }
    }

    /// After a change, reading the outcome's block again gives the same state as if the outcome had
    /// always been so.
    #[test]
    fn a_block_read_again_has_the_new_outcome(log in log(), fades in any::<bool>(), at in any::<prop::sample::Index>()) {
        let layout = layout(fades.then_some(20));
        let mut changed = log.clone();
        let at = at.index(log.len());
        changed[at].1.1 = [0.0, 1.0, 0.5];
        let lane = changed[at].0;
        let of_lane: Vec<Logged> = changed.iter().filter(|(other, _)| *other == lane).map(|(_, logged)| *logged).collect();
        let position = 1 + log[..at].iter().filter(|(other, _)| *other == lane).count() as u64;
        let mut state = live(layout, &log);
        let (first, last) = state.span(lane, position);
        state.clear(lane, position);
        for position in first..=last.min(of_lane.len() as u64) {
            add(&mut state, lane, position, of_lane[position as usize - 1]);
        }
        let expected = live(layout, &changed);
        for group in 0..2 {
            prop_assert_eq!(state.canonical_bytes(group), expected.canonical_bytes(group));
        }
    }
}

#[test]
fn sums_lose_half_of_their_weight_in_a_half_life() {
    let mut state =
        State::new(Layout { arms: 1, groups: 1, lanes: 1, half_life: Some(HalfLifeRecords::new(100).unwrap()) });
    let one = ArmSums { outcomes: 1, loss: Fixed::nearest(1.0), estimated: Fixed::nearest(1.0) };
    state.advance(&[25]);
    state.add(Place { lane: 0, position: 25, group: 0 }, &[(0, one)]);
    for (end, left) in [(25, 1.0), (125, 0.5), (225, 0.25)] {
        state.advance(&[end]);
        assert!((state.faded(0).arms[0].loss - left).abs() < 1e-12, "after {end}");
    }
    // The state at 225 as of 125, from the same blocks.
    assert!((state.faded_before(0, 100).arms[0].loss - 0.5).abs() < 1e-12);
    state.advance(&[25 + 12 * 100]);
    assert!(state.faded(0).arms[0].loss > 0.0);
    state.advance(&[26 + 12 * 100]);
    assert_eq!(state.faded(0).arms[0].loss, 0.0, "too old to count");
}

/// A user with ten times as many events as others does not make the others' lanes fade ten times as
/// slowly.
#[test]
fn lanes_fade_by_their_share_of_the_stream() {
    let half_life = Some(HalfLifeRecords::new(1000).unwrap());
    let mut state = State::new(Layout { arms: 1, groups: 1, lanes: 2, half_life });
    let one = [(0, ArmSums { outcomes: 1, loss: Fixed::nearest(1.0), estimated: Fixed::nearest(1.0) })];
    // The ends of blocks, which are of 125 records.
    state.advance(&[10_000, 1_000]);
    state.add(Place { lane: 1, position: 1_000, group: 0 }, &one);
    state.advance(&[20_000, 2_000]);
    // 1,000 records of its lane are 11,000 of the stream.
    let left = state.faded(0).arms[0].loss;
    assert!((left.log2() + 11.0).abs() < 1e-9, "{left}");
}

#[test]
fn memory_is_bounded_however_long_the_log() {
    for half_life in [None, Some(HalfLifeRecords::new(1000).unwrap())] {
        let mut state = State::new(Layout { arms: 5, groups: 1, lanes: 1, half_life });
        let losses = [Some(0.5); 5];
        for position in 1..=100_000 {
            state.advance(&[position]);
            state.add(Place { lane: 0, position, group: 0 }, &Exp4::default().observe(Outcome::Every(&losses)));
            assert!(state.bytes() < 20_000, "{} bytes after {position}", state.bytes());
        }
    }
}
