//! Settings convert from wire types to domain types and back without loss, and have the same
//! defaults.

use std::collections::BTreeSet;
use std::fmt::Debug;

use celeris_bandits::selection;
use celeris_manager as manager;
use celeris_model as model;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::selections::{Objective, Scope};
use super::settings::{DefaultReward, Gate, Guard, Loss, Metric, Trainer, TrainerLimits};
use super::triggers::{
    DriftTrigger, PopularityTrigger, ScheduleTrigger, Signal, StudyTrigger, ThresholdTrigger, Triggers, VolumeTrigger,
};

/// Deserializes `written`, in which no value is its default, and converts it to the domain and
/// back. The schema of the wire type must have a property for each of its fields.
#[track_caller]
fn assert_kept<Wire, Domain>(written: &Value)
where
    Wire: Serialize + DeserializeOwned + From<Domain> + utoipa::PartialSchema,
    Domain: From<Wire> + Debug,
{
    let wire: Wire = serde_json::from_value(written.clone()).unwrap();
    let domain = Domain::from(wire);
    assert_eq!(serde_json::to_value(Wire::from(domain)).unwrap(), *written);
    if let (Some(fields), schema) = (written.as_object(), serde_json::to_value(Wire::schema()).unwrap()) {
        let names = |object: &Map<String, Value>| object.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(schema["properties"].as_object().unwrap()), names(fields));
    }
}

/// Asserts that missing fields of `given` get the same defaults on the wire as in the domain.
#[track_caller]
fn assert_same_defaults<Wire, Domain>(given: &Value)
where
    Wire: DeserializeOwned,
    Domain: DeserializeOwned + From<Wire> + Debug + PartialEq,
{
    let wire: Wire = serde_json::from_value(given.clone()).unwrap();
    assert_eq!(Domain::from(wire), serde_json::from_value::<Domain>(given.clone()).unwrap());
}

#[test]
fn settings_pass_to_the_domain_and_back_whole() {
    let limits =
        json!({"memory": 268_435_456, "seconds": 60, "heartbeat_seconds": 30, "processes": 9, "disk": 2_097_152});
    let threshold = json!({"margin": 0.25, "window": 500, "on": "pool"});
    let drift = json!({"tolerance": 0.5, "threshold": 50.0, "warm_up": 40});
    let schedule = json!({"every": 3600.0});
    let volume = json!({"observations": 1234, "growth": 0.5});
    assert_kept::<Gate, manager::GateConfig>(
        &json!({"margin": 0.5, "holdout_share": 0.25, "pool_min": 7, "force": true, "shadow_seconds": 30}),
    );
    assert_kept::<Guard, manager::GuardConfig>(&json!({"observations": 20, "seconds": 60, "margin": 0.5}));
    assert_kept::<TrainerLimits, manager::LowerLimits>(&limits);
    assert_kept::<Trainer, manager::TrainerSettings>(
        &json!({"engine": "spark", "iterations": 12, "regularization": 0.5, "alpha": 40.0, "prior_scale": 2.0,
                "attributes": false, "limits": limits}),
    );
    assert_kept::<DefaultReward, manager::DefaultReward>(&json!({"label": -1.0, "after_seconds": 90.0, "slots": 3}));
    assert_kept::<ThresholdTrigger, manager::Threshold>(&threshold);
    assert_kept::<DriftTrigger, manager::DriftSettings>(&drift);
    assert_kept::<ScheduleTrigger, manager::Schedule>(&schedule);
    assert_kept::<VolumeTrigger, manager::Volume>(&volume);
    let popularity = json!({"observations": 5, "growth": 0.25, "until": 200});
    assert_kept::<PopularityTrigger, manager::Popularity>(&popularity);
    let study = json!({
        "every": 90.0, "space": {"dim": {"int": [8, 64], "log": true}}, "trials": 9, "seconds": 60, "workers": 2,
        "remote_workers": 3, "sampler": "tpe", "collaborative": true, "patience": 4, "then": "retrain",
    });
    assert_kept::<StudyTrigger, manager::ScheduledStudy>(&study);
    assert_kept::<Triggers, manager::Triggers>(&json!({
        "threshold": threshold, "drift": drift, "schedule": schedule, "volume": volume, "popularity": popularity,
        "study": study, "cool_down": 90.0,
    }));
}

#[test]
fn names_on_the_wire_are_those_of_the_domain() {
    for name in ["squared", "logistic", "implicit"] {
        assert_kept::<Loss, model::Loss>(&json!(name));
    }
    for name in ["rmse", "log_loss", "rank"] {
        assert_kept::<Metric, manager::Metric>(&json!(name));
    }
    for name in ["user", "global", "segment"] {
        assert_kept::<Scope, manager::ScopeKind>(&json!(name));
    }
    for name in ["reward", "error"] {
        assert_kept::<Objective, selection::Objective>(&json!(name));
    }
    for name in ["observations", "pool"] {
        assert_kept::<Signal, manager::Signal>(&json!(name));
    }
}

#[test]
fn settings_that_are_not_given_have_the_defaults_of_the_domain() {
    let none = json!({});
    assert_same_defaults::<Gate, manager::GateConfig>(&none);
    assert_same_defaults::<Guard, manager::GuardConfig>(&none);
    assert_same_defaults::<Trainer, manager::TrainerSettings>(&none);
    assert_same_defaults::<TrainerLimits, manager::LowerLimits>(&none);
    assert_same_defaults::<Triggers, manager::Triggers>(&none);
    assert_same_defaults::<ThresholdTrigger, manager::Threshold>(&none);
    assert_same_defaults::<PopularityTrigger, manager::Popularity>(&none);
    assert_same_defaults::<DriftTrigger, manager::DriftSettings>(&none);
    assert_same_defaults::<DefaultReward, manager::DefaultReward>(&json!({"label": 0, "after_seconds": 1}));
}
