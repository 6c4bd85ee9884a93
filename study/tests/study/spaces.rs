use celeris_study::{Collaborative, Params, Sampler, Settings, Space, StudyError};
use proptest::prelude::*;
use serde_json::json;

use crate::functions::Function;
use crate::settings;

#[test]
fn invalid_spaces_are_refused_with_their_field() {
    for (space, field) in [
        (json!({}), "space"),
        (json!({"dim": {}}), "space.dim"),
        (json!({"dim": {"int": [8, 64], "float": [1.0, 2.0]}}), "space.dim"),
        (json!({"dim": {"int": [64, 8]}}), "space.dim.int"),
        (json!({"dim": {"int": [0, 8], "log": true}}), "space.dim.int"),
        (json!({"dim": {"int": [0, 1_i64 << 60]}}), "space.dim.int"),
        (json!({"rate": {"float": [1.0, 1.0]}}), "space.rate.float"),
        (json!({"rate": {"float": [0.0, 1.0], "log": true}}), "space.rate.float"),
        (json!({"rate": {"float": [-1.7e308, 1.7e308]}}), "space.rate.float"),
        (json!({"kind": {"choice": ["a"]}}), "space.kind.choice"),
        (json!({"kind": {"choice": ["a", "a"]}}), "space.kind.choice"),
        (json!({"kind": {"choice": ["a", [1]]}}), "space.kind.choice"),
        (json!({"kind": {"choice": ["a", "b"], "log": true}}), "space.kind.log"),
    ] {
        let error = serde_json::from_value::<Space>(space.clone()).expect_err("an invalid space").to_string();
        assert!(error.starts_with(&format!("{field}: ")), "{space}: {error}");
    }
}

#[test]
fn settings_out_of_bounds_are_refused_with_their_field() {
    let valid = settings(Function::Mixed, Sampler::Gp, 10, 1);
    let collaborative = |change: fn(&mut Collaborative)| {
        let mut collaborative = Collaborative::default();
        change(&mut collaborative);
        Settings { collaborative: Some(collaborative), ..valid.clone() }
    };
    for (wrong, field) in [
        (Settings { trials: 0, ..valid.clone() }, "trials"),
        (Settings { trials: 501, ..valid.clone() }, "trials"),
        (Settings { seconds: Some(0), ..valid.clone() }, "seconds"),
        (Settings { workers: 0, ..valid.clone() }, "workers"),
        (Settings { workers: 33, remote_workers: 1, ..valid.clone() }, "workers"),
        (Settings { remote_workers: 33, ..valid.clone() }, "remote_workers"),
        (Settings { lease_seconds: 4, ..valid.clone() }, "lease_seconds"),
        (Settings { lease_seconds: 3601, ..valid.clone() }, "lease_seconds"),
        (Settings { patience: Some(0), ..valid.clone() }, "patience"),
        (collaborative(|it| it.alpha = 1.5), "collaborative.alpha"),
        (collaborative(|it| it.decay = f64::NAN), "collaborative.decay"),
        (collaborative(|it| it.delta = -1.0), "collaborative.delta"),
    ] {
        let Err(StudyError::Field { field: named, .. }) = wrong.check() else { panic!("{field} is not checked") };
        assert_eq!(named, field);
    }
    valid.check().unwrap();
}

proptest! {
    /// Every position has values in the space, which have a position with the same values.
    #[test]
    fn positions_and_values_belong_together(position in prop::array::uniform3(0.0..=1.0_f64)) {
        let space = Function::Mixed.space();
        let params = space.params_at(&position);
        let back = space.position_of(&params).unwrap();
        prop_assert_eq!(&space.params_at(&back), &params);
        let dim = params["dim"].as_i64().unwrap();
        prop_assert!((2..=256).contains(&dim));
        let read: Params = serde_json::from_str(&serde_json::to_string(&params).unwrap()).unwrap();
        prop_assert_eq!(read, params);
    }
}

#[test]
fn every_whole_number_is_proposed_about_equally_often() {
    let space: Space = serde_json::from_value(json!({"n": {"int": [1, 4]}})).unwrap();
    let mut counts = [0; 5];
    for step in 0..1000 {
        let params = space.params_at(&[f64::from(step) / 1000.0]);
        counts[usize::try_from(params["n"].as_i64().unwrap()).unwrap()] += 1;
    }
    assert_eq!(counts, [0, 250, 250, 250, 250]);
}

#[test]
fn values_outside_of_the_space_have_no_position() {
    let space = Function::Mixed.space();
    let inside = json!({"dim": 8, "rate": 0.1, "kind": null});
    assert!(space.position_of(&serde_json::from_value(inside.clone()).unwrap()).is_some());
    for (name, value) in [("dim", json!(1)), ("dim", json!(8.5)), ("rate", json!(2)), ("kind", json!("z"))] {
        let mut outside = inside.clone();
        outside[name] = value;
        assert_eq!(space.position_of(&serde_json::from_value(outside.clone()).unwrap()), None, "{outside}");
    }
    assert_eq!(space.position_of(&Params::new()), None);
}
