//! Deserialization of strategies.

use celeris_bandits::selection::{Ab, Exp4, HalfLifeRecords, StrategySpec, TsallisInf};
use celeris_model::LabelRange;
use serde_json::json;

#[test]
fn a_strategy_is_a_name_or_an_object() {
    let read = |value: serde_json::Value| serde_json::from_value::<StrategySpec>(value);
    assert_eq!(read(json!("tsallis_inf")).unwrap(), StrategySpec::TsallisInf(TsallisInf::default()));
    assert_eq!(read(json!({"name": "exp4", "tolerance": 0.2})).unwrap(), StrategySpec::Exp4(Exp4 { tolerance: 0.2 }));
    let ab = StrategySpec::Ab(Ab { shares: Some(vec![0.9, 0.1]) });
    assert_eq!(read(json!({"name": "ab", "shares": [0.9, 0.1]})).unwrap(), ab);
    for spec in [StrategySpec::default(), ab, read(json!("exp3")).unwrap(), read(json!("exp4")).unwrap()] {
        assert_eq!(read(serde_json::to_value(&spec).unwrap()).unwrap(), spec);
    }
    for (wrong, says) in [
        (json!("exp5"), "unknown variant `exp5`"),
        (json!({"name": "exp3", "flor": 1}), "unknown field `flor`"),
        (json!({"floor": 0.1}), "missing field `name`"),
        (json!(3), "a strategy: its name, or an object"),
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn parameters_have_ranges() {
    let check = |value: serde_json::Value| serde_json::from_value::<StrategySpec>(value).unwrap().check(2);
    for sound in [json!("ab"), json!({"name": "ab", "shares": [0.9, 0.1]}), json!({"name": "exp3", "floor": 0.001})] {
        check(sound).unwrap();
    }
    for wrong in [
        json!({"name": "ab", "shares": [1.0]}),
        json!({"name": "ab", "shares": [0.9, 0.2]}),
        json!({"name": "ab", "shares": [1.0, 0.0]}),
        json!({"name": "exp3", "floor": 0.0}),
        json!({"name": "tsallis_inf", "floor": 1.5}),
        json!({"name": "exp4", "tolerance": -0.1}),
    ] {
        check(wrong.clone()).expect_err(&wrong.to_string());
    }
    assert!(serde_json::from_str::<LabelRange>("[5, 1]").is_err());
    assert!(serde_json::from_str::<HalfLifeRecords>("9").is_err());
}
