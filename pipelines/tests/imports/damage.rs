//! Files that were damaged on purpose: an error or a model, and never a panic.

use celeris_pipelines::trees::TreeEnsemble;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A change of a file at a place.
#[derive(Debug, Clone)]
enum Change {
    Replace(u8),
    Insert(Vec<u8>),
    Remove(usize),
    /// Repeats what follows.
    Repeat(usize),
    /// Ends the file.
    End,
}

fn change() -> impl Strategy<Value = (Index, Change)> {
    let change = prop_oneof![
        6 => any::<u8>().prop_map(Change::Replace),
        // What stands in both formats: digits, signs, separators.
        4 => prop::sample::select(b"0123456789-=. \nenaif_".to_vec()).prop_map(Change::Replace),
        2 => vec(any::<u8>(), 1..12).prop_map(Change::Insert),
        2 => (1..64usize).prop_map(Change::Remove),
        2 => (1..64usize).prop_map(Change::Repeat),
        1 => Just(Change::End),
    ];
    (any::<Index>(), change)
}

fn apply(bytes: &mut Vec<u8>, changes: &[(Index, Change)]) {
    for (place, change) in changes {
        if bytes.is_empty() {
            return;
        }
        let place = place.index(bytes.len());
        let until = |length: usize| place..(place + length).min(bytes.len());
        match change {
            Change::Replace(byte) => bytes[place] = *byte,
            Change::Insert(inserted) => drop(bytes.splice(place..place, inserted.iter().copied())),
            Change::Remove(length) => drop(bytes.drain(until(*length))),
            Change::Repeat(length) => {
                let repeated = bytes[until(*length)].to_vec();
                bytes.splice(place..place, repeated);
            }
            Change::End => bytes.truncate(place),
        }
    }
}

/// An ensemble that was accepted can be stored and run.
fn check_ensemble(ensemble: &TreeEnsemble) {
    assert_eq!(TreeEnsemble::decode(&ensemble.encode()).as_ref(), Ok(ensemble));
    let mut outputs = vec![0.0; ensemble.outputs()];
    for value in [f32::NAN, 0.5] {
        ensemble.score(&vec![value; ensemble.inputs()], &mut outputs);
        assert!(outputs.iter().all(|output| output.is_finite()));
    }
}

/// A graph that was accepted is a pipeline, unless it exceeds the bounds of pipelines, and runs.
fn check_graph(case: &Case, model: &[u8]) {
    let Ok(imported) = onnx::import(model, &case.import_inputs()) else { return };
    let Ok(plan) = compile(imported) else { return };
    let mut outputs = vec![0.0; plan.dim()];
    let Fields { item, context } = &case.facts.records[0];
    plan.run(Record { item, context }, &mut Scratch::default(), &mut outputs).unwrap();
    assert!(outputs.iter().all(|output| output.is_finite()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_lightgbm_models_give_an_error_or_a_model(at in any::<Index>(), changes in vec(change(), 1..4)) {
        let mut model = at.get(&MODELS.0).model.clone();
        apply(&mut model, &changes);
        if let Ok(imported) = lightgbm::read(&model) {
            check_ensemble(&imported.ensemble);
        }
    }

    #[test]
    fn damaged_onnx_models_give_an_error_or_a_pipeline(at in any::<Index>(), changes in vec(change(), 1..4)) {
        let case = at.get(&MODELS.1);
        let mut model = case.model.clone();
        apply(&mut model, &changes);
        check_graph(case, &model);
    }

    #[test]
    fn any_bytes_are_refused(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(lightgbm::read(&bytes).is_err());
        // Only a file with a graph and an output is a model, which no short noise has.
        prop_assert!(onnx::import(&bytes, &ImportInputs::default()).is_err());
    }
}

static MODELS: std::sync::LazyLock<(Vec<Case>, Vec<Case>)> = std::sync::LazyLock::new(|| (cases("txt"), cases("onnx")));

#[test]
fn truncated_models_are_refused() {
    for case in &MODELS.0 {
        // The last line ends the trees.
        let end = case.model.windows(12).position(|line| line == b"end of trees").unwrap();
        for length in (0..end).step_by(61) {
            assert!(lightgbm::read(&case.model[..length]).is_err(), "{} cut at {length}", case.name);
        }
    }
    for case in &MODELS.1 {
        for length in 0..case.model.len().min(2000) {
            check_graph(case, &case.model[..length]);
        }
    }
}
