//! What a study can search: settings of a model that a training depends on.

use celeris_model::HalfLife;
use celeris_study::{Axis, Params, Space, StudyError};
use serde_json::Value;

use crate::error::ManagerError;
use crate::settings::{Engine, ModelConfig};

/// The settings that a study can search.
pub const SEARCHABLE: [&str; 7] =
    ["alpha", "attributes", "dim", "half_life", "iterations", "prior_scale", "regularization"];

/// The settings that determine the form of what a training has learnt: a trial continues only from
/// one that has the same.
pub(super) const SAME: [&str; 1] = ["dim"];

fn wrong(name: &str, problem: impl Into<String>) -> ManagerError {
    StudyError::Field { field: format!("space.{name}"), problem: problem.into() }.into()
}

/// Checks that a model can have every value of the space: both ends of a range, and each choice.
/// `check` checks further what belongs to the node.
///
/// # Errors
/// `Study` with the field.
pub(super) fn check(
    config: &ModelConfig,
    space: &Space,
    check: impl Fn(&ModelConfig) -> Result<(), ManagerError>,
) -> Result<(), ManagerError> {
    if config.trainer.engine == Engine::Popularity {
        let problem = "the trainer popularity has no settings to search; set another trainer.engine first";
        return Err(StudyError::Field { field: "space".to_owned(), problem: problem.to_owned() }.into());
    }
    for (name, axis) in space.axes() {
        let ends: Vec<Value> = match axis {
            Axis::Int { low, high, .. } => vec![(*low).into(), (*high).into()],
            Axis::Float { low, high, .. } => vec![(*low).into(), (*high).into()],
            Axis::Choice(choices) => choices.clone(),
        };
        for value in ends {
            let mut changed = config.clone();
            set(&mut changed, name, &value)?;
            changed.check().map_err(|error| wrong(name, error.to_string()))?;
            if changed.table_dim() == 0 {
                return Err(wrong(
                    name,
                    format!("the computed parts of {} leave no column to the constant", config.name),
                ));
            }
            check(&changed).map_err(|error| wrong(name, error.to_string()))?;
        }
    }
    Ok(())
}

/// Sets one setting.
fn set(config: &mut ModelConfig, name: &str, value: &Value) -> Result<(), ManagerError> {
    let is_external = !config.trainer.engine.is_built_in();
    let whole = || {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| wrong(name, format!("has whole numbers of 0 and above, got {value}")))
    };
    let number = || value.as_f64().ok_or_else(|| wrong(name, format!("has numbers, got {value}")));
    match name {
        "dim" => {
            config.dim = whole()? as usize;
            config.features.fit_table(config.dim);
        }
        "half_life" if value.is_null() => config.half_life = None,
        "half_life" => {
            let half_life = HalfLife::from_seconds(number()?);
            config.half_life = Some(half_life.map_err(|error| wrong(name, error.to_string()))?);
        }
        "iterations" if value.is_null() => config.trainer.iterations = None,
        "iterations" => config.trainer.iterations = Some(whole()?),
        "regularization" if value.is_null() => config.trainer.regularization = None,
        "regularization" => {
            let number = number()?;
            if number <= 0.0 && config.loss == celeris_model::Loss::Implicit {
                return Err(wrong(name, format!("must be above 0 where feedback is implicit, got {number}")));
            }
            config.trainer.regularization = Some(number);
        }
        "alpha" if !is_external => {
            return Err(wrong(name, "belongs to external trainers; the weight of an observation takes its place here"));
        }
        "alpha" if value.is_null() => config.trainer.alpha = None,
        "alpha" => config.trainer.alpha = Some(number()?),
        "prior_scale" if is_external => {
            return Err(wrong(name, format!("belongs to the built-in trainer; {} has none", config.trainer.engine)));
        }
        "prior_scale" if value.is_null() => config.trainer.prior_scale = None,
        // That of implicit feedback is refused by the check of the whole.
        "prior_scale" => config.trainer.prior_scale = Some(number()?),
        "attributes" => {
            let is_used = value.as_bool().ok_or_else(|| wrong(name, format!("has true and false, got {value}")))?;
            config.trainer.attributes = Some(is_used);
        }
        _ => {
            let known = SEARCHABLE.join(", ");
            return Err(wrong(name, format!("is no setting that a study can search; these are {known}")));
        }
    }
    Ok(())
}

/// A configuration with the settings of a trial.
///
/// # Errors
/// `Study`, which does not happen for settings of a space that was checked.
pub(super) fn with(config: &ModelConfig, params: &Params) -> Result<ModelConfig, ManagerError> {
    let mut changed = config.clone();
    for (name, value) in params {
        set(&mut changed, name, value)?;
    }
    Ok(changed)
}

/// The present values of the settings that a space has; null where the model has none.
pub(super) fn present(config: &ModelConfig, space: &Space) -> Params {
    let trainer = &config.trainer;
    let value = |name: &str| match name {
        "dim" => config.dim.into(),
        "half_life" => config.half_life.map_or(Value::Null, |half_life| half_life.seconds().into()),
        "iterations" => trainer.iterations.map_or(Value::Null, Into::into),
        "regularization" => trainer.regularization.map_or(Value::Null, Into::into),
        "alpha" => trainer.alpha.map_or(Value::Null, Into::into),
        "prior_scale" => trainer.prior_scale.map_or(Value::Null, Into::into),
        "attributes" => trainer.attributes.unwrap_or(true).into(),
        _ => Value::Null,
    };
    space.names().map(|name| (name.to_owned(), value(name))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{Loss, ModelName};
    use serde_json::json;

    use super::*;
    use crate::settings::TrainingOptions;

    fn config() -> ModelConfig {
        ModelConfig::new(ModelName::new("films").unwrap(), 20)
    }

    fn checked(config: &ModelConfig, space: Value) -> Result<(), String> {
        let space = serde_json::from_value(space).unwrap();
        let options = TrainingOptions::default();
        let of_trainer = |changed: &ModelConfig| changed.trainer.check(&changed.trainer.engine, &options);
        check(config, &space, of_trainer).map_err(|error| error.to_string())
    }

    #[test]
    fn spaces_that_the_model_cannot_have_are_refused_by_field() {
        for (space, problem) in [
            (json!({"dims": {"int": [8, 64]}}), "space.dims: is no setting"),
            (json!({"dim": {"int": [0, 64]}}), "space.dim: dim must be from 1 to"),
            (json!({"dim": {"int": [8, 100_000]}}), "space.dim: dim must be from 1 to"),
            (json!({"dim": {"float": [8.5, 64.0]}}), "space.dim: has whole numbers"),
            (json!({"dim": {"choice": [8, null]}}), "space.dim: has whole numbers"),
            (json!({"half_life": {"choice": [null, 0]}}), "space.half_life: "),
            (json!({"regularization": {"choice": ["low", "high"]}}), "space.regularization: has numbers"),
            (json!({"alpha": {"float": [1.0, 40.0]}}), "space.alpha: belongs to external trainers"),
            (json!({"prior_scale": {"float": [0.0, 10.0]}}), "space.prior_scale: "),
            (json!({"attributes": {"choice": [1, 0]}}), "space.attributes: has true and false"),
        ] {
            let found = checked(&config(), space.clone()).expect_err("an invalid space");
            assert!(found.starts_with(problem), "{space}: {found}");
        }
        let implicit = ModelConfig { loss: Loss::Implicit, ..config() };
        let space = json!({"regularization": {"float": [0.0, 10.0]}});
        checked(&config(), space.clone()).unwrap();
        let scales =
            json!({"prior_scale": {"float": [0.1, 10.0], "log": true}, "attributes": {"choice": [true, false]}});
        checked(&config(), scales.clone()).unwrap();
        let refused = checked(&implicit, scales).expect_err("implicit feedback has no scale");
        assert!(refused.starts_with("space.prior_scale: "), "{refused}");
        assert!(checked(&implicit, space).expect_err("a ridge of 0").contains("above 0"));
    }

    #[test]
    fn a_trial_changes_what_it_names_and_nothing_else() {
        let space: Space = serde_json::from_value(json!({
            "dim": {"int": [8, 64]}, "half_life": {"choice": [null, 604_800]},
            "regularization": {"float": [0.1, 10.0], "log": true}, "iterations": {"int": [5, 40]},
        }))
        .unwrap();
        check(&config(), &space, |_| Ok(())).unwrap();
        let expected = json!({"dim": 20, "half_life": null, "regularization": null, "iterations": null});
        assert_eq!(serde_json::to_value(present(&config(), &space)).unwrap(), expected);
        let params = json!({"dim": 32, "half_life": 604_800, "regularization": 0.5, "iterations": 7});
        let changed = with(&config(), &serde_json::from_value(params.clone()).unwrap()).unwrap();
        let mut wanted = config();
        wanted.dim = 32;
        wanted.half_life = Some(HalfLife::from_seconds(604_800.0).unwrap());
        (wanted.trainer.regularization, wanted.trainer.iterations) = (Some(0.5), Some(7));
        assert_eq!(changed, wanted);
        assert_eq!(with(&config(), &Params::new()).unwrap(), config());
    }
}
